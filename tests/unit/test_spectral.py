"""The operator: gradients in every dtype, frames, blocks, what it saves, torch.func and torch.compile."""

import subprocess
import sys

import pytest
import torch
from strides import APART, contiguous, results
from torch import func

from caracal_min import spectral
from caracal_min.convolution import causal_conv_direct, causal_conv_fft
from caracal_min.spectral import causal_conv, fast_length

TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}


def pair(*shape, dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(2, *shape, generator=draw, dtype=torch.float64).to(dtype).unbind(0)


def relative_error(found, expected):
    return ((found.double() - expected).square().mean() / expected.square().mean()).sqrt().item()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("budget", [1, 200, None])
@pytest.mark.parametrize("frame, length, taps", [
    (2048, 1, 1), (2048, 97, 97), (2048, 100, 40), (8, 40, 1), (8, 41, 5), (8, 2, 1), (16, 41, 13), (16, 42, 13),
    (16, 43, 13), (2048, 3000, 7)])
def test_result_and_gradients_are_those_of_the_sum(monkeypatch, frame, length, taps, budget, dtype):
    """One frame and many, blocks of a row, of some and of all; with 13 taps and 54 points a frame has 42 results."""
    monkeypatch.setattr(spectral, "LEAST_FRAME", frame)
    monkeypatch.setitem(spectral.BLOCK, "cpu", budget)
    v, g = pair(2, 3, length, dtype=dtype)
    dr = pair(2, 3, length, dtype=dtype, seed=1)[0]
    found = results(causal_conv, (v, g[..., :taps]), dr)
    expected = results(causal_conv_direct, (v.double(), g[..., :taps].double()), dr.double())
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == dtype and a.shape == b.shape and relative_error(a, b) < 2 * TOLERANCE[dtype]


@pytest.mark.parametrize("length, taps", [(1, 1), (7, 7), (9, 1), (12, 3)])
def test_gradcheck_to_second_order(monkeypatch, length, taps):
    monkeypatch.setattr(spectral, "LEAST_FRAME", 4)
    v, g = pair(2, length)
    v, g = v.requires_grad_(), g[:, :taps].clone().requires_grad_()
    assert torch.autograd.gradcheck(causal_conv, (v, g), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(causal_conv, (v, g))


def test_a_short_gate_takes_no_longer_transform():
    """O(L log K): the points of a frame do not grow with the text, and the frames are as many as it needs."""
    for taps in (1, 512, 3000):
        points, frames = spectral.overlap_save(10**6, taps)
        assert points == spectral.fft_points(10**5, taps) <= max(2048, 4.2 * taps)
        assert len(frames) <= 10**6 / (points - taps) + 1 and frames[-1][2] == 10**6


def test_only_the_streams_are_saved_and_in_their_own_precision():
    v, g = (x.requires_grad_() for x in pair(2, 3, 50, dtype=torch.bfloat16))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        causal_conv_fft(v, g)
    assert len(saved) == 2 and all(t.dtype == torch.bfloat16 and t.shape == v.shape for t in saved)


def test_blocks_are_views_of_about_as_many_rows_as_the_table_says(monkeypatch):
    """4 times 20 rows, each padded to 20 points: a channel of all 4 at a time, three channels, all rows."""
    x = torch.randn(4, 20, 10)
    for size, count in ((32, 20), (240, 7), (None, 1)):
        monkeypatch.setitem(spectral.BLOCK, "cpu", size)
        parts = [part for (part,) in spectral.blocks(x, points=20)]
        assert len(parts) == count and all(part._base is x or part is x for part in parts)
    assert not [*spectral.blocks(torch.zeros(0, 3, 10), points=20)]
    empty = results(causal_conv_fft, (torch.zeros(0, 3, 7), torch.zeros(0, 3, 7)), torch.zeros(1))
    assert [x.shape for x in empty] == [(0, 3, 7)] * 3


@pytest.mark.parametrize("name", APART)
def test_registered_as_pytorch_asks_and_laid_out_as_the_content(name):
    """Leading dimensions that do not merge; the strides of a fake result are those of the real one."""
    v, g, dr = (APART[name]().double() for _ in range(3))
    torch.library.opcheck(torch.ops.caracal.causal_conv.default, (v, g))
    torch.library.opcheck(torch.ops.caracal.causal_conv_backward.default, (dr, v, g))
    found = results(causal_conv, (v, g), dr)
    expected = results(causal_conv_direct, [contiguous(x) for x in (v, g)], contiguous(dr))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
        assert a.stride() == torch.empty_like(v).stride()


@pytest.mark.compile
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles_as_one_graph_without_a_warning(backend, request, no_warning):
    if backend == "inductor":
        request.getfixturevalue("compiler")
    v, g = (APART["heads"]().double() for _ in range(2))
    torch._dynamo.reset()
    compiled = torch.compile(lambda v, g: causal_conv_fft(2 * v, g.sin()), fullgraph=True, backend=backend)
    found = results(compiled, (v, g), v)
    for a, b in zip(found, results(lambda v, g: causal_conv_direct(2 * v, g.sin()), (v, g), v), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_exported_as_one_operator():
    class Mix(torch.nn.Module):
        def forward(self, v, g):
            return causal_conv_fft(v, g)

    graph = torch.export.export(Mix(), pair(3, 8)).graph
    assert [n for n in graph.nodes if n.target is torch.ops.caracal.causal_conv.default]
    assert not [n for n in graph.nodes if "fft" in str(n.target) and "caracal" not in str(n.target)]


def loss(conv, g):
    """Nonlinear in v, which meets itself in both streams."""
    return lambda v: conv(v, g.sin() * v).square().sum()


def batched_backward(conv, v, g, dv):
    x = v.clone().requires_grad_()
    return torch.autograd.grad(conv(x, g), x, torch.stack([v, g, dv]), is_grads_batched=True)


TRANSFORMS = {
    "grad": lambda c, v, g, dv: func.grad(loss(c, g))(v),
    "vmap": lambda c, v, g, dv: func.vmap(lambda x: c(x, g))(torch.stack([v, g, dv])),
    "vmap over two dimensions": lambda c, v, g, dv: func.vmap(func.vmap(c, (None, 0)), (0, None))(
        torch.stack([v, dv]), torch.stack([g, v, dv])),
    "vmap along time": lambda c, v, g, dv: func.vmap(c, 1)(torch.stack([v, g]), torch.stack([dv, v])),
    "gradients by sample": lambda c, v, g, dv: func.vmap(func.grad(loss(c, g)))(torch.stack([v, g, dv])),
    "jacrev": lambda c, v, g, dv: func.jacrev(c, (0, 1))(v, g),
    "jacrev of jacrev": lambda c, v, g, dv: func.jacrev(func.jacrev(loss(c, g)))(v),
    "a batch of gradients": batched_backward,
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of the direct sum
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_torch_func_are_those_of_the_sum(name):
    v, g, dv = (x[0] for x in (*pair(1, 5), pair(1, 5, seed=1)[0]))
    found, expected = (TRANSFORMS[name](conv, v, g, dv) for conv in (causal_conv, causal_conv_direct))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_forward_mode_is_refused_and_does_not_return_zeros():
    v, g = pair(5)
    with pytest.raises(NotImplementedError, match="jvp"):
        func.jvp(causal_conv_fft, (v, g), (v, g))


def test_fast_length_is_the_smallest_smooth_number():
    def is_smooth(n):
        for p in (2, 3, 5):
            while n % p == 0:
                n //= p
        return n == 1

    for n in range(1, 2000):
        found = fast_length(n)
        assert found >= n and is_smooth(found) and not any(is_smooth(k) for k in range(n, found))


@pytest.mark.process
def test_importing_and_the_first_call_load_nothing_heavy():
    """Which takes seconds; `torch.library.custom_op` would import the compiler."""
    code = """
import sys, torch, caracal_min.data, caracal_min.training
from caracal_min.spectral import causal_conv
v = torch.ones(2, 3, requires_grad=True)
causal_conv(v, v).sum().backward()
heavy = {"torch._dynamo", "datasets", "lm_eval", "matplotlib", "onnx", "pyarrow", "transformers", "tyro"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
