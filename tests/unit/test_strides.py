"""Layouts in memory: every function on sequences gives what it gives for contiguous tensors, whatever the strides."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strides import contiguous, random_strides, results, streams

from caracal_min.attention import sliding_window_attention
from caracal_min.convolution import (
    causal_conv_direct,
    causal_conv_fft,
    causal_conv_right_angle,
    circular_conv,
    linear_conv,
    toeplitz,
)
from caracal_min.decoding import DotProductConvolution, PartitionedConvolution, RelaxedConvolution, RollingConvolution
from caracal_min.loss import linear_cross_entropy, token_loss
from caracal_min.spectral import BLOCK, causal_conv

FUNCTIONS = {
    "causal_conv_direct": causal_conv_direct, "causal_conv_fft": causal_conv_fft,
    "causal_conv_right_angle": causal_conv_right_angle, "linear_conv": linear_conv, "circular_conv": circular_conv,
    "toeplitz": lambda v, g: toeplitz(g) @ v.unsqueeze(-1),
    "causal_conv_fft, broadcast": lambda v, g: causal_conv_fft(v, g[(0,) * (g.ndim - 1)]),
    "causal_conv_fft, a short gate": lambda v, g: causal_conv_fft(v, g[..., :1 + g.shape[-1] // 2]),
    "causal_conv_fft, mapped": lambda v, g: torch.vmap(causal_conv_fft)(v[None], g[None])[0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(ndim=st.integers(1, 5), seed=st.integers(0, 10**6), block=st.sampled_from([1, 60, None]))
def test_any_strides_give_what_contiguous_tensors_give(name, ndim, seed, block):
    v, g, dr = streams(ndim, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BLOCK, "cpu", block)
        found = results(FUNCTIONS[name], (v, g), dr)
        expected = results(FUNCTIONS[name], (contiguous(v), contiguous(g)), contiguous(dr))
        r = causal_conv(v, g)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
    assert r.stride() == torch.empty_like(v).stride()


ONLINE = {
    "dot product": lambda b, d, n: DotProductConvolution(b, d, n, torch.float64),
    "relaxed": lambda b, d, n: RelaxedConvolution(b, d, n, torch.float64, base=2),
    "partitioned": lambda b, d, n: PartitionedConvolution(b, d, n, torch.float64, base=2),
    "rolling": lambda b, d, n: RollingConvolution(b, d, n, torch.float64),
}


@pytest.mark.parametrize("kind", ONLINE)
@pytest.mark.parametrize("seed", range(6))
def test_online_convolutions_take_streams_of_any_strides(kind, seed):
    """A prompt, tokens, another prompt, all in one buffer that is overwritten after each call, as a caller may."""
    draw = torch.Generator().manual_seed(seed)
    shape = (1 + seed % 3, 1 + seed % 4, 13)
    v, g = (torch.randn(shape, generator=draw, dtype=torch.float64) for _ in range(2))
    online, r = ONLINE[kind](*shape), []
    for start, end in [(0, 5), (5, 6), (6, 7), (7, 8), (8, 11), (11, 12), (12, 13)]:
        both = [random_strides(x[..., start:end], 2 * seed + i, zeros=False) for i, x in enumerate((v, g))]
        if end - start == 1:
            r.append(online.step(*(x[..., 0] for x in both)).unsqueeze(-1))
        else:
            r.append(online.prefill(*both))
        for x in both:
            x.fill_(float("nan"))
    torch.testing.assert_close(torch.cat(r, -1), causal_conv_direct(v, g), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("seed", range(8))
def test_attention_and_the_loss_take_any_strides(seed):
    draw = torch.Generator().manual_seed(seed)
    q, k, v, dr = (random_strides(torch.randn(2, 3, 7, 4, generator=draw, dtype=torch.float64), 4 * seed + i)
                   for i in range(4))
    hidden, weight = (random_strides(torch.randn(*shape, generator=draw, dtype=torch.float64), 4 * seed + i)
                      for i, shape in enumerate([(2, 7, 4), (9, 4)]))
    targets = random_strides(torch.randint(9, (2, 7), generator=draw).double(), seed, zeros=False).long()
    for f, tensors in ((lambda q, k, v: sliding_window_attention(q, k, v, 3), (q, k, v)),
                       (lambda h, w: linear_cross_entropy(h, w, targets, 3), (hidden, weight)),
                       (lambda h, w: token_loss(h @ w.t(), targets, "none"), (hidden, weight))):
        expected = results(f, [contiguous(x) for x in tensors], contiguous(dr))
        for a, b in zip(results(f, tensors, dr), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
