"""Causal convolution of two sequences: the product of two polynomials, cut off at degree L - 1.

Symbols, as in the paper (Section 4.2 and Appendix C)::

    v, g    the content and the gate, two real sequences of length L
    r       their causal convolution, r_t = sum over j <= t of v_j g_{t-j}
    N       the number of points at which both polynomials are evaluated
    K       the length of a gate that is cut (`gate_length`), K <= L: g_i counts as 0 from i = K on

The last dimension of every tensor is time; leading dimensions broadcast.  float16, bfloat16,
float32 and float64 go in and come out, the arithmetic is done in at least float32, and every
function can be differentiated twice.  `causal_conv_direct` is the reference implementation of
the two fast routes.

A transform mixes all times, and the future cancels up to rounding only::

    the future      changes the past by about 1e-7 in float32 and 1e-16 in float64, relative to the
                    largest terms; its gradients are of that size too, not exactly zero
    large numbers   drown small ones: a single 1e8 at the end of v leaves an error of about 10 in
                    float32, and of 1e-7 in float64, in every earlier output
    NaN, infinity   anywhere in v or g make every output of a fast route NaN; those in v also
                    reach earlier outputs of the direct sum, since 0 times NaN is NaN
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fft import fft, ifft, irfft, rfft

from .spectral import causal_conv, fast_length

__all__ = ["causal_conv_direct", "causal_conv_fft", "causal_conv_right_angle", "circular_conv",
           "linear_conv", "toeplitz"]


def toeplitz(g: Tensor) -> Tensor:
    """Return the lower-triangular Toeplitz matrix A, A[t, j] = g[t - j], zero above the diagonal.

    Args:
        g: gate, `[..., L]`, floating-point.

    Returns:
        `[..., L, L]`, same dtype.  `toeplitz(g) @ v` is the causal convolution of v and g.

    Example:
        >>> toeplitz(torch.tensor([1.0, 2.0, 3.0]))
        tensor([[1., 0., 0.],
                [2., 1., 0.],
                [3., 2., 1.]])

    Source: Caracal, Appendix B.2, the matrix A_mhf.
    """
    # Row t of the history ends in g_t; reversed, it begins with g_t, and g_0 is on the diagonal.
    return _history(g).flip(-1)


def causal_conv_direct(v: Tensor, g: Tensor) -> Tensor:
    """Sum r_t = sum_{j<=t} v_j g_{t-j} term by term, in O(L^2) operations and memory.

    Args:
        v: content, `[..., L]`.
        g: gate, `[..., K]`, K <= L; leading dimensions broadcast against those of v.

    Returns:
        r, `[..., L]`, in the dtype that v and g promote to.

    Raises:
        ValueError: a gate longer than the content.
        TypeError: integers or complex numbers.

    Example:
        >>> causal_conv_direct(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 10.0, 100.0]))
        tensor([  1.,  12., 123.])

    Source: Caracal, Section 4.2, the sum that the spectral route computes.
    """
    v, g, dtype = _prepare(v, g)
    # A short gate counts as zero beyond its end, so that both sequences have L entries.
    missing = v.shape[-1] - g.shape[-1]
    g = F.pad(g, (0, missing))
    # With v reversed, the indices of the two factors of a term add up to t in row t.
    reverse = v.flip(-1)
    terms = _history(g) * reverse.unsqueeze(-2)
    return terms.sum(-1).to(dtype)


def causal_conv_fft(v: Tensor, g: Tensor) -> Tensor:
    """Convolve causally in O(L log L): pad with zeros, transform, multiply, invert, truncate.

    The number of points N is the smallest 2^a 3^b 5^c that is at least L + K - 1; with fewer,
    the end of the product would wrap around onto its beginning.  A long text under a short gate
    is convolved frame by frame, in O(L log K).  The backward pass is written by hand (`spectral`)
    and keeps v and g alone, in the dtype they came in.

    Earlier outputs are free of the future up to rounding: see the head of this module.

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
    dtype = _check(v, g)
    # The operator takes one leading shape and one dtype; expanding copies nothing.
    if v.shape[:-1] != g.shape[:-1]:
        # Its first call imports sympy, for most of a second; the layers have equal shapes.
        lead = torch.broadcast_shapes(v.shape[:-1], g.shape[:-1])
        v = v.expand(*lead, -1)
        g = g.expand(*lead, -1)
    return causal_conv(v.to(dtype), g.to(dtype))


def causal_conv_right_angle(v: Tensor, g: Tensor) -> Tensor:
    """Convolve causally with L complex points and no padding, on the circle z^L = i.

    Multiplying coefficient k by e^{i pi k / 2L} evaluates both polynomials where z^L = i instead
    of z^L = 1.  The part of the product beyond degree L - 1 then comes back multiplied by i, in
    the imaginary part; the real part is the causal answer.

    Args, returns, raises: as `causal_conv_direct`, with K = L.

    Example:
        >>> causal_conv_right_angle(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 10.0])).round()
        tensor([ 1., 12.])

    Source: right-angle circular convolution in the signal-processing literature; not in the paper.
    """
    v, g, dtype = _prepare(v, g, equal=True)
    length = v.shape[-1]
    # A quarter turn over the whole length: a product term of degree L is multiplied by i.
    step = math.pi / (2 * length)
    angle = torch.arange(length, device=v.device, dtype=v.dtype) * step
    twist = torch.polar(torch.ones_like(angle), angle)
    V = fft(v * twist)
    G = fft(g * twist)
    # Turning back leaves the causal part real, and what wrapped around imaginary.
    r = ifft(V * G) * twist.conj()
    return r.real.to(dtype)


def linear_conv(v: Tensor, g: Tensor) -> Tensor:
    """Multiply two polynomials: all coefficients of P_v(z) P_g(z), lowest degree first.

    Args:
        v: coefficients, `[..., M]`.
        g: coefficients, `[..., K]`; M and K may differ.

    Returns:
        `[..., M + K - 1]`.  Its first min(M, K) entries are the causal convolution.

    Raises:
        TypeError: integers or complex numbers.

    Example:
        >>> linear_conv(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0])).round()
        tensor([1., 3., 2.])

    That is (1 + 2z)(1 + z) = 1 + 3z + 2z^2.

    Source: Caracal, Appendix C (a).
    """
    # With room for all M + K - 1 coefficients nothing wraps around.
    v = F.pad(v, (0, g.shape[-1] - 1))
    length = v.shape[-1]
    # More points than that only add zeros, at lengths that transform faster.
    points = fast_length(length)
    product = circular_conv(v, g, points)
    return product[..., :length]


def circular_conv(v: Tensor, g: Tensor, n: int | None = None) -> Tensor:
    """Multiply two polynomials modulo z^n - 1: what n FFT points give, wrap-around included.

    Args:
        v: content, `[..., L]`.
        g: gate, `[..., K]`, K <= L.
        n: number of points, at least L; default L.  From L + K - 1 on nothing wraps around.

    Returns:
        `[..., n]`.  Entry k sums every v_a g_b with (a + b) mod n = k.

    Raises:
        ValueError: a gate longer than the content, or n < L.
        TypeError: integers or complex numbers.

    Example:
        >>> circular_conv(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0])).round()    # z^2 = 1
        tensor([3., 3.])

    Source: Caracal, Appendix C (c).
    """
    v, g, dtype = _prepare(v, g)
    length = v.shape[-1]
    if n is None:
        n = length
    # PyTorch would drop the coefficients beyond n instead of wrapping them around.
    if n < length:
        raise ValueError(f"n={n} points cannot hold {length} coefficients; give n >= {length}")
    V = rfft(v, n=n)
    G = rfft(g, n=n)
    return irfft(V * G, n=n).to(dtype)


def _history(g):
    """Return a view `[..., L, L]` whose row t is g_0, g_1, ..., g_t after L - 1 - t zeros."""
    length = g.shape[-1]
    # Rows are windows of one padded copy: L x L numbers are never written.
    padded = F.pad(g, (length - 1, 0))
    return padded.unfold(-1, length, 1)


def _check(v, g, equal=False):
    """Return the dtype of the result; refuse lengths and dtypes that have no convolution."""
    length = v.shape[-1]
    gate_length = g.shape[-1]
    if gate_length > length or equal and gate_length < length:
        wanted = "a gate no longer than the content"
        if equal:
            wanted = "equal lengths"
        raise ValueError(f"v has length {length} and g has length {gate_length}; give {wanted}, "
                         "or use linear_conv for polynomials of different degree")
    dtype = torch.promote_types(v.dtype, g.dtype)
    # Integers would be convolved in float32 and then truncated.
    if not dtype.is_floating_point:
        raise TypeError(f"v is {v.dtype} and g is {g.dtype}; give floating-point tensors")
    return dtype


def _prepare(v, g, equal=False):
    """Check both streams; return them in the dtype of the arithmetic, and the result's dtype."""
    dtype = _check(v, g, equal)
    # Sums in half precision would lose the digits that a transform cancels.
    wide = torch.promote_types(dtype, torch.float32)
    v = v.to(wide)
    g = g.to(wide)
    return v, g, dtype
