"""Checkers for the exercises of chapter 5, Toeplitz kernels.

Sequences are float64 and drawn from a fixed seed.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from caracal_min.convolution import causal_conv_direct, causal_conv_fft, circular_conv, toeplitz

from . import checker, expect_close, expect_equal

__all__ = ["is_shift_equivariant", "nearest_kernel", "window_kernel"]

Mixer = Callable[[Tensor], Tensor]


@checker
def window_kernel(answer: Callable[[int, int, int], Tensor]) -> str:
    """Check `window_kernel(length, delay, width)`: the kernel of a mean of `width` tokens, `delay` steps back."""
    cases = [(length, delay, width) for length in (9, 5, 2, 1) for delay in (0, 1, 4, 9) for width in (1, 2, 3, 12)]
    for length, delay, width in cases:
        case = f"window_kernel(length={length}, delay={delay}, width={width})"
        lag = torch.arange(length)
        inside = (lag >= delay) & (lag < delay + width)
        expect_close(case, answer(length, delay, width), inside.double() / width)
    return f"{len(cases)} kernels"


@checker
def nearest_kernel(answer: Callable[[Tensor], Tensor]) -> str:
    """Check `nearest_kernel(A)`: the kernel whose Toeplitz matrix is nearest to a lower-triangular A."""
    source = torch.Generator().manual_seed(5)
    sizes = (1, 2, 3, 7, 20)
    for size in sizes:
        g = torch.randn(size, dtype=torch.float64, generator=source)
        noise = torch.randn(size, size, dtype=torch.float64, generator=source).tril()
        lag = torch.arange(size)[:, None] - torch.arange(size)
        best = torch.stack([(toeplitz(g) + noise)[lag == k].sum() / (size - k) for k in range(size)])
        expect_close(f"nearest_kernel of a {size} by {size} Toeplitz matrix", answer(toeplitz(g)), g)
        expect_close(f"nearest_kernel of a random {size} by {size} matrix", answer(toeplitz(g) + noise), best)
    return f"{2 * len(sizes)} matrices"


@checker
def is_shift_equivariant(answer: Callable[[Mixer, int], bool]) -> str:
    """Check `is_shift_equivariant(f, length)`: True for every static kernel, False for whatever ties to positions."""
    for mixers, verdict in ((_EQUIVARIANT, True), (_TIED, False)):
        for name, f in mixers.items():
            for length in (6, 17):
                case, given = f"is_shift_equivariant({name}, length={length})", answer(f, length)
                if given is None:
                    raise AssertionError(f"{case}: expected {verdict}, given None; is a return missing?")
                expect_equal(case, bool(given), verdict)
    return f"{len(_EQUIVARIANT)} mixers that commute with delays and {len(_TIED)} that do not"


def _taps(count: int, seed: int = 5) -> Tensor:
    taps = torch.randn(64, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return taps * (torch.arange(64) < count)


def _static(taps: Tensor) -> Mixer:
    """Return the mixer with this kernel; it reaches as far back as there are taps."""

    def mix(x: Tensor) -> Tensor:
        return causal_conv_fft(x, F.pad(taps, (0, max(0, len(x) - len(taps))))[:len(x)])

    return mix


def _from_late_gates(x: Tensor) -> Tensor:
    """A kernel that only the tokens from position 3 on write; those before are fixed."""
    return causal_conv_direct(x, torch.where(torch.arange(len(x)) < 3, _taps(3)[:len(x)], x))


_EQUIVARIANT: dict[str, Mixer] = {
    "the content itself": lambda x: x.clone(),
    "a kernel of three taps": _static(_taps(3)),
    "a kernel as long as the text": _static(_taps(64)),
    "a million times a long kernel": _static(1e6 * _taps(64)),
    "a kernel that copies the token before": _static((torch.arange(64) == 1).double()),
    "a kernel and a tanh at each output": lambda x: torch.tanh(_static(_taps(64))(x)),
    "a kernel and a constant added": lambda x: _static(_taps(5))(x) + 1,
    "two kernels, their outputs multiplied": lambda x: _static(_taps(4))(x) * _static(_taps(6, seed=6))(x),
}
_TIED: dict[str, Mixer] = {
    "the content is its own kernel": lambda x: causal_conv_direct(x, x),
    "a kernel made from the content": lambda x: causal_conv_direct(x, torch.tanh(2 * x) + 0.3),
    "a kernel made from the content from token 3 on": _from_late_gates,
    "a long kernel, faintly changed by the content": lambda x: _static(_taps(64))(x) + 1e-5 * causal_conv_direct(x, x),
    "a circular convolution": lambda x: circular_conv(x, _taps(64)[:len(x)]),
    "the mean of all tokens so far": lambda x: x.cumsum(0) / torch.arange(1, len(x) + 1),
    "a weight for each position": lambda x: x * _taps(64)[:len(x)],
    "the first token added everywhere": lambda x: x + x[0],
    "even positions negated": lambda x: x * (-1.0) ** torch.arange(len(x)),
}
