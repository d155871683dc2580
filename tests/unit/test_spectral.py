"""The operator: its derivatives to second order, what it keeps, how it behaves under PyTorch's compilers."""

import warnings
from unittest import mock

import pytest
import torch
from torch import func
from torch.autograd import forward_ad, functional
from torch.utils._pytree import tree_leaves

from caracal_min import frames, spectral
from caracal_min.benchmark.measure import peak_memory
from caracal_min.convolution import causal_conv_direct, causal_conv_fft
from caracal_min.spectral import causal_conv, causal_conv_backward, fast_length


def pair(*shape, dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(2, *shape, generator=draw, dtype=torch.float64).to(dtype).unbind(0)


def relative_error(found, expected):
    return ((found.double() - expected).square().mean() / expected.square().mean()).sqrt().item()


# The backward pass rounds its result to the dtype once, as the forward does; float32 also rounds inside the FFT.
TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(1,), (2, 3, 1), (2, 3, 97), (5, 100), (2, 1, 3, 64), (513,)])
def test_gradients_equal_those_of_the_sum(dtype, shape):
    v, g = (x.requires_grad_() for x in pair(*shape, dtype=dtype))
    dr = pair(*shape, dtype=dtype, seed=1)[0]
    found = torch.autograd.grad(causal_conv(v, g), (v, g), dr)
    exact = [x.detach().double().requires_grad_() for x in (v, g)]
    expected = torch.autograd.grad(causal_conv_direct(*exact), exact, dr.double())
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == dtype and relative_error(a, b) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("budget", [1, 200, 10**6])
@pytest.mark.parametrize("points, length, taps", [
    (8, 40, 1), (8, 40, 2), (8, 41, 5), (8, 7, 6), (8, 2, 1), (16, 100, 4), (16, 101, 13), (16, 41, 13), (16, 42, 13),
    (16, 43, 13), (16, 13, 13), (2048, 97, 40), (2048, 3000, 7)])
def test_a_shorter_gate_frame_by_frame(monkeypatch, points, length, taps, budget, dtype):
    """Frames of few points and of many; with 13 taps and 54 points a frame has 42 results: fewer, as many, one more."""
    monkeypatch.setattr(frames, "_LEAST_FRAME", points)
    monkeypatch.setitem(spectral.BLOCK, "cpu", budget)
    v, g = pair(2, 3, length, dtype=dtype)
    v, g = v.requires_grad_(), g[..., :taps].clone().requires_grad_()
    dr = pair(2, 3, length, dtype=dtype, seed=1)[0]
    exact = [x.detach().double().requires_grad_() for x in (v, g)]
    r, expected = causal_conv(v, g), causal_conv_direct(exact[0], exact[1])
    found = [r, *torch.autograd.grad(r, (v, g), dr)]
    for a, b in zip(found, [expected, *torch.autograd.grad(expected, exact, dr.double())], strict=True):
        assert a.dtype == dtype and a.shape == b.shape and relative_error(a, b) < 2 * TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("length, taps", [(97, 97), (5000, 7)])
def test_what_is_kept_is_divided_where_the_transform_does_not_do_it(monkeypatch, dtype, length, taps):
    """As on CUDA: an inverse without its division by N, and results in views that are not contiguous."""
    v, g, dr = (torch.randn(3, 2, length, dtype=torch.float64).to(dtype).transpose(0, 1) for _ in range(3))
    g, whole = g[..., :taps], torch.fft.irfft
    expected = [causal_conv(v, g), *causal_conv_backward(dr, v, g)]
    norms = []
    monkeypatch.setattr(spectral, "_divides_later", lambda x: True)
    monkeypatch.setattr(torch.fft, "irfft", lambda x, n, norm: norms.append(norm) or whole(x, n=n, norm=norm))
    for a, b in zip([causal_conv(v, g), *causal_conv_backward(dr, v, g)], expected, strict=True):
        assert a.dtype == dtype and a.stride() == b.stride() and relative_error(a, b.double()) < TOLERANCE[dtype]
    assert len(norms) >= 3 and {*norms} == {"forward"}


def test_a_shorter_gate_takes_no_longer_transform():
    """O(L log K): the points of a frame do not grow with the text, and the frames are as many as it needs."""
    for taps in (1, 512, 3000):
        points = [spectral.fft_points(length, taps) for length in (10**5, 10**6)]
        assert points[0] == points[1] <= max(2048, 4.2 * taps)
        cut = frames.overlapping(10**6, taps)[1]
        assert len(cut) <= 10**6 / (points[0] - taps) + 1 and cut[-1][2] == 10**6
        assert all(end == start for (_, _, end), (_, start, _) in zip(cut, cut[1:], strict=False))


@pytest.mark.parametrize("length, taps", [(7, 2), (9, 1), (12, 3), (6, 5)])
def test_gradcheck_of_a_shorter_gate_in_every_way(monkeypatch, length, taps):
    monkeypatch.setattr(frames, "_LEAST_FRAME", 4)
    v, g = pair(2, length)
    v, g = v.requires_grad_(), g[:, :taps].clone().requires_grad_()
    assert torch.autograd.gradcheck(causal_conv_fft, (v, g), check_forward_ad=True, check_batched_grad=True,
                                    check_batched_forward_grad=True)
    assert torch.autograd.gradgradcheck(causal_conv_fft, (v, g), check_fwd_over_rev=True)
    torch.library.opcheck(torch.ops.caracal.causal_conv.default, (v, g))
    torch.library.opcheck(torch.ops.caracal.causal_conv_backward.default, (v.detach().requires_grad_(), v, g))


@pytest.mark.parametrize("length", [1, 2, 7, 12])
def test_gradcheck_to_second_order(length):
    v, g = (x.requires_grad_() for x in pair(2, length))
    assert torch.autograd.gradcheck(causal_conv, (v, g))
    assert torch.autograd.gradgradcheck(causal_conv, (v, g))


def test_third_derivative_is_zero_and_mixed_second_is_not():
    """r is bilinear: differentiated once in v and once in g it is constant."""
    v, g = (x.requires_grad_() for x in pair(6))
    (dv,) = torch.autograd.grad(causal_conv(v, g).sum(), v, create_graph=True)
    (mixed,) = torch.autograd.grad(dv.square().sum(), g, create_graph=True)
    assert mixed.abs().max() > 0.1
    (again,) = torch.autograd.grad(mixed.sum(), v, allow_unused=True)
    assert again is None or again.abs().max() == 0


def test_only_the_streams_are_kept_and_in_their_own_precision():
    v, g = (x.requires_grad_() for x in pair(2, 3, 50, dtype=torch.bfloat16))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        causal_conv_fft(v, g)
    assert len(kept) == 2 and all(t.dtype == torch.bfloat16 and t.shape == v.shape for t in kept)


@pytest.mark.parametrize("budget", [1, 40, 300, 10_000])
def test_blocks_of_any_size_give_the_same(monkeypatch, budget):
    """Blocks of one row, of some channels, of several batch entries, of everything; also from strided streams."""
    v, g = pair(4, 20, 6)
    monkeypatch.setitem(spectral.BLOCK, "cpu", budget)
    expected = causal_conv_direct(v, g)
    assert torch.allclose(causal_conv(v, g), expected, atol=1e-13)
    strided = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in (v, g)]
    found = causal_conv(*strided)
    assert torch.allclose(found, expected, atol=1e-13) and found.stride() == strided[0].stride()
    dv, dg = causal_conv_backward(expected, *strided)
    assert torch.allclose(dv, causal_conv_direct(expected.flip(-1), g).flip(-1), atol=1e-12)
    assert torch.allclose(dg, causal_conv_direct(expected.flip(-1), v).flip(-1), atol=1e-12)


def test_no_more_than_three_blocks_are_held_beside_the_results():
    """Two spectra and what the third is made from; nothing of the block before."""
    v, g, dr = torch.randn(3, 8, 64, 512)  # 1 MiB each
    with mock.patch.dict(spectral.BLOCK, cpu=1 << 18):  # of 1 MiB
        assert peak_memory(lambda: spectral.forward_steps(v, g)) < 1 + 3.1
        assert peak_memory(lambda: spectral.backward_steps(dr, v, g)) < 2 + 3.1


@pytest.mark.parametrize("size, expected", [(32, 80), (64, 28), (None, 1)])
def test_blocks_are_as_large_as_their_table_says(size, expected):
    """4 times 20 rows of 10 numbers, each padded to 20: a row at a time, three, or all."""
    with mock.patch.dict(spectral.BLOCK, cpu=size):
        assert len(list(spectral.blocks(torch.randn(4, 20, 10), points=20))) == expected


@pytest.mark.parametrize("strided", [False, True])
def test_operators_are_registered_as_pytorch_asks(strided):
    v, g = (x.requires_grad_() for x in pair(2, 3, 8))
    if strided:
        v, g = (x.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_() for x in (v, g))
    torch.library.opcheck(torch.ops.caracal.causal_conv.default, (v, g))
    torch.library.opcheck(torch.ops.caracal.causal_conv_backward.default, (v.detach().requires_grad_(), v, g))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles_as_one_graph_without_a_warning(backend, request, no_warning):
    if backend == "inductor":
        request.getfixturevalue("compiler")
    v, g = (x.requires_grad_() for x in pair(3, 33, dtype=torch.float32))

    def loss(v, g):
        return causal_conv_fft(2 * v, g.sin()).square().sum()

    torch._dynamo.reset()
    expected = torch.autograd.grad(loss(v, g), (v, g))
    found = torch.autograd.grad(torch.compile(loss, fullgraph=True, backend=backend)(v, g), (v, g))
    for a, b in zip(found, expected, strict=True):
        assert relative_error(a, b.double()) < 1e-6


def test_fast_length_is_the_smallest_smooth_number():
    def is_smooth(n):
        for p in (2, 3, 5):
            while n % p == 0:
                n //= p
        return n == 1

    for n in range(1, 2000):
        found = fast_length(n)
        assert found >= n and is_smooth(found) and not any(is_smooth(k) for k in range(n, found))


def loss(conv, g):
    """Nonlinear in v, which meets itself in both streams."""
    return lambda v: conv(v, g.sin() * v).square().sum()


def dual(conv, v, g, dv):
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(conv(forward_ad.make_dual(v, dv), g)))


def dual_over_backward(conv, v, g, dv):
    with forward_ad.dual_level():
        x = forward_ad.make_dual(v.clone().requires_grad_(), dv)
        return torch.autograd.grad(forward_ad.unpack_dual(conv(x, x * g)).tangent.sum(), x)


def dual_gradient(conv, v, g, dv):
    """The graph is older than the level: only the gradient that comes back has a tangent."""
    x = v.clone().requires_grad_()
    r = conv(x, g)
    with forward_ad.dual_level():
        (back,) = torch.autograd.grad(r, x, forward_ad.make_dual(dv, g))
        return tuple(forward_ad.unpack_dual(back))


def batched_backward(conv, v, g, dv):
    x = v.clone().requires_grad_()
    return torch.autograd.grad(conv(x, g), x, torch.stack([v, g, dv]), is_grads_batched=True)


TRANSFORMS = {
    "jvp": lambda c, v, g, dv: func.jvp(c, (v, g), (dv, v)),
    "jvp of the content alone": lambda c, v, g, dv: func.jvp(lambda x: c(x, g), (v,), (dv,)),
    "linearize": lambda c, v, g, dv: func.linearize(loss(c, g), v)[1](dv),
    "grad": lambda c, v, g, dv: func.grad(loss(c, g))(v),
    "vmap": lambda c, v, g, dv: func.vmap(lambda x: c(x, g))(torch.stack([v, g, dv])),
    "vmap over two dimensions": lambda c, v, g, dv: func.vmap(func.vmap(c, (None, 0)), (0, None))(
        torch.stack([v, dv]), torch.stack([g, v, dv])),
    "vmap along time": lambda c, v, g, dv: func.vmap(c, 1)(torch.stack([v, g]), torch.stack([dv, v])),
    "jacrev": lambda c, v, g, dv: func.jacrev(c, (0, 1))(v, g),
    "jacfwd": lambda c, v, g, dv: func.jacfwd(c, (0, 1))(v, g),
    "hessian": lambda c, v, g, dv: func.hessian(loss(c, g))(v),
    "jacrev of jacfwd": lambda c, v, g, dv: func.jacrev(func.jacfwd(loss(c, g)))(v),
    "jacrev of jacrev": lambda c, v, g, dv: func.jacrev(func.jacrev(loss(c, g)))(v),
    "third derivative": lambda c, v, g, dv: func.jacfwd(func.hessian(loss(c, g)))(v),
    "gradients by sample": lambda c, v, g, dv: func.vmap(func.grad(loss(c, g)))(torch.stack([v, g, dv])),
    "dual numbers": dual,
    "dual numbers over the backward": dual_over_backward,
    "dual numbers in the gradient": dual_gradient,
    "a batch of gradients": batched_backward,
    "vectorised jacobian": lambda c, v, g, dv: functional.jacobian(c, (v, g), vectorize=True),
    "vectorised jacobian, forwards": lambda c, v, g, dv: functional.jacobian(
        c, (v, g), vectorize=True, strategy="forward-mode"),
}
# Within torch.compile PyTorch cannot trace these; what it says then is its own.
NOT_TRACED = ("dual", "a batch", "vectorised")


def largest_difference(found, expected):
    found, expected = tree_leaves(found), tree_leaves(expected)
    assert len(found) == len(expected) and max(x.abs().max() for x in expected) > 0.1
    return max((a - b).abs().max().item() for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("conv", [causal_conv, causal_conv_fft])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_derivative_of_torch_func_and_of_forward_mode_is_that_of_the_sum(name, conv):
    v, g, dv = (x[0] for x in (*pair(1, 5), pair(1, 5, seed=1)[0]))
    expected = TRANSFORMS[name](causal_conv_direct, v, g, dv)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "There is a performance drop")  # a fallback that loops over the batch
        assert largest_difference(TRANSFORMS[name](conv, v, g, dv), expected) < 1e-12


@pytest.mark.parametrize("name", [name for name in TRANSFORMS if not name.startswith(NOT_TRACED)])
def test_compiled_transforms_and_transforms_of_what_is_compiled(name):
    v, g, dv = (x[0] for x in (*pair(1, 5), pair(1, 5, seed=1)[0]))
    expected = TRANSFORMS[name](causal_conv_direct, v, g, dv)
    torch.compiler.reset()
    inside = torch.compile(lambda *given: TRANSFORMS[name](causal_conv_fft, *given), backend="aot_eager")
    assert largest_difference(inside(v, g, dv), expected) < 1e-12
    torch.compiler.reset()
    compiled = torch.compile(causal_conv_fft, backend="aot_eager")
    compiled(v, g)  # the kernels of an ordinary call are not taken for a transformed one
    if name != "linearize":  # refused by PyTorch
        assert largest_difference(TRANSFORMS[name](compiled, v, g, dv), expected) < 1e-12


def test_gradcheck_forwards_and_in_batches():
    v, g = (x.requires_grad_() for x in pair(2, 5))
    assert torch.autograd.gradcheck(causal_conv_fft, (v, g), check_forward_ad=True, check_batched_grad=True,
                                    check_batched_forward_grad=True)
    assert torch.autograd.gradgradcheck(causal_conv_fft, (v, g), check_fwd_over_rev=True)


def test_the_bare_operator_refuses_forward_mode_and_does_not_return_zeros():
    v, g = pair(5)
    for call in (lambda: func.jvp(torch.ops.caracal.causal_conv, (v, g), (v, g)),
                 lambda: dual(torch.ops.caracal.causal_conv, v, g, g),
                 lambda: dual(lambda v, g: torch.ops.caracal.causal_conv_backward(v, v, g)[0], v, g, g)):
        with pytest.raises(RuntimeError, match="would return zeros; call .*causal_conv_fft") as caught:
            call()
        assert "\n" not in str(caught.value)
