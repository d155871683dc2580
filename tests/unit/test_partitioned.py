"""Online convolution with a gate of fixed length K: exact before, at and after K, in a state of one size."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from online_streams import TOLERANCE, relative_error, streams

from caracal_min import Caracal, CaracalConfig
from caracal_min.convolution import causal_conv_direct
from caracal_min.modules import MultiHeadFourier
from caracal_min.partitioned import PartitionedConvolution, RollingConvolution
from caracal_min.relaxed import DotProductConvolution, RelaxedConvolution

KINDS = {
    "rolling": RollingConvolution,
    **{f"partitioned, base {b}": lambda *args, b=b, **kw: PartitionedConvolution(*args, base=b, **kw)
       for b in (1, 2, 8, 32)},
}

@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prompt", [0, 1, 39, 40, 41, 80, 130])
def test_prompt_then_steps_equal_the_sum(kind, prompt, dtype):
    v, g = streams(2, 3, 200, dtype)
    online = KINDS[kind](2, 3, 40, dtype)
    parts = [online.prefill(v[..., :prompt], g[..., :min(prompt, 40)])] if prompt else []
    parts += [online.step(v[..., t], g[..., t] if t < 40 else None).unsqueeze(-1) for t in range(prompt, 200)]
    r = torch.cat(parts, dim=-1)
    assert r.dtype == dtype and online.lengths == [200, 200]
    assert relative_error(r, causal_conv_direct(v.double(), g[..., :40].double())) < TOLERANCE[dtype]


@pytest.mark.parametrize("gate_length", [1, 2, 3, 4, 5, 8, 13, 31, 32, 33, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_every_gate_length_at_64_times_it_or_640_tokens(kind, gate_length):
    tokens = min(64 * gate_length, 640)
    v, g = streams(1, 2, tokens)
    online = KINDS[kind](1, 2, gate_length, torch.float64)
    r = torch.stack([online.step(v[..., t], g[..., t]) for t in range(tokens)], dim=-1)
    expected = causal_conv_direct(v, g[..., :gate_length])
    assert (r - expected).abs().max() < 1e-13 * gate_length
    assert gate_length == 1 or not torch.allclose(r, causal_conv_direct(v, g[..., :gate_length - 1]), atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_order_of_prompts_and_steps_with_rows_of_any_lengths(kind, data):
    batch, gate_length = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 40))
    tokens = data.draw(st.integers(1, 5 * gate_length + 40))
    v, g = streams(batch, 2, tokens, seed=data.draw(st.integers(0, 99)))
    expected = causal_conv_direct(v, g[..., :gate_length])
    online, held = KINDS[kind](batch, 2, gate_length, torch.float64), [0] * batch
    while max(held) < tokens:
        most = data.draw(st.integers(1, min(2 * gate_length + 5, tokens - max(held))))
        if data.draw(st.booleans()):
            counts = data.draw(st.lists(st.integers(1, most), min_size=batch, max_size=batch))
            new = torch.full((2, batch, 2, max(counts)), float("nan"), dtype=torch.float64)
            for i, (n, c) in enumerate(zip(held, counts, strict=True)):
                new[0, i, :, :c], new[1, i, :, :c] = v[i, :, n:n + c], g[i, :, n:n + c]
            gates = max(0, min(max(counts), gate_length - min(held)))
            r = online.prefill(new[0], new[1, ..., :gates], counts)
        else:
            counts = [1] * batch
            now = [torch.stack([x[i, :, n] for i, n in enumerate(held)]) for x in (v, g)]
            r = online.step(now[0], now[1] if min(held) < gate_length else None).unsqueeze(-1)
        for i, (n, c) in enumerate(zip(held, counts, strict=True)):
            assert torch.allclose(r[i, :, :c], expected[i, :, n:n + c], atol=1e-12)
            assert (r[i, :, c:] == 0).all()
        held = [n + c for n, c in zip(held, counts, strict=True)]
        assert online.lengths == held


# The largest difference of a logit, whose own size is about 1.
LIMIT = {torch.float64: 1e-10, torch.float32: 1e-5}


@pytest.mark.parametrize("dtype", LIMIT)
@pytest.mark.parametrize("convolution", ["relaxed", "dot_product"])
@torch.no_grad()
def test_a_model_at_64_times_its_gate_length_in_a_state_that_does_not_grow(convolution, dtype):
    torch.manual_seed(0)
    config = CaracalConfig(40, 16, 3, 2, window_size=6, gate_length=12, embedding_std=0.05, init_std=0.1)
    model, tokens = Caracal(config).to(dtype).eval(), torch.randint(40, (2, 64 * 12))
    caches = model.new_caches(2, tokens.shape[1], convolution)
    found, held = [], []
    for part in tokens.split([5, *[1] * 9, 40, *[1] * (tokens.shape[1] - 54)], dim=1):
        found.append(model.logits(part, caches))
        held.append(sum(cache.nbytes for cache in caches))
    expected = model.logits(tokens)
    assert (torch.cat(found, dim=1) - expected).abs().max() < LIMIT[dtype] and expected.std() > 0.1
    assert set(held) == {held[0]}
    assert model.seen(caches) == [tokens.shape[1]] * 2


def test_as_many_numbers_are_held_as_the_docstrings_say():
    for kind, per_gate in (("relaxed", 3), ("dot_product", 2)):
        layers = [MultiHeadFourier(8, 2, gate_length=n) for n in (64, 164)]
        small, large = (layer.new_cache(1, 10**9, kind).nbytes // 4 for layer in layers)
        assert large - small == per_gate * 8 * 100


def test_a_text_shorter_than_the_gate_has_the_cache_of_an_uncut_one():
    layer = MultiHeadFourier(8, 2, gate_length=50)
    kinds = {"relaxed": (RelaxedConvolution, PartitionedConvolution),
             "dot_product": (DotProductConvolution, RollingConvolution)}
    for name, (whole, cut) in kinds.items():
        assert [type(layer.new_cache(1, n, name).convolution) for n in (10, 50, 51)] == [whole, whole, cut]
        assert type(MultiHeadFourier(8, 2).new_cache(1, 51, name).convolution) is whole


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("held, lengths", [(0, [3, 30, 17]), (10, [1, 9, 8]), (15, [20, 1, 2]), (40, [2, 33, 17])])
def test_whoever_puts_a_state_back_has_undone_what_came_after(kind, held, lengths):
    v, g = streams(3, 2, 90)
    online = KINDS[kind](3, 2, 16, torch.float64)
    for t in range(held):
        online.step(v[..., t], g[..., t])
    twin, before = copy.deepcopy(online), online.state
    for undone in (lambda: online.step(-v[..., 7], g[..., 5]),
                   lambda: online.prefill(-v[..., :33], g[..., :33], lengths)):
        undone()
        online.state = before
        assert online.lengths == [held] * 3
    for part in (slice(40, 41), slice(41, 44), slice(44, 45), slice(50, 90), slice(60, 61)):  # steps and prompts
        if part.stop - part.start == 1:
            found = [c.step(v[..., part.start], g[..., part.start]) for c in (online, twin)]
        else:
            found = [c.prefill(v[..., part], g[..., part]) for c in (online, twin)]
        assert torch.equal(*found)
        state = online.state  # another that comes to nothing
        online.step(-v[..., 3], g[..., 3])
        online.state = state


def test_rows_go_on_in_step_after_prompts_of_different_lengths():
    """Their places in the period are the same, so that one product serves them all."""
    online = PartitionedConvolution(3, 2, 8)
    online.prefill(*streams(3, 2, 30, torch.float32), [9, 30, 8])
    assert online.state.places == [0, 0, 0]


@pytest.mark.parametrize("use, words", [
    (lambda c: c.step(torch.ones(2, 4), torch.ones(2, 4)), ["(2, 4)", "[2, 3]"]),
    (lambda c: c.step(torch.ones(2, 3), torch.ones(2)), ["(2, 3)", "(2,)"]),
    (lambda c: c.step(torch.ones(2, 3)), ["no gate", "token 8"]),
    (lambda c: c.prefill(torch.ones(2, 3, 0), torch.ones(2, 3, 0)), ["(2, 3, 0)", "[2, 3, tokens]"]),
    (lambda c: c.prefill(torch.ones(2, 3, 5), torch.ones(2, 3, 4)), ["(2, 3, 5)", "(2, 3, 4)", "at least 5 gates"]),
    (lambda c: c.prefill(torch.ones(2, 3, 50), torch.ones(2, 3, 7)), ["at least 8 gates"]),
    (lambda c: c.prefill(torch.ones(2, 3, 5), torch.ones(1, 3, 5)), ["(1, 3, 5)"]),
    (lambda c: c.prefill(torch.ones(2, 3, 5), torch.ones(2, 3, 5), [1, 6]), ["[1, 6]", "1 to 5"]),
    (lambda c: c.prefill(torch.ones(2, 3, 5), torch.ones(2, 3, 5), [5]), ["[5]", "2 rows"]),
    (lambda c: c.step(torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 3)), ["torch.int64", "floating-point"]),
    (lambda c: c.step(torch.ones(2, 3), torch.ones(2, 3, device="meta")), ["meta", "on cpu"]),
    (lambda c: c.prefill(torch.ones(2, 3, 5), torch.ones(2, 3, 5, dtype=torch.bool)), ["torch.bool"]),
])
@pytest.mark.parametrize("kind", ["rolling", "partitioned, base 2"])
def test_bad_input_gets_one_clear_line_and_nothing_is_lost(kind, use, words):
    online = KINDS[kind](2, 3, 8)
    with pytest.raises(ValueError) as caught:
        use(online)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    v, g = streams(2, 3, 20, torch.float32)
    assert torch.allclose(online.prefill(v, g), causal_conv_direct(v, g[..., :8]), atol=1e-5)


def test_impossible_sizes_are_refused():
    for kind in (RollingConvolution, PartitionedConvolution):
        for sizes in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
            with pytest.raises(ValueError, match=">= 1"):
                kind(*sizes)
    with pytest.raises(ValueError, match="base=12; give a power of two"):
        PartitionedConvolution(1, 1, 8, base=12)
    with pytest.raises(ValueError, match="gate_length=0"):
        MultiHeadFourier(8, 2, gate_length=0)
