"""Layouts in memory: every function on sequences gives what it gives for contiguous tensors, whatever the strides."""

from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strides import APART, contiguous, random_strides, results, streams

from caracal_min.attention import sliding_window_attention
from caracal_min.convolution import (
    causal_conv_direct,
    causal_conv_fft,
    causal_conv_right_angle,
    circular_conv,
    linear_conv,
    toeplitz,
)
from caracal_min.loss import linear_cross_entropy, token_loss
from caracal_min.model import Caracal
from caracal_min.partitioned import PartitionedConvolution, RollingConvolution
from caracal_min.relaxed import DotProductConvolution, RelaxedConvolution
from caracal_min.spectral import BLOCK, causal_conv, causal_conv_backward, written_out

FUNCTIONS = {
    "causal_conv_direct": causal_conv_direct, "causal_conv_fft": causal_conv_fft, "causal_conv": causal_conv,
    "causal_conv_right_angle": causal_conv_right_angle, "linear_conv": linear_conv, "circular_conv": circular_conv,
    "written_out": lambda v, g: written_out(v, g, 2 * v.shape[-1]),
    "toeplitz": lambda v, g: toeplitz(g) @ v.unsqueeze(-1),
    "causal_conv_fft, broadcast": lambda v, g: causal_conv_fft(v, g[(0,) * (g.ndim - 1)]),
    "causal_conv_fft, a short gate": lambda v, g: causal_conv_fft(v, g[..., :1 + g.shape[-1] // 2]),
    "causal_conv_fft, mapped": lambda v, g: torch.vmap(causal_conv_fft)(v[None], g[None])[0],
    "the gradients": lambda v, g: sum(d.sum() for d in causal_conv_backward(v, g, v) if d.square().sum() >= 0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(ndim=st.integers(1, 5), seed=st.integers(0, 10**6), block=st.sampled_from([1, 60, None]))
def test_any_strides_give_what_contiguous_tensors_give(name, ndim, seed, block):
    v, g, dr = streams(ndim, seed)
    with mock.patch.dict(BLOCK, cpu=block):
        found = results(FUNCTIONS[name], (v, g), dr)
        expected = results(FUNCTIONS[name], (contiguous(v), contiguous(g)), contiguous(dr))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(ndim=st.integers(1, 5), seed=st.integers(0, 10**6), block=st.sampled_from([1, 60, None]))
def test_the_operator_is_the_sum_and_lies_in_memory_as_the_content(ndim, seed, block):
    v, g, dr = streams(ndim, seed)
    with mock.patch.dict(BLOCK, cpu=block):
        r, (dv, dg) = causal_conv(v, g), causal_conv_backward(dr, v, g)
    expected = results(causal_conv_direct, (contiguous(v), contiguous(g)), contiguous(dr))
    for found, wanted, like in zip((r, dv, dg), expected, (v, v, g), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-11)
        assert found.stride() == torch.empty_like(like).stride()


@pytest.mark.parametrize("name", APART)
def test_operators_on_dimensions_that_do_not_merge_are_as_pytorch_asks(name):
    """Among others: the strides of a fake result are those of the real one."""
    v, g, dr = (APART[name]().double().requires_grad_() for _ in range(3))
    torch.library.opcheck(torch.ops.caracal.causal_conv.default, (v, g))
    torch.library.opcheck(torch.ops.caracal.causal_conv_backward.default, (dr, v, g))


@pytest.mark.parametrize("backend, names", [("aot_eager", APART), ("inductor", ["heads"])])
def test_compiled_on_dimensions_that_do_not_merge(backend, names, request):
    if backend == "inductor":
        request.getfixturevalue("compiler")
    compiled = torch.compile(lambda v, g: causal_conv_fft(2 * v, g), fullgraph=True, backend=backend, dynamic=False)
    for name in names:
        v, g, dr = (APART[name]().double() for _ in range(3))
        torch._dynamo.reset()
        found = results(compiled, (v, g), dr)
        for a, b in zip(found, results(lambda v, g: causal_conv_direct(2 * v, g), (v, g), dr), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


ONLINE = {
    "dot product": lambda b, d, n: DotProductConvolution(b, d, n, torch.float64),
    "relaxed": lambda b, d, n: RelaxedConvolution(b, d, n, torch.float64, base=2),
    "partitioned": lambda b, d, n: PartitionedConvolution(b, d, n, torch.float64, base=2),
    "rolling": lambda b, d, n: RollingConvolution(b, d, n, torch.float64),
}


@pytest.mark.parametrize("kind", ONLINE)
@pytest.mark.parametrize("seed", range(12))
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


@pytest.mark.parametrize("seed", range(20))
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


@pytest.mark.parametrize("arranged", [lambda x: x.t().contiguous().t(), lambda x: x.repeat_interleave(2, 1)[:, ::2],
                                      lambda x: x[:1].expand(3, -1)])
def test_a_model_takes_ids_of_any_strides(arranged):
    model = Caracal.from_preset("nano", n_layers=3)
    tokens = arranged(torch.randint(256, (3, 20)))
    plain = tokens.clone(memory_format=torch.contiguous_format)
    assert not tokens.is_contiguous() and torch.equal(model.logits(tokens), model.logits(plain))
    assert torch.equal(model.loss(tokens[:, :-1], tokens[:, 1:]), model.loss(plain[:, :-1], plain[:, 1:]))
