"""The operator behind `causal_conv_fft`: one node for autograd, for `torch.compile` and for `torch.export`.

Three things make it several times faster than the same five steps left to autograd, and lighter:

- Its own backward.  The derivative of a causal convolution is a causal convolution run backwards in time:
  `dv = flip(conv(flip(dr), g))` and `dg = flip(conv(flip(dr), v))`.  So v and g are all that is kept, in the precision
  they came in, and no complex spectra.
- Blocks of rows.  On a CPU the rows are transformed in blocks whose spectra stay in the cache.
- Time last.  Every transform runs along contiguous memory.  Casting, padding with zeros and the change of layout, if
  the input needs one, are a single write.

A gate of K coefficients, K < L, needs no transform as long as the text, which is cut into `frames`.

The backward of the backward is written with the operator again: it is its own derivative to every order.

PyTorch lets an operator of one's own have a backward, but neither a forward-mode derivative nor a place among the
transforms of `torch.func` (2.6 to 2.13).  There the same five steps are left to PyTorch, which differentiates and
batches them in every way: slower, and right.  The bare operator refuses forward mode, which would give zeros.

Padding with zeros or the right angle?  The same number of points, and on a CPU the padded route took 1.1 to 1.3 times
less at lengths from 512 to 8192 (`benchmark` prints the ratio); it also takes any length.  Or no transform at all:
`DIRECT["cuda"] = 2048` has texts of at most so many tokens multiplied by their Toeplitz matrices on a GPU
(`direct_kernel`).  On an H100 it took 1.5 times less at 512 tokens, 1.3 times less at 1,024, and more at 2,048.  No
model has been trained with it yet, so the default is the padded FFT.

Symbols: v, g the streams, r their causal convolution, L the length, K that of the gate, N the number of FFT points.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .extras import missing
from .frames import Frames, fast_length, fft_points, overlapping

__all__ = ["BLOCK", "DIRECT", "MOST_DIRECT", "backward_steps", "blocks", "causal_conv", "causal_conv_backward",
           "fast_length", "fft_points", "forward_steps", "kernel_fault", "transformed", "written_out"]

# Numbers in one padded block of rows, by kind of device; a device that is not named takes all rows at once.  On two
# CPU cores 2^19 to 2^20 was fastest at every length from 512 to 8192: smaller blocks wait for threads, larger ones
# leave the cache and page in fresh memory.
BLOCK: dict[str, int | None] = {"cpu": 1 << 20}

# The longest text, by kind of device, that `direct_kernel` multiplies, and no FFT transforms; float64 is transformed.
# {"cuda": 1024} chooses the kernel on a GPU.  No device is named until a model has been trained with it there.
DIRECT: dict[str, int] = {}
MOST_DIRECT = 2048  # it takes no longer ones: O(L^2) work, and a row's result has to fit beside a processor


def causal_conv(v: Tensor, g: Tensor) -> Tensor:
    """Convolve causally, r_t = sum over j <= t of v_j g_{t-j}, with FFTs in at least float32.

    Args:
        v: content, `[..., L]`, L >= 1.
        g: gate, `[..., K]`, 1 <= K <= L; the same leading shape and floating dtype.  g_i counts as 0 from i = K on.

    Returns:
        r, `[..., L]`, same dtype, laid out in memory as v.  It can be differentiated to every order, backward and
        forward, and mapped by `torch.vmap`.

    Source: Caracal, Section 3.2, Steps 3 and 4, with N >= 2L - 1 points; overlap-save (Stockham 1966) where K < L.
    """
    return written_out(v, g, fast_length(v.shape[-1] + g.shape[-1] - 1)) if transformed() else _causal_conv(v, g)


def causal_conv_backward(dr: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients dv `[..., L]` and dg `[..., K]` of `causal_conv` for the gradient dr of its result."""
    if transformed():
        dr = dr.flip(-1)
        return causal_conv(dr, g).flip(-1), causal_conv(dr, v).flip(-1)[..., :g.shape[-1]]
    return _causal_conv_backward(dr, v, g)


def written_out(v: Tensor, g: Tensor, points: int) -> Tensor:
    """Compute `causal_conv` in PyTorch's own operators, with a number of FFT points that is at least L + K - 1."""
    if not v.numel():  # an empty batch, which the FFT libraries refuse
        return v * g
    arithmetic = torch.promote_types(v.dtype, torch.float32)
    spectrum = torch.fft.rfft(v.to(arithmetic), n=points) * torch.fft.rfft(g.to(arithmetic), n=points)
    return torch.fft.irfft(spectrum, n=points)[..., :v.shape[-1]].to(v.dtype)


def transformed() -> bool:
    """Whether a transform of torch.func, or forward-mode differentiation, is in force."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def forward_steps(v: Tensor, g: Tensor) -> Tensor:
    """Run the FFT route of the operator `causal_conv`, undecorated, so that a profiler sees each of its steps."""
    _require_no_tangents()
    r = torch.empty_like(v)
    points, frames = overlapping(v.shape[-1], g.shape[-1])
    for block in blocks(v, g, r, points=points):
        _forward_block(*block, points, frames)
    return r


def backward_steps(dr: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Run the FFT route of the operator `causal_conv_backward`, undecorated as `forward_steps`."""
    _require_no_tangents()
    dv, dg, length = torch.empty_like(v), torch.empty_like(g), v.shape[-1]
    points, frames = overlapping(length, g.shape[-1])
    for block in blocks(dr, v, g, dv, dg, points=points):
        _backward_block(*block, points, frames)
    return dv, dg


# A spectrum is let go as soon as it has been used: the next one then takes its memory, which is still in the cache.  On
# a CPU that took about a tenth from the time of both.  To conjugate spectra instead of flipping dr, dv and dg took no
# less time there, and moves more bytes, because a spectrum is twice as long as what is flipped.


def _forward_block(v: Tensor, g: Tensor, r: Tensor, points: int, frames: Frames) -> None:
    gate = _spectrum(g, points)
    for first, start, end in frames:
        product = _spectrum(v[..., first:end], points).mul_(gate)
        if end == v.shape[-1]:
            del gate
        product = _inverse(product, points)
        _write(product[..., start - first:end - first], points, r[..., start:end])


def _backward_block(dr: Tensor, v: Tensor, g: Tensor, dv: Tensor, dg: Tensor, points: int, frames: Frames) -> None:
    length, of_gate = v.shape[-1], None
    for first, start, end in frames:  # counted from the end of the text
        own = slice(length - end, length - start)
        spectrum = _spectrum(dr[..., length - end:length - first].flip(-1), points)
        product = _inverse(_spectrum(g, points).mul_(spectrum), points)
        _write(product[..., start - first:end - first].flip(-1), points, dv[..., own])
        del product
        # Shifted to where every frame has the gradient of g_0 in its last place.
        spectrum.mul_(_spectrum(v[..., own], points, points - end + first))
        of_gate = spectrum if of_gate is None else of_gate.add_(spectrum)
        del spectrum
    of_gate = _inverse(of_gate, points)
    _write(of_gate[..., points - g.shape[-1]:].flip(-1), points, dg)


def _forward(v: Tensor, g: Tensor) -> Tensor:
    return _kernel().convolve(v, g) if _is_direct(v) else forward_steps(v, g)


def _backward(dr: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    return _kernel().convolve_backward(dr, v, g) if _is_direct(v) else backward_steps(dr, v, g)


_causal_conv = torch.library.custom_op("caracal::causal_conv", mutates_args=())(_forward)
_causal_conv_backward = torch.library.custom_op("caracal::causal_conv_backward", mutates_args=())(_backward)


def _is_direct(v: Tensor) -> bool:
    return v.shape[-1] <= min(DIRECT.get(v.device.type, 0), MOST_DIRECT) and v.dtype != torch.float64


def _kernel() -> ModuleType:
    _require_no_tangents()
    try:
        from . import direct_kernel
    except ImportError:
        raise missing("the direct kernel (spectral.DIRECT)", "triton") from None
    return direct_kernel


def kernel_fault(device_type: str) -> str | None:
    """Return why `direct_kernel` cannot run on a kind of device, in words, or None where it can."""
    if device_type != "cuda":
        return f"it needs a CUDA device, and this is {device_type}"
    return None if find_spec("triton") else "it needs triton"


def _require_no_tangents() -> None:
    if forward_ad._current_level >= 0:
        raise RuntimeError("the operator caracal::causal_conv has no forward-mode derivative and would return zeros; "
                           "call caracal_min.convolution.causal_conv_fft, which has one")


def _spectrum(x: Tensor, points: int, at: int = 0) -> Tensor:
    """Return the half spectrum of `x` `[..., L]`, cast and put among zeros, from place `at` on, in one write."""
    padded = torch.empty((*x.shape[:-1], points), dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
    padded[..., :at] = 0
    padded[..., at:at + x.shape[-1]] = x
    padded[..., at + x.shape[-1]:] = 0
    return torch.fft.rfft(padded)


def _inverse(spectrum: Tensor, points: int) -> Tensor:
    """Transform half spectra back; they are N times too large where `_write` divides."""
    return torch.fft.irfft(spectrum, n=points, norm="forward" if _divides_later(spectrum) else "backward")


def _write(values: Tensor, points: int, into: Tensor) -> None:
    """Write some results of `_inverse` into a view, cast."""
    if _divides_later(values):
        torch.mul(values, 1 / points, out=into)
    else:
        into.copy_(values)


def _divides_later(x: Tensor) -> bool:
    """Whether the few numbers that are kept of an inverse transform are divided by N when they are written.

    On a CPU the transform does it on its way.  In PyTorch's for CUDA that is a pass of its own over all N.
    """
    return x.device.type != "cpu"


def blocks(*tensors: Tensor, points: int) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors `[..., *]` into blocks of rows, as views, whatever their strides: a block can be written into.

    Args:
        tensors: of one leading shape; of the first, a row is transformed with so many `points`.
    """
    rows, budget = tensors[0].shape[:-1], BLOCK.get(tensors[0].device.type)
    most = rows.numel() if budget is None else max(1, budget // points)
    if rows.numel() <= most:
        if tensors[0].numel():
            yield tensors
    elif (together := most // rows[1:].numel()):
        for i in range(0, rows[0], together):
            yield tuple(x[i:i + together] for x in tensors)
    else:
        for i in range(rows[0]):
            yield from blocks(*(x[i] for x in tensors), points=points)


@_causal_conv.register_fake
def _(v, g):
    _require_no_tangents()
    return torch.empty_like(v)


@_causal_conv_backward.register_fake
def _(dr, v, g):
    _require_no_tangents()
    return torch.empty_like(v), torch.empty_like(g)


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _causal_conv_gradient(ctx, dr):
    return causal_conv_backward(dr, *ctx.saved_tensors)


def _backward_gradient(ctx, ddv, ddg):
    dr, v, g = ctx.saved_tensors
    d_v, d_g = causal_conv_backward(dr, ddv, ddg)
    return causal_conv(ddv, g) + causal_conv(v, ddg), d_v, d_g


_causal_conv.register_autograd(_causal_conv_gradient, setup_context=_keep)
_causal_conv_backward.register_autograd(_backward_gradient, setup_context=_keep)
