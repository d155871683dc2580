"""Online convolution: exact against the direct sum for any split into prompts and steps, at a counted cost."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from online_streams import TOLERANCE, relative_error, streams
from torch.utils._python_dispatch import TorchDispatchMode

from caracal_min import Caracal, CaracalConfig
from caracal_min.caches import FourierCache
from caracal_min.convolution import causal_conv_direct
from caracal_min.online import row_groups
from caracal_min.partitioned import PartitionedConvolution, RollingConvolution
from caracal_min.relaxed import DotProductConvolution, RelaxedConvolution

KINDS = {
    "dot product": DotProductConvolution,
    **{f"relaxed, base {b}": lambda *args, b=b, **kw: RelaxedConvolution(*args, base=b, **kw) for b in (1, 2, 8, 32)},
}

@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prompt", [0, 1, 31, 32, 64, 100, 256])
def test_prompt_then_steps_equal_the_sum(kind, prompt, dtype):
    v, g = streams(2, 3, 300, dtype)
    online = KINDS[kind](2, 3, 300, dtype)
    parts = [online.prefill(v[..., :prompt], g[..., :prompt])] if prompt else []
    parts += [online.step(v[..., t], g[..., t]).unsqueeze(-1) for t in range(prompt, 300)]
    r = torch.cat(parts, dim=-1)
    assert r.dtype == dtype and online.lengths == [300, 300]
    assert relative_error(r, causal_conv_direct(v.double(), g.double())) < TOLERANCE[dtype]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_order_of_prompts_and_steps_with_rows_of_any_lengths(kind, data):
    batch, capacity = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 90))
    v, g = streams(batch, 2, capacity, seed=data.draw(st.integers(0, 99)))
    expected = causal_conv_direct(v, g)
    online, held = KINDS[kind](batch, 2, capacity, torch.float64), [0] * batch
    while max(held) < capacity:
        most = data.draw(st.integers(1, min(20, capacity - max(held))))
        if data.draw(st.booleans()):
            counts = data.draw(st.lists(st.integers(1, most), min_size=batch, max_size=batch))
            new = torch.full((2, batch, 2, max(counts)), float("nan"), dtype=torch.float64)
            for i, (n, c) in enumerate(zip(held, counts, strict=True)):
                new[0, i, :, :c], new[1, i, :, :c] = v[i, :, n:n + c], g[i, :, n:n + c]
            r = online.prefill(*new, counts)
        else:
            counts = [1] * batch
            now = [torch.stack([x[i, :, n] for i, n in enumerate(held)]) for x in (v, g)]
            r = online.step(*now).unsqueeze(-1)
        for i, (n, c) in enumerate(zip(held, counts, strict=True)):
            assert torch.allclose(r[i, :, :c], expected[i, :, n:n + c], atol=1e-12)
            assert (r[i, :, c:] == 0).all()
        held = [n + c for n, c in zip(held, counts, strict=True)]
        assert online.lengths == held


class Multiplications(TorchDispatchMode):
    """Count the real multiplications of all that runs inside the `with` block.

    A real FFT of N points counts N log2 N, as many as the textbook radix-2 algorithm for real input makes.
    Copies, additions and the placing of data count nothing; an operator that is not known here is an error.
    """

    FREE = ("copy_", "_to_copy", "add", "add_", "sum", "zeros", "zeros_like", "new_zeros", "empty", "empty_like",
            "view", "_unsafe_view", "slice", "select", "stack", "cat", "flip", "unsqueeze", "permute", "transpose",
            "expand", "clone", "detach", "zero_", "fill_", "as_strided", "lift_fresh", "squeeze", "alias", "t",
            "constant_pad_nd", "full", "_reshape_alias", "unbind")

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        with self:  # under inference_mode composite operators arrive whole
            parts = function.decompose(*args, **(kwargs or {}))
        if parts is not NotImplemented:
            return parts
        name = function.overloadpacket.__name__
        out = function(*args, **(kwargs or {}))
        complex_factor = 4 if isinstance(out, torch.Tensor) and out.is_complex() else 1
        if name in ("mul", "mul_", "addcmul", "addcmul_"):
            self.total += complex_factor * out.numel()
        elif name in ("_fft_r2c", "_fft_c2r"):
            n = args[0].shape[-1] if name == "_fft_r2c" else out.shape[-1]
            rows = (out if name == "_fft_c2r" else args[0]).numel() // n
            self.total += rows * n * math.log2(max(2, n))
        elif name == "bmm":
            self.total += args[0].numel() * args[1].shape[-1]
        elif name not in self.FREE:
            raise NotImplementedError(f"how many multiplications is {function}?")
        return out


def multiplications_per_token(kind, tokens: int) -> float:
    """From an empty cache to `tokens` tokens, per token and channel."""
    online, (v, g) = KINDS[kind](1, 2, tokens, torch.float32), streams(1, 2, tokens, torch.float32)
    with Multiplications() as counted:
        for t in range(tokens):
            online.step(v[..., t], g[..., t])
    return counted.total / tokens / 2


def test_multiplications_per_token():
    """Relaxed: 2.5 times log2(8192)^2 = 169.  The twin: half the context."""
    relaxed = multiplications_per_token("relaxed, base 32", 8192)
    assert 169 < relaxed < 2.5 * 169
    assert multiplications_per_token("dot product", 8192) == pytest.approx(8193 / 2)
    # Four times the context costs a few more levels, far from four times as much.
    assert relaxed < 1.5 * multiplications_per_token("relaxed, base 32", 2048)


def test_generating_at_8k_context_makes_fewer_than_450_multiplications_per_token_and_channel(monkeypatch):
    """Counted in the mixer of a real model, while it goes from 4,096 tokens to 8,192."""
    model = Caracal(CaracalConfig(vocab_size=5, d_model=4, n_layers=1, n_heads=2, fourier_per_attention=None)).eval()
    counter, tokens = Multiplications(), []
    mix = FourierCache.mix

    def counted(self, v, g, lengths):
        if v.shape[-1] > 1:  # the prompt
            return mix(self, v, g, lengths)
        tokens.append(1)
        with counter:
            return mix(self, v, g, lengths)

    monkeypatch.setattr(FourierCache, "mix", counted)
    prompt = torch.zeros(1, 4096, dtype=torch.int64)
    model.generate(prompt, 4096, seed=0)
    assert len(tokens) == 4095  # the last token drawn is not read again
    per_token = counter.total / len(tokens) / model.config.d_model
    assert 200 < per_token < 450


@pytest.mark.parametrize("gate_length, most", [(128, 125), (100, 135), (512, 200)])
def test_under_a_cut_gate_a_token_costs_the_same_however_long_the_text(gate_length, most):
    """Period by period, up to 64 of them; the twin makes as many as the gate is long."""
    found = {}
    for kind in (PartitionedConvolution, RollingConvolution):
        online, (v, g) = kind(1, 2, gate_length), streams(1, 2, gate_length, torch.float32)
        online.prefill(v[..., :-1], g[..., :-1])
        online.step(v[..., -1], g[..., -1])
        periods = []
        for period in range(1, 64):
            if period in (1, 2, 63):
                with Multiplications() as counted:
                    for t in range(gate_length):
                        online.step(v[..., t])
                periods.append(counted.total / gate_length / 2)
            else:
                online.prefill(v, g[..., :0])
        assert online.lengths == [64 * gate_length]
        assert len(set(periods)) == 1
        found[kind] = periods[0]
    assert found[RollingConvolution] == gate_length
    assert 16 < found[PartitionedConvolution] < most


def test_row_groups_are_runs_of_equal_rows():
    assert list(row_groups([5, 5, 5], [2, 2, 2])) == [(5, 2, slice(0, 3))]
    assert list(row_groups([5, 5, 6, 5], [2, 1, 1, 1])) == [
        (5, 2, slice(0, 1)), (5, 1, slice(1, 2)), (6, 1, slice(2, 3)), (5, 1, slice(3, 4))]


@pytest.mark.parametrize("use, words", [
    (lambda c: c.step(torch.ones(2, 4), torch.ones(2, 4)), ["(2, 4)", "[2, 3]"]),
    (lambda c: c.step(torch.ones(2, 3), torch.ones(2)), ["(2, 3)", "(2,)"]),
    (lambda c: c.prefill(torch.ones(2, 3, 0), torch.ones(2, 3, 0)), ["(2, 3, 0)", "[2, 3, tokens]"]),
    (lambda c: c.prefill(torch.ones(2, 3, 5), torch.ones(2, 3, 4)), ["(2, 3, 5)", "(2, 3, 4)"]),
    (lambda c: c.prefill(torch.ones(2, 3, 5), torch.ones(2, 3, 5), [1, 6]), ["[1, 6]", "1 to 5"]),
    (lambda c: c.prefill(torch.ones(2, 3, 5), torch.ones(2, 3, 5), [0, 5]), ["[0, 5]", "1 to 5"]),
    (lambda c: c.prefill(torch.ones(2, 3, 5), torch.ones(2, 3, 5), [5]), ["[5]", "2 rows"]),
    (lambda c: c.step(torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 3)), ["torch.int64", "floating-point"]),
    (lambda c: c.step(torch.ones(2, 3), torch.ones(2, 3, device="meta")), ["meta", "on cpu"]),
    (lambda c: c.prefill(torch.ones(2, 3, 5), torch.ones(2, 3, 5, dtype=torch.bool)), ["torch.bool"]),
    (lambda c: c.prefill(torch.ones(2, 3, 9), torch.ones(2, 3, 9)), ["9 tokens", "for 8", "longer"]),
    (lambda c: [c.step(torch.ones(2, 3), torch.ones(2, 3)) for _ in range(9)], ["9 tokens", "for 8"]),
])
@pytest.mark.parametrize("kind", ["dot product", "relaxed, base 2"])
def test_bad_input_gets_one_clear_line_and_nothing_is_lost(kind, use, words):
    online = KINDS[kind](2, 3, 8)
    with pytest.raises(ValueError) as caught:
        use(online)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    held = online.lengths[0]
    v, g = streams(2, 3, 8, torch.float32)
    if held == 0:  # what was refused left no trace
        assert torch.allclose(online.prefill(v, g), causal_conv_direct(v, g), atol=1e-5)


def test_impossible_sizes_are_refused():
    for sizes in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        with pytest.raises(ValueError, match=">= 1"):
            RelaxedConvolution(*sizes)
    with pytest.raises(ValueError, match="base=12; give a power of two"):
        RelaxedConvolution(1, 1, 8, base=12)
