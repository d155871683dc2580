"""Causal convolution of two sequences: the product of two polynomials, cut off at degree L - 1.

Symbols, as in the paper (Section 4.2 and Appendix C)::

    v, g    the content and the gate, two real sequences of length L
    r       their causal convolution, r_t = sum over j <= t of v_j g_{t-j}
    N       the number of points at which both polynomials are evaluated
    K       the length of a gate that is cut, K <= L: g_i counts as 0 from i = K on

Every function takes tensors whose last dimension is time and whose leading dimensions broadcast
against each other; takes float16, bfloat16, float32 or float64 and returns the same dtype, with the
arithmetic done in at least float32; and can be differentiated twice.  `causal_conv_direct` is the
slow twin that the two fast routes are tested against.

What is inherent to a transform: it mixes all times, and what should cancel cancels up to rounding only::

    the future      moves the past by rounding, about 1e-7 in float32 and 1e-16 in float64 of the largest terms, and
                    gradients of the past by the future are of that size, and not zero as those of the direct sum
    large numbers   rounding goes with the largest product: outputs of size 1e-14 before a single 1e8 at the end of v
                    are rounding alone, of size 10 in float32 and 1e-7 in float64
    NaN, infinity   in v or g, at any time, makes every output of a fast route NaN; in v it reaches earlier outputs of
                    the direct sum too, because the zeros of its triangle times NaN are NaN

Only the online routes (`relaxed`), a token at a time, have given out the past before the future is known.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .spectral import causal_conv, fast_length

__all__ = [
    "causal_conv_direct",
    "causal_conv_fft",
    "causal_conv_right_angle",
    "circular_conv",
    "linear_conv",
    "toeplitz",
]

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def toeplitz(g: Tensor) -> Tensor:
    """Return the lower-triangular Toeplitz matrix A with A[t, j] = g[t - j], zero above the diagonal.

    Args:
        g: gate, `[..., L]`, float16 / bfloat16 / float32 / float64.

    Returns:
        `[..., L, L]`, same dtype.  `toeplitz(g) @ v` is the causal convolution of v and g.

    Raises:
        TypeError, ValueError: not a floating-point tensor; no time dimension or an empty one.

    Example:
        >>> toeplitz(torch.tensor([1.0, 2.0, 3.0]))
        tensor([[1., 0., 0.],
                [2., 1., 0.],
                [3., 2., 1.]])

    Source: Caracal, Appendix B.2, the matrix A_mhf.
    """
    _require_sequence(g, "g")
    return _sliding_history(g).flip(-1)


def causal_conv_direct(v: Tensor, g: Tensor) -> Tensor:
    """Sum r_t = sum_{j<=t} v_j g_{t-j} term by term, in O(L^2) operations and memory.

    Args:
        v: content, `[..., L]`.
        g: gate, `[..., K]`, K <= L; leading dimensions broadcast against those of v.

    Returns:
        r, `[..., L]`, in the dtype that v and g promote to.

    Raises:
        TypeError, ValueError: not floating-point; a gate longer than the content; devices differ; leading shapes do
            not broadcast.

    Example:
        >>> causal_conv_direct(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 10.0, 100.0]))
        tensor([  1.,  12., 123.])

    Source: Caracal, Section 4.2, the sum that the spectral route computes.
    """
    v, g, dtype = _prepare(v, g, "shorter")
    g = F.pad(g, (0, v.shape[-1] - g.shape[-1]))
    return (_sliding_history(g) * v.flip(-1).unsqueeze(-2)).sum(-1).to(dtype)


def causal_conv_fft(v: Tensor, g: Tensor) -> Tensor:
    """Convolve causally in O(L log L): pad with zeros, transform, multiply, invert, truncate.

    The number of points N is the smallest 2^a 3^b 5^c that is at least 2L - 1; with fewer points the
    end of the product would wrap around onto its beginning.  A long text under a short gate is convolved frame by
    frame, in O(L log K) (overlap-save).  The backward pass is written by hand
    (`spectral`), so that float16 and bfloat16 streams are kept as they are and nothing else is.

    Earlier outputs are free of the future up to rounding, and of a NaN or infinity there they are not: see the
    head of this module.

    Args, returns, raises: as `causal_conv_direct`.

    Example:
        >>> v, g = torch.randn(2, 8, 512, 1000)    # batch 8, 512 channels, 1,000 tokens
        >>> r = causal_conv_fft(v, g)
        >>> r.shape
        torch.Size([8, 512, 1000])
        >>> torch.allclose(r[..., 1], v[..., 0] * g[..., 1] + v[..., 1] * g[..., 0], atol=1e-3)
        True

    Source: Caracal, Section 3.2 (Steps 3 and 4) and Appendix C, which take N = 2L.
    """
    v, g, dtype = _require_pair(v, g, "shorter")
    if v.shape[:-1] != g.shape[:-1]:
        lead = torch.broadcast_shapes(v.shape[:-1], g.shape[:-1])
        v, g = v.expand(*lead, -1), g.expand(*lead, -1)
    return causal_conv(v.to(dtype), g.to(dtype))


def causal_conv_right_angle(v: Tensor, g: Tensor) -> Tensor:
    """Convolve causally with L complex points and no padding, on the circle z^L = i.

    Multiplying coefficient k by e^{i pi k / 2L} evaluates both polynomials where z^L = i instead of
    z^L = 1.  The part of the product beyond degree L - 1 then returns multiplied by i, in the
    imaginary part; the real part is the causal answer.

    Args, returns, raises: as `causal_conv_direct`, with K = L.

    Source: right-angle convolution (right-angle circular convolution in the signal-processing
    literature); not in the paper.
    """
    v, g, dtype = _prepare(v, g)
    length = v.shape[-1]
    if not v.numel() or not g.numel():
        return _circular(v, g, length).to(dtype)
    angle = torch.arange(length, device=v.device, dtype=v.dtype) * (math.pi / (2 * length))
    twist = torch.polar(torch.ones_like(angle), angle)
    product = torch.fft.ifft(torch.fft.fft(v * twist) * torch.fft.fft(g * twist))
    return (product * twist.conj()).real.to(dtype)


def linear_conv(v: Tensor, g: Tensor) -> Tensor:
    """Multiply two polynomials: all coefficients of P_v(z) P_g(z), lowest degree first.

    Args:
        v: coefficients, `[..., M]`.
        g: coefficients, `[..., K]`; M and K may differ.

    Returns:
        `[..., M + K - 1]`.  Its first min(M, K) entries are the causal convolution.

    Raises:
        TypeError, ValueError: not floating-point; leading shapes do not broadcast.

    Example:
        >>> linear_conv(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0])).round()    # (1 + 2z)(1 + z)
        tensor([1., 3., 2.])

    Source: Caracal, Appendix C (a).
    """
    v, g, dtype = _prepare(v, g, "any")
    length = v.shape[-1] + g.shape[-1] - 1
    return _circular(v, g, fast_length(length))[..., :length].to(dtype)


def circular_conv(v: Tensor, g: Tensor, n: int | None = None) -> Tensor:
    """Multiply two polynomials modulo z^n - 1: what n FFT points give, wrap-around included.

    Args:
        v: content, `[..., L]`.
        g: gate, `[..., L]`.
        n: number of points, at least L; default L.  From 2L - 1 on nothing wraps around.

    Returns:
        `[..., n]`.  Entry k sums every v_a g_b with (a + b) mod n = k.

    Raises:
        TypeError, ValueError: as `causal_conv_direct`, lengths that differ, or n < L.

    Source: Caracal, Appendix C (c).
    """
    v, g, dtype = _prepare(v, g)
    n = v.shape[-1] if n is None else n
    if n < v.shape[-1]:
        raise ValueError(f"n={n} points cannot hold sequences of length {v.shape[-1]}; give n >= {v.shape[-1]}")
    return _circular(v, g, n).to(dtype)


def _circular(v: Tensor, g: Tensor, n: int) -> Tensor:
    if not v.numel() or not g.numel():  # an empty batch, which the FFT libraries refuse
        return F.pad(v[..., :1] * g[..., :1], (0, n - 1))
    return torch.fft.irfft(torch.fft.rfft(v, n=n) * torch.fft.rfft(g, n=n), n=n)


def _sliding_history(g: Tensor) -> Tensor:
    """Row t holds g_t, ..., g_1, g_0 at its right end and zeros before: a view of `[..., L, L]`.

    Row t, column k is g[t - (L-1-k)], so that the dot product with v reversed is r_t.
    """
    length = g.shape[-1]
    return F.pad(g, (length - 1, 0)).unfold(-1, length, 1)


def _require_sequence(x: Tensor, name: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}; give a torch.Tensor, e.g. torch.as_tensor({name})")
    if x.dtype not in _FLOATS:
        accepted = ", ".join(str(d).removeprefix("torch.") for d in _FLOATS)
        raise TypeError(f"{name} has dtype {str(x.dtype).removeprefix('torch.')}; accepted: {accepted}; "
                        f"convert it with {name}.float()")
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; its last dimension is time and needs length >= 1")


def _require_pair(v: Tensor, g: Tensor, gate: str = "equal") -> tuple[Tensor, Tensor, torch.dtype]:
    """Check both streams; return them and the dtype that they promote to.

    `gate` says how long g may be: "equal" to v, also "shorter", or "any".
    """
    _require_sequence(v, "v")
    _require_sequence(g, "g")
    longer = g.shape[-1] - v.shape[-1]
    if longer > 0 and gate != "any" or longer < 0 and gate == "equal":
        accepted = "equal lengths" if gate == "equal" else "a gate that is no longer than the content"
        raise ValueError(f"v has length {v.shape[-1]} and g has length {g.shape[-1]} in the last dimension (time); "
                         f"give {accepted}, or use linear_conv for polynomials of different degree")
    if v.device != g.device:
        raise ValueError(f"v is on {v.device} and g on {g.device}; move them to one device")
    try:
        torch.broadcast_shapes(v.shape[:-1], g.shape[:-1])
    except RuntimeError:
        raise ValueError(f"leading shapes {tuple(v.shape[:-1])} of v and {tuple(g.shape[:-1])} of g "
                         "do not broadcast; make them equal or 1") from None
    return v, g, v.dtype if v.dtype == g.dtype else torch.promote_types(v.dtype, g.dtype)


def _prepare(v: Tensor, g: Tensor, gate: str = "equal") -> tuple[Tensor, Tensor, torch.dtype]:
    """Check both streams and raise them to the dtype of the arithmetic; return them and the dtype to return."""
    v, g, dtype = _require_pair(v, g, gate)
    arithmetic = torch.promote_types(dtype, torch.float32)
    return v.to(arithmetic), g.to(arithmetic), dtype
