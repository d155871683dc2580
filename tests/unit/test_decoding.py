"""Decoding is the parallel pass, a token at a time: exact, in O(log^2 L), in a state that is as small as promised."""

import functools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from caracal_min import Caracal, CaracalConfig
from caracal_min.convolution import causal_conv_direct
from caracal_min.decoding import (
    DotProductConvolution,
    PartitionedConvolution,
    RelaxedConvolution,
    RollingConvolution,
)
from caracal_min.layers import MultiHeadFourier, SlidingWindowAttention

WHOLE = {"dot product": DotProductConvolution,
         **{f"relaxed, base {b}": functools.partial(RelaxedConvolution, base=b) for b in (1, 2, 8, 32)}}
CUT = {"rolling": RollingConvolution,
       **{f"partitioned, base {b}": functools.partial(PartitionedConvolution, base=b) for b in (1, 2, 8, 32)}}
ONLINE = WHOLE | CUT
# Root mean square of the error over that of the sum in float64.
TOLERANCE = {torch.float64: 1e-15, torch.float32: 2e-7, torch.bfloat16: 4e-3}


def streams(batch, channels, length, dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(2, batch, channels, length, generator=draw, dtype=torch.float64).to(dtype).unbind(0)


def model(gate_length=None):
    torch.manual_seed(0)
    config = CaracalConfig(40, 16, 3, 2, window_size=6, gate_length=gate_length, embedding_std=0.5, init_std=0.2)
    return Caracal(config).double().eval().requires_grad_(False)


def ids(rows, length, seed=1):
    return torch.randint(40, (rows, length), generator=torch.Generator().manual_seed(seed))


# The convolutions


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", ONLINE)
@pytest.mark.parametrize("prompt", [0, 1, 39, 40, 41, 64, 130, 256])
def test_prompt_then_steps_equal_the_sum(kind, prompt, dtype):
    """With a gate of 40 coefficients, that is before, at and far after its end."""
    length, gates = (300, 300) if kind in WHOLE else (400, 40)
    v, g = streams(2, 3, length, dtype)
    online = ONLINE[kind](2, 3, gates, dtype)
    parts = [online.prefill(v[..., :prompt], g[..., :min(prompt, gates)])] if prompt else []
    parts += [online.step(v[..., t], g[..., t] if t < gates else None).unsqueeze(-1) for t in range(prompt, length)]
    r, expected = torch.cat(parts, dim=-1), causal_conv_direct(v.double(), g[..., :gates].double())
    assert r.dtype == dtype and online.held == [length] * 2
    assert (r.double() - expected).norm() < TOLERANCE[dtype] * expected.norm()


@pytest.mark.parametrize("kind", ONLINE)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_order_of_prompts_steps_and_reordered_rows(kind, data):
    """Rows of any lengths; what lies beyond a row is NaN, and reaches nothing."""
    batch, gates = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 90 if kind in WHOLE else 24))
    length = gates if kind in WHOLE else data.draw(st.integers(1, 5 * gates))
    v, g = streams(batch, 2, length, seed=data.draw(st.integers(0, 99)))
    expected = causal_conv_direct(v, g[..., :gates])
    online, held = ONLINE[kind](batch, 2, gates, torch.float64), [0] * batch
    while max(held) < length:
        action = data.draw(st.sampled_from(["prompt", "step", "reorder"]))
        if action == "reorder":
            rows = data.draw(st.lists(st.integers(0, len(held) - 1), min_size=1, max_size=4))
            online.reorder(rows)
            v, g, expected, held = v[rows], g[rows], expected[rows], [held[i] for i in rows]
            continue
        most = data.draw(st.integers(1, min(2 * gates + 5, length - max(held)))) if action == "prompt" else 1
        counts = data.draw(st.lists(st.integers(1, most), min_size=len(held), max_size=len(held)))
        if action == "prompt" and len(held) > 1 and data.draw(st.booleans()):
            counts[-1] = 0  # a row of padding alone
        new = torch.full((2, len(held), 2, max(counts)), float("nan"), dtype=torch.float64)
        for i, (n, c) in enumerate(zip(held, counts, strict=True)):
            new[0, i, :, :c], new[1, i, :, :c] = v[i, :, n:n + c], g[i, :, n:n + c]
        growing = max(0, gates - min(held))
        if action == "prompt":
            r = online.prefill(new[0], new[1, ..., :growing], counts)
        else:
            r = online.step(new[0, ..., 0], new[1, ..., 0] if growing else None).unsqueeze(-1)
        for i, (n, c) in enumerate(zip(held, counts, strict=True)):
            assert torch.allclose(r[i, :, :c], expected[i, :, n:n + c], atol=1e-12)
            assert (r[i, :, c:] == 0).all()
        held = [n + c for n, c in zip(held, counts, strict=True)]
        assert online.held == held


class Multiplications(TorchDispatchMode):
    """Count the real multiplications in a block; a real FFT of N points makes N log2 N, by the textbook's radix 2."""

    FREE = {"copy_", "_to_copy", "add", "add_", "sum", "zeros", "zeros_like", "new_zeros", "empty", "view", "slice",
            "select", "stack", "cat", "flip", "unsqueeze", "permute", "clone", "detach", "zero_", "fill_", "roll",
            "split", "unbind", "transpose", "constant_pad_nd", "alias",
            "lift_fresh"}

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name, out = function.overloadpacket.__name__, function(*args, **(kwargs or {}))
        if name in ("mul", "mul_", "addcmul_"):
            self.total += (4 if out.is_complex() else 1) * out.numel()
        elif name in ("_fft_r2c", "_fft_c2r"):
            real = args[0] if name == "_fft_r2c" else out
            self.total += real.numel() * math.log2(real.shape[-1])
        elif name not in self.FREE:
            raise NotImplementedError(f"how many multiplications is {function}?")
        return out


def multiplications(online, v, g):
    """Of all tokens, one at a time, per token and channel."""
    with Multiplications() as counted:
        for t in range(v.shape[-1]):
            online.step(v[..., t], None if g is None else g[..., t])
    return counted.total / v[0].numel()


def test_multiplications_per_token_grow_as_the_square_of_the_logarithm():
    """Relaxed: at most 2.5 log2(L)^2.  The reference: half the context."""
    found = {}
    for tokens in (2048, 8192):
        v, g = streams(1, 2, tokens, torch.float32)
        found[tokens] = multiplications(RelaxedConvolution(1, 2, tokens), v, g)
        assert found[tokens] < 2.5 * math.log2(tokens) ** 2
    assert found[8192] < 1.5 * found[2048]
    v, g = streams(1, 2, 512, torch.float32)
    assert multiplications(DotProductConvolution(1, 2, 512), v, g) == 513 / 2


@pytest.mark.parametrize("gate_length, most", [(128, 125), (100, 135), (512, 200)])
def test_under_a_cut_gate_a_token_costs_the_same_in_the_64th_period(gate_length, most):
    v, g = streams(1, 2, gate_length, torch.float32)
    online, costs, sizes = PartitionedConvolution(1, 2, gate_length), [], []
    online.prefill(v, g)
    for _ in range(2):
        costs.append(multiplications(online, v, None))
        sizes.append(online.nbytes)
        online.prefill(v.repeat(1, 1, 62), g[..., :0])
    assert online.held == [127 * gate_length]
    assert costs[0] == costs[1] < most and sizes[0] == sizes[1]


# The caches


@pytest.mark.parametrize("convolution", ["relaxed", "dot_product"])
@pytest.mark.parametrize("gate_length", [None, 12])
def test_a_model_with_caches_gives_the_logits_of_the_parallel_pass(convolution, gate_length):
    """A prompt, steps, chunks onto what is held; 16 gate lengths; in a state whose size never changes."""
    m, tokens = model(gate_length), ids(2, 192)
    caches, found, sizes = m.new_caches(2, 192, convolution), [], []
    for part in tokens.split([5, *[1] * 9, 40, 2, *[1] * 136], dim=1):
        found.append(m.logits(part, caches))
        sizes.append(sum(cache.nbytes for cache in caches))
    expected = m.logits(tokens)
    assert torch.allclose(torch.cat(found, dim=1), expected, atol=1e-10) and expected.std() > 0.1
    assert set(sizes) == {sizes[0]} and caches[0].held == [192] * 2


@pytest.mark.parametrize("convolution", ["relaxed", "dot_product"])
@pytest.mark.parametrize("gate_length", [None, 7])
@pytest.mark.parametrize("rows", [[2, 0, 1], [1, 1, 1], [2], [0, 2, 1, 0, 2], torch.tensor([1, 0, 2])])
def test_rows_of_different_lengths_go_on_as_what_they_became(rows, gate_length, convolution):
    m, tokens = model(gate_length), ids(3, 60)
    for lengths, steps in [([1, 9, 8], 3), ([6, 6, 6], 1), ([3, 4, 15], 35), ([5, 0, 5], 2)]:
        caches = m.new_caches(3, 80, convolution)
        m.logits(tokens[:, :max(lengths)], caches, lengths)
        for t in range(20, 20 + steps):
            m.logits(tokens[:, t:t + 1], caches)
        for cache in caches:
            cache.reorder(rows)
        texts = [torch.cat([tokens[i, :lengths[i]], tokens[i, 20:20 + steps]]) for i in rows]
        assert caches[0].held == [len(text) for text in texts]
        new = ids(len(texts), 20, seed=2)
        chunks = [1] * 6 + [3, 1, 7, 1, 1, 1]
        found = torch.cat([m.logits(part, caches) for part in new.split(chunks, dim=1)], dim=1)
        for text, row, logits in zip(texts, new, found, strict=True):
            whole = m.logits(torch.cat([text, row])[None])[0, len(text):]
            assert torch.allclose(logits, whole, atol=1e-11)


@pytest.mark.parametrize("capacity", [1, 4, 6, 7, 100])
def test_a_window_cache_equals_attention_and_is_no_larger_than_its_capacity(capacity):
    layer = SlidingWindowAttention(8, 2, 6).double()
    cache, x = layer.new_cache(3, capacity), torch.randn(3, capacity, 8, dtype=torch.float64)
    first = max(1, capacity // 2)
    parts = x.split([first, *[1] * (capacity - first)], dim=1)
    assert torch.allclose(torch.cat([layer(part, cache) for part in parts], dim=1), layer(x), atol=1e-12)
    assert cache.nbytes == 8 * 2 * 3 * min(6, capacity) * 8


@pytest.mark.parametrize("gate_length", [None, 64])
@pytest.mark.parametrize("convolution, per_token", [("relaxed", 3), ("dot_product", 2)])
def test_numbers_per_token_and_channel(convolution, per_token, gate_length):
    """Counted in every tensor that hangs on the cache, as memory: a view counts as what it keeps alive."""
    held = []
    for size in (256, 512):
        layer = MultiHeadFourier(8, 2, gate_length=gate_length and size)
        cache = layer.new_cache(1, 4 * size if gate_length else size, convolution)
        for tokens in (size - 40, 1, 39):
            layer(torch.randn(1, tokens, 8, requires_grad=True), cache)
        tensors = [x for state in (cache, cache.convolution) for x in vars(state).values() if torch.is_tensor(x)]
        assert not any(x.requires_grad for x in tensors), "a graph would grow with the text"
        held.append(sum({x.data_ptr(): x.untyped_storage().nbytes() for x in tensors}.values()))
        assert held[-1] == cache.nbytes
    assert held[1] - held[0] == 4 * per_token * 8 * 256


@pytest.mark.parametrize("read", [1, 3])
@pytest.mark.parametrize("layer", [MultiHeadFourier(8, 2), SlidingWindowAttention(8, 2, 6)])
def test_more_tokens_than_a_cache_takes(layer, read):
    x, cache = torch.randn(1, 20, 8), layer.new_cache(1, 4)
    layer(x[:, :4], cache)
    with pytest.raises(ValueError, match=f"^{4 + read} tokens do not fit a cache for 4; make the cache longer$"):
        layer(x[:, 4:4 + read], cache)
    assert cache.capacity == 4 and cache.held == [4]
    for endless in (MultiHeadFourier(8, 2, gate_length=3), SlidingWindowAttention(8, 2, 3)):
        cache = endless.new_cache(1, 4)
        found = [endless(part, cache) for part in x.split(read, dim=1)]
        assert cache.capacity is None and torch.allclose(torch.cat(found, 1), endless(x), atol=1e-5)
