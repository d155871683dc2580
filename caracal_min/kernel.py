"""The causal convolution of short texts as a matrix product on tensor cores, in Triton.

Cut a row of L numbers into pieces of S and write t = S i + s.  With w = s - lag, the convolution
of x and y is one product of matrices::

    r[i, s] = sum over w of  X[i, w] Y[w, s],    X[i, w] = x[S i + w],    Y[w, s] = y[s - w]

X is the row itself: a tile of it is read as it lies in memory.  Only Y, a piece of the Toeplitz
matrix of y, is gathered number by number.  Neither matrix is written to memory.  That is O(L^2)
work, at the rate at which a GPU multiplies matrices.

The two gradients are convolutions with the same reversed dr, dv = flip(conv(g, flip(dr))) and
dg = flip(conv(v, flip(dr))), so one launch gathers its Toeplitz matrix once and multiplies both.

It is exactly causal: a later input enters an output only as a term that is multiplied by zero.
Products of float16 and bfloat16 are summed in float32; float32 is not rounded to TF32.

`spectral.KERNEL_LENGTH` turns the kernel on, for gates as long as the text.  It was tested up to
`spectral.KERNEL_TESTED` tokens.  No GPU has timed it yet.  Not in the paper.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

__all__ = ["convolve", "convolve_backward"]

STEP = 64  # values of w that are multiplied at once


@triton_op("caracal::direct_conv", mutates_args=())
def convolve(v: Tensor, g: Tensor) -> Tensor:
    """Return r of v and g.

    Args:
        v, g: `[..., L]` of one shape and dtype (float16, bfloat16 or float32), on a GPU.

    Returns:
        r, `[..., L]`, same dtype.
    """
    return _launch([v], g, reverse=False)[0]


@triton_op("caracal::direct_conv_backward", mutates_args=())
def convolve_backward(dr: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Return dv and dg, `[..., L]` each, for the gradient dr of the result of `convolve`."""
    dv, dg = _launch([g, v], dr, reverse=True)
    return dv, dg


def _launch(xs, y, reverse):
    """Convolve y with one or two x; with `reverse`, y and the results run back in time."""
    length = y.shape[-1]
    # In a model all streams [B, D, L] lie in memory as [D, B, L]: taken in that order, nothing
    # is copied.  Swapping dimension 0 with itself leaves other layouts as they are.
    swap = int(y.ndim == 3 and xs[0].stride(0) < xs[0].stride(1))
    xs = [x.transpose(0, swap).contiguous() for x in xs]
    zs = [torch.empty_like(x) for x in xs]
    # These tiles need the fewest instructions in what Triton compiles for an H100.  A program takes
    # at most 64 pieces, and a warp about 1,024 results, so that the sums stay in registers.
    side = 64
    if length <= 512:
        side = 16
    elif length <= 2048:
        side = 32
    pieces = triton.cdiv(length, side)
    rows = triton.next_power_of_2(pieces)
    rows = min(64, max(16, rows))
    warps = max(1, rows * side // 1024)
    # Zeros around y cost a copy, and save the inner loop half of its instructions: the masks.
    margin = side + STEP
    width = margin + side * pieces + STEP
    y = y.transpose(0, swap)
    padded = y.new_zeros(*y.shape[:-1], width)
    end = margin + length
    padded[..., margin:end] = y
    # One program for each group of pieces of each row.
    grid = y.numel() // length, triton.cdiv(pieces, rows)
    # With one x, the second of everything is the first, and is not used.
    wrap_triton(_toeplitz_kernel)[grid](
        xs[0],
        xs[-1],
        padded,
        zs[0],
        zs[-1],
        length,
        pieces,
        width,
        REVERSE=reverse,
        WIDEN=INTERPRETED,
        SIDE=side,
        STEP=STEP,
        ROWS=rows,
        num_warps=warps,
    )
    return [z.transpose(0, swap) for z in zs]


@triton.jit
def _toeplitz_kernel(
    x0,  # first dense operand
    x1,  # second dense operand, for the second gradient
    y,  # Toeplitz operand, among zeros
    z0,  # results
    z1,
    length,
    pieces,
    y_length,
    REVERSE: tl.constexpr,
    WIDEN: tl.constexpr,
    SIDE: tl.constexpr,
    STEP: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Multiply ROWS pieces of one row of each x by the Toeplitz matrix of that row of y."""
    way = -1 if REVERSE else 1
    begin = length - 1 if REVERSE else 0
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * ROWS
    start = SIDE * (first + tl.arange(0, ROWS)[:, None])
    s = tl.arange(0, SIDE)
    # The largest w, from S - STEP to S - 1.  From there the loop goes down by STEP.
    w = SIDE - STEP + tl.arange(0, STEP)
    time = start + w
    lag = s - w[:, None]
    y += row * y_length + SIDE + STEP + begin + way * lag
    x0 += row * length
    x1 += row * length
    operand = tl.float32 if WIDEN else y.dtype.element_ty  # the interpreter lacks bfloat16
    sums0 = tl.zeros((ROWS, SIDE), tl.float32)
    sums1 = sums0
    # Larger lags reach before the beginning of the row, even from the last piece.
    for down in range(0, SIDE * min(first + ROWS, pieces), STEP):
        toeplitz = tl.load(y + way * down).to(operand)
        at = time - down
        inside = (at >= 0) & (at < length)
        dense = tl.load(x0 + at, inside, 0).to(operand)
        sums0 = tl.dot(dense, toeplitz, sums0, input_precision="ieee")
        if REVERSE:  # the second gradient
            dense = tl.load(x1 + at, inside, 0).to(operand)
            sums1 = tl.dot(dense, toeplitz, sums1, input_precision="ieee")
    t = start + s
    at = row * length + begin + way * t
    tl.store(z0 + at, sums0.to(z0.dtype.element_ty), t < length)
    if REVERSE:
        tl.store(z1 + at, sums1.to(z1.dtype.element_ty), t < length)


# With TRITON_INTERPRET=1 the kernel runs on a CPU, for tests.
INTERPRETED = not isinstance(_toeplitz_kernel, triton.JITFunction)
