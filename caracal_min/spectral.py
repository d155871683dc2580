"""The FFT route behind `causal_conv_fft`, as one operator with its own backward.

Left to autograd, the same five steps (pad, transform, multiply, invert, truncate) take several
times as long and keep complex spectra.  Four things make the difference:

- The gradients are causal convolutions run backwards in time, so v and g are all that is saved
  for backward, in the precision they came in: dv = flip(conv(flip(dr), g)), and likewise dg.
  Both share the spectrum of dr.
- On a CPU, rows are transformed in blocks whose spectra stay in the cache.
- Every transform runs along contiguous memory.  Casting, zero padding and a change of layout are
  one write.
- A gate of K < L numbers needs no transform as long as the text: time is cut into
  overlapping frames (overlap-save, Stockham 1966), which costs O(L log K).

To autograd and `torch.func` the operator is a `torch.autograd.Function` whose backward is made of
the same two functions, so it has derivatives of every order; to `torch.compile` and
`torch.export` it is one opaque operator, `caracal::causal_conv`.

Symbols::

    v, g    content and gate, real sequences of length L and K <= L (`gate_length`)
    r       their causal convolution, r_t = sum over j <= t of v_j g_{t-j}
    N       the number of FFT points
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["BLOCK", "KERNEL_LENGTH", "KERNEL_TESTED", "Frame", "blocks", "causal_conv",
           "fast_length", "fft_points", "overlap_save"]

# Numbers in one padded block of rows, by device type; None: all rows at once.  On two CPU cores
# 2^19 to 2^20 was fastest from L = 512 to 8192: smaller blocks wait for threads, larger ones
# do not fit the cache.
BLOCK: dict[str, int | None] = {"cpu": 1 << 20}

# The longest text, by device type, that `kernel` multiplies directly instead of by FFT.
# {"cuda": 1024} turns the kernel on.  It is off until a recorded training step is faster with it.
KERNEL_LENGTH: dict[str, int] = {}
KERNEL_TESTED = 8192  # the longest text that the kernel was tested with

# Fewest points of a frame: under a short gate, smaller frames would be too many.
LEAST_FRAME = 2048


def causal_conv(v: Tensor, g: Tensor) -> Tensor:
    """Convolve causally, r_t = sum over j <= t of v_j g_{t-j}, in at least float32.

    Args:
        v: content, `[..., L]`, floating-point.
        g: gate, `[..., K]`, K <= L, same leading shape and dtype; g_i counts as 0 from i = K on.

    Returns:
        r, `[..., L]`, same dtype, laid out in memory as v.  Differentiable to every order, and
        mapped by `torch.func.vmap`; forward-mode derivatives are not implemented.

    Source: Caracal, Section 3.2, Steps 3 and 4, with N >= L + K - 1 points.
    """
    return _CausalConv.apply(v, g)


def fast_length(minimum: int) -> int:
    """Return the smallest 2^a 3^b 5^c >= minimum, a length that every FFT library handles well.

    Example:
        >>> fast_length(1023), fast_length(1025)
        (1024, 1080)
    """
    best = 1 << (minimum - 1).bit_length()
    five = 1
    while five < best:
        odd = five
        while odd < best:
            # The smallest power of two that lifts this 3^b 5^c to the minimum.
            quotient = -(-minimum // odd)
            best = min(best, odd << (quotient - 1).bit_length())
            odd *= 3
        five *= 5
    return best


def fft_points(length: int, gate_length: int) -> int:
    """Return the FFT points N for a content of `length` and a gate of `gate_length` <= `length`."""
    # 4 K: a frame then repeats only a quarter of its inputs.
    frame = max(4 * gate_length, LEAST_FRAME)
    return fast_length(min(length + gate_length - 1, frame))


class Frame(NamedTuple):
    """A part of the text that is transformed at once, as positions of the text."""

    input_start: int
    output_start: int
    end: int  # of inputs and outputs


def overlap_save(length: int, gate_length: int) -> tuple[int, list[Frame]]:
    """Return N and the frames of the overlap-save method; a long gate has one frame.

    Each frame begins with the last gate_length - 1 inputs of the frame before.  Its product wraps
    around onto the results at these inputs, which are not read.
    """
    points = fft_points(length, gate_length)
    stride = points - gate_length + 1
    frames = []
    for output_start in range(0, length, stride):
        input_start = max(0, output_start - gate_length + 1)
        end = min(output_start + stride, length)
        frames.append(Frame(input_start, output_start, end))
    return points, frames


def blocks(*tensors: Tensor, points: int) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors `[..., *]` of one leading shape into blocks of rows, each a view to write into.

    Args:
        points: FFT points of a row; `BLOCK` divided by it is about the number of rows in a block.
    """
    leading_shape = tensors[0].shape[:-1]
    budget = BLOCK.get(tensors[0].device.type)
    # An empty batch has no rows, and no longest dimension to cut.
    if not leading_shape.numel():
        return
    if not leading_shape or budget is None:
        yield tensors
        return
    # Cutting a single dimension gives views whatever the strides are.  The longest one is cut,
    # because one index of it has the fewest rows.
    longest = max(leading_shape)
    dim = leading_shape.index(longest)
    points_per_index = points * leading_shape.numel() // longest
    step = max(1, budget // points_per_index)
    for first in range(0, longest, step):
        count = min(step, longest - first)
        yield tuple(x.narrow(dim, first, count) for x in tensors)


# The bodies of the two operators are plain functions, so that a profiler can run them and see each
# step.  Each spectrum is deleted right after its last use, so that the next one gets its memory,
# which is still in the cache.  On a CPU that saved a tenth of the time.  Conjugating spectra
# instead of flipping dr, dv and dg was no faster, and moves more bytes.


def convolve(v: Tensor, g: Tensor) -> Tensor:
    """Return r `[..., L]`, computed block by block and frame by frame."""
    r = torch.empty_like(v)
    length = v.shape[-1]
    points, frames = overlap_save(length, g.shape[-1])
    for v_rows, g_rows, r_rows in blocks(v, g, r, points=points):
        gate = _spectrum(g_rows, points)
        for frame in frames:
            inputs = v_rows[..., frame.input_start:frame.end]
            product = _spectrum(inputs, points).mul_(gate)
            if frame.end == length:  # the last frame
                del gate
            overlap = frame.output_start - frame.input_start
            outputs = r_rows[..., frame.output_start:frame.end]
            _invert_into(outputs, product, points, overlap)
            del product
    return r


def convolve_backward(dr: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Return dv `[..., L]` and dg `[..., K]`."""
    dv = torch.empty_like(v)
    dg = torch.empty_like(g)
    points, frames = overlap_save(v.shape[-1], g.shape[-1])
    for block in blocks(dr, v, g, dv, dg, points=points):
        _backward_block(*block, points, frames)
    return dv, dg


def _backward_block(dr, v, g, dv, dg, points, frames):
    length = v.shape[-1]
    gate_length = g.shape[-1]
    total = None
    # The gradient is a convolution backwards in time, so frames count from the end of the text.
    for frame in frames:
        start = length - frame.end
        outputs = slice(start, length - frame.output_start)
        inputs = dr[..., start:length - frame.input_start]
        spectrum = _spectrum(inputs.flip(-1), points)
        # Recomputing g's spectrum costs a transform per frame and saves one buffer.
        product = _spectrum(g, points).mul_(spectrum)
        overlap = frame.output_start - frame.input_start
        _invert_into(dv[..., outputs], product, points, overlap, flip=True)
        del product
        # Shift v so that every frame has the gradient of g_0 at its last point: then the
        # products add up, and one inverse serves all frames.
        shift = points - frame.end + frame.input_start
        spectrum.mul_(_spectrum(v[..., outputs], points, shift))
        if total is None:
            total = spectrum
        else:
            total.add_(spectrum)
        del spectrum
    _invert_into(dg, total, points, points - gate_length, flip=True)


def _spectrum(x, points, offset=0):
    """Return the half spectrum of x `[..., L]` with `offset` zeros before it and more after it."""
    end = offset + x.shape[-1]
    dtype = torch.promote_types(x.dtype, torch.float32)
    padded = x.new_empty(*x.shape[:-1], points, dtype=dtype)
    padded[..., :offset] = 0
    padded[..., offset:end] = x
    padded[..., end:] = 0
    return torch.fft.rfft(padded)


def _invert_into(out, spectrum, points, offset, flip=False):
    """Write to `out` what the inverse transform has from index `offset` on."""
    # In PyTorch's CUDA transforms the division by N is a pass of its own, over all N numbers.
    # norm="forward" leaves an inverse undivided, so only the numbers that are kept are divided.
    values = torch.fft.irfft(spectrum, n=points, norm="forward")
    end = offset + out.shape[-1]
    values = values[..., offset:end]
    if flip:
        values = values.flip(-1)
    torch.mul(values, 1 / points, out=out)


# `torch.library.custom_op` would do the same, but its first call imports the compiler, which takes
# seconds.  "default" stands for every device.
torch.library.define("caracal::causal_conv", "(Tensor v, Tensor g) -> Tensor")
torch.library.define(
    "caracal::causal_conv_backward",
    "(Tensor dr, Tensor v, Tensor g) -> (Tensor, Tensor)",
)
torch.library.impl("caracal::causal_conv", "default", convolve)
torch.library.impl("caracal::causal_conv_backward", "default", convolve_backward)
_causal_conv = torch.ops.caracal.causal_conv.default
_causal_conv_backward = torch.ops.caracal.causal_conv_backward.default


@torch.library.register_fake("caracal::causal_conv")
def _(v, g):
    return torch.empty_like(v)


@torch.library.register_fake("caracal::causal_conv_backward")
def _(dr, v, g):
    return torch.empty_like(v), torch.empty_like(g)


def _operators(v, g):
    """Return the two functions for a pair of streams: convolution and backward."""
    # The kernel takes neither a cut gate nor float64.
    length = v.shape[-1]
    is_cut = g.shape[-1] < length
    is_short = length <= KERNEL_LENGTH.get(v.device.type, 0)
    if is_short and not is_cut and v.dtype != torch.float64:
        # Imported where it is used, because Triton is not on every machine.
        from . import kernel
        return kernel.convolve, kernel.convolve_backward
    return _causal_conv, _causal_conv_backward


class _SavesInputs(torch.autograd.Function):
    """Save the inputs for backward; under vmap, make the mapped dimension a leading one."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @classmethod
    def vmap(cls, info, in_dims, *inputs):
        batched = []
        for x, dim in zip(inputs, in_dims, strict=True):
            if dim is None:  # not mapped: every element of the batch sees the same tensor
                x = x.expand(info.batch_size, *x.shape)
                dim = 0
            batched.append(x.movedim(dim, 0))
        return cls.apply(*batched), 0


class _CausalConv(_SavesInputs):
    """r from v and g."""

    @staticmethod
    def forward(v, g):
        convolve, _ = _operators(v, g)
        return convolve(v, g)

    @staticmethod
    def backward(ctx, dr):
        return _CausalConvBackward.apply(dr, *ctx.saved_tensors)


class _CausalConvBackward(_SavesInputs):
    """dv and dg from dr, v and g."""

    @staticmethod
    def forward(dr, v, g):
        _, backward = _operators(v, g)
        return backward(dr, v, g)

    # <ddv, dv> + <ddg, dg> = <dr, ddv * g + v * ddg>: convolutions in dr; in (v, g) the backward
    # pass of (ddv, ddg).
    @staticmethod
    def backward(ctx, ddv, ddg):
        dr, v, g = ctx.saved_tensors
        d_dr = _CausalConv.apply(ddv, g) + _CausalConv.apply(v, ddg)
        return d_dr, *_CausalConvBackward.apply(dr, ddv, ddg)
