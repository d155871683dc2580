"""The causal convolution of short texts as the matrix product that it is, in Triton: no spectra and no padding.

Write t = S i + s, S being 32.  One row's result, as a matrix `[S, L / S]`, is one product::

    r[s, i] = sum over u of A[s, u] B[u, i],    A[s, u] = g[s + u],    B[u, i] = v[S i - u],    -S < u < K

where v and g are 0 outside their ranges.  A is a piece of the Toeplitz matrix of g.  Neither matrix is ever written
down: each program, one per row, gathers its entries where a tensor core takes them.  That is O(L K) work; nothing but
v and g is read from memory, and nothing but r written.

Both gradients are the same kernel with time reversed (`spectral`): dr is read from its end and multiplied by g or by v.

No output depends on a later input, not even by rounding: those entries are multiplied by zeros.  But zero times NaN or
infinity is NaN: in v one of these also reaches the outputs before it in its own block of S, in g every output.

On an NVIDIA GPU of compute capability 8.0 or more, products of float16 and bfloat16 run on tensor cores; those of
float32, and all on older ones, such as a T4, do not.  On an H100 it was faster than FFTs at 1,024 tokens and
slower at 2,048 (`spectral`).  Not in the paper.

Symbols: v, g the streams, r their causal convolution, L the length, K that of the gate.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["convolve", "convolve_backward"]

_SIDE, _STEP = 32, 32  # S, and the lags u that are multiplied at once


def convolve(v: Tensor, g: Tensor) -> Tensor:
    """Return r of `spectral.causal_conv`, for float16, bfloat16 or float32; products are added up in float32."""
    r = torch.empty_like(v)
    _launch(v, g, r)
    return r


def convolve_backward(dr: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Return dv and dg of `spectral.causal_conv_backward`, for what `convolve` takes."""
    dv, dg = torch.empty_like(v), torch.empty_like(g)
    _launch(dr, g, dv, reverse=True)
    _launch(dr, v, dg, reverse=True)
    return dv, dg


def _launch(x: Tensor, y: Tensor, z: Tensor, reverse: bool = False) -> None:
    """Write into z `[..., M]` the first M coefficients of x `[..., L]` times y `[..., K]`.

    With `reverse`, x is read and z is written backwards: z[m] is coefficient L - 1 - m of y and x reversed.
    """
    if not z.numel():
        return
    rows = [t.reshape(-1, t.shape[-2] if t.ndim > 1 else 1, t.shape[-1]) for t in (x, y, z)]
    strides = [stride for t in rows for stride in t.stride()]
    columns = triton.next_power_of_2(triton.cdiv(x.shape[-1], _SIDE))
    with torch.cuda.device_of(z):
        _product[rows[2].shape[:2].numel(),](
            *rows, rows[2].shape[1], x.shape[-1], y.shape[-1], z.shape[-1], *strides, REVERSE=reverse,
            WIDEN=_INTERPRETED and x.dtype == torch.bfloat16, SIDE=_SIDE, STEP=_STEP, COLUMNS=max(16, columns))
    if rows[2].data_ptr() != z.data_ptr():  # leading dimensions that do not merge: it is a copy
        z.copy_(rows[2].view(z.shape))


@triton.jit
def _product(x, y, z, channels, length, taps, kept, x_row, x_channel, x_time, y_row, y_channel, y_time,
             z_row, z_channel, z_time, REVERSE: tl.constexpr, WIDEN: tl.constexpr, SIDE: tl.constexpr,
             STEP: tl.constexpr, COLUMNS: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    row, channel = program // channels, program % channels
    x += row * x_row + channel * x_channel
    y += row * y_row + channel * y_channel
    z += row * z_row + channel * z_channel
    s = tl.arange(0, SIDE)[:, None]
    i = tl.arange(0, COLUMNS)[None, :]
    sums = tl.zeros((SIDE, COLUMNS), tl.float32)
    for first in range(1 - SIDE, taps, STEP):
        u = first + tl.arange(0, STEP)
        lag = s + u[None, :]
        a = tl.load(y + lag * y_time, (lag >= 0) & (lag < taps), 0)
        time = SIDE * i - u[:, None]
        inside = (time >= 0) & (time < length)
        if REVERSE:
            time = length - 1 - time
        b = tl.load(x + time * x_time, inside, 0)
        if WIDEN:  # Triton's interpreter does not multiply bfloat16
            a, b = a.to(tl.float32), b.to(tl.float32)
        sums = tl.dot(a, b, sums, input_precision="ieee")
    time = SIDE * i + s
    if REVERSE:
        time = length - 1 - time
    tl.store(z + time * z_time, sums.to(z.dtype.element_ty), (time >= 0) & (time < kept))


_INTERPRETED = not isinstance(_product, triton.JITFunction)  # TRITON_INTERPRET=1: on a CPU, for tests
