"""Checkers for the exercises of chapter 5, Toeplitz kernels."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from caracal_min.convolution import causal_conv_direct, causal_conv_fft, circular_conv, toeplitz

from . import checker, drawer, expect, expect_verdicts

__all__ = ["is_shift_equivariant", "nearest_kernel", "window_kernel"]

Mixer = Callable[[Tensor], Tensor]


@checker
def window_kernel(answer: Callable) -> str:
    """Check `window_kernel(length, delay, width)`: the kernel of a mean of `width` tokens, `delay` steps back."""
    cases = [(length, delay, width) for length in (9, 5, 1) for delay in (0, 1, 4, 9) for width in (1, 2, 3, 12)]
    for length, delay, width in cases:
        lag = torch.arange(length)
        right = ((lag >= delay) & (lag < delay + width)).double() / width
        expect(f"window_kernel(length={length}, delay={delay}, width={width})", answer(length, delay, width), right, {
            "that is the sum of the window: a mean is divided by its width": width * right,
            "the window begins `delay` steps back": (lag < width).double() / width})
    return f"{len(cases)} kernels"


@checker
def nearest_kernel(answer: Callable) -> str:
    """Check `nearest_kernel(A)`: the kernel whose Toeplitz matrix is nearest to a lower-triangular A."""
    sizes, draw = (1, 2, 3, 7, 20), drawer(5)
    for size in sizes:
        g = draw(size)
        for what, A in (("Toeplitz", toeplitz(g)), ("random", toeplitz(g) + draw(size, size).tril())):
            sums = torch.stack([A.diagonal(-k).sum() for k in range(size)])
            expect(f"nearest_kernel of a {what} {size} by {size} matrix", answer(A.clone()),
                   sums / torch.arange(size, 0, -1), {
                "first column: the mean over the diagonal was asked for": A[:, 0],
                "sums over the diagonals: their means were asked for": sums,
                "diagonal k has L - k entries, and not L": sums / size})
    return f"{2 * len(sizes)} matrices"


@checker
def is_shift_equivariant(answer: Callable) -> str:
    """Check `is_shift_equivariant(f, length)`: True for every static kernel, False for whatever ties to positions."""
    return expect_verdicts(answer, "is_shift_equivariant", _MIXERS, ((6,), (17,)))


_TAPS = drawer(5)(64)


def _static(taps: Tensor) -> Mixer:
    """Return the mixer with this kernel; it reaches as far back as there are taps."""
    return lambda x: causal_conv_fft(x, F.pad(taps, (0, max(0, len(x) - len(taps))))[:len(x)])


_ROUNDING = "an FFT rounds, so compare with the size of the outputs"
_DELAYS = "one delay may look right: try each"
_MIXERS = {
    "the content itself": (lambda x: x.clone(), True, "a delayed content comes out delayed"),
    "a kernel as long as the text": (_static(_TAPS), True, _ROUNDING),
    "a million times a long kernel": (_static(1e6 * _TAPS), True, _ROUNDING),
    "a kernel and a tanh at each output": (lambda x: torch.tanh(_static(_TAPS)(x)), True,
                                           "it is not linear, but it is the same at every position"),
    "the content is its own kernel": (lambda x: causal_conv_direct(x, x), False,
                                      "a delayed kernel delays the output once more"),
    "a long kernel, faintly changed by the content": (
        lambda x: _static(_TAPS)(x) + 1e-5 * causal_conv_direct(x, x), False, "the tolerance is too wide"),
    "a circular convolution": (lambda x: circular_conv(x, _TAPS[:len(x)]), False,
                               "what leaves at the end must not return at the start"),
    "the mean of all tokens so far": (lambda x: x.cumsum(0) / torch.arange(1, len(x) + 1), False,
                                      "its weights depend on the position"),
    "the first token added everywhere": (lambda x: x + x[0], False, _DELAYS),
    "even positions negated": (lambda x: x * (-1.0) ** torch.arange(len(x)), False, _DELAYS),
}
