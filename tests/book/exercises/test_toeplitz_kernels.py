"""The checkers of chapter 5: the answers that they accept, and those that they reject with what they say."""

import pytest
import torch
import torch.nn.functional as F
from exercise_answers import Answers
from torch.fft import fft, ifft, irfft, rfft

from caracal_book.exercises import toeplitz_kernels as check
from caracal_min.convolution import causal_conv_fft


def window(length, delay, width):
    g = torch.zeros(length, dtype=torch.float64)
    g[delay:delay + width] = 1 / width
    return g


def lag_window(length, delay, width):
    lag = torch.arange(length)
    return ((lag >= delay) & (lag < delay + width)).double() / width


def renormalised(length, delay, width):
    g = window(length, delay, width)
    return g / g.sum() if g.any() else g


def diagonal_means(A):
    return torch.stack([A.diagonal(-k).mean() for k in range(len(A))])


def least_squares(A):
    size = len(A)
    lag = torch.arange(size)[:, None] - torch.arange(size)
    basis = torch.stack([(lag == k).to(A.dtype).flatten() for k in range(size)], 1)
    return torch.linalg.lstsq(basis, A.flatten()[:, None])[0].flatten()


def equivariant(delays=None, share=1e-9, start=torch.randn, dtype=torch.float64, absolute=False, skip=0):
    """A test of shift equivariance by the given delays, tolerance and input."""

    def is_shift_equivariant(f, length):
        x = start(length).to(dtype)
        expected = f(x)
        for delay in delays or range(1, length):
            late = f(F.pad(x, (delay, 0)))[delay:]
            limit = share if absolute else share * expected.abs().max()
            if (late - expected)[skip:].abs().max() > limit:
                return False
        return True

    return is_shift_equivariant


def impulse(length):
    return (torch.arange(length) == 0).double()


def whole_output(f, length):
    x = torch.randn(length, dtype=torch.float64)
    return bool(torch.allclose(f(F.pad(x, (1, 0))), F.pad(f(x), (1, 0))))


def is_linear(f, length):
    x = torch.randn(length, dtype=torch.float64)
    return bool(torch.allclose(f(2 * x), 2 * f(x)))


def jacobian_is_toeplitz(f, length):
    x = torch.randn(length, dtype=torch.float64)
    J = torch.autograd.functional.jacobian(f, x)
    return bool(torch.allclose(J[1:, 1:], J[:-1, :-1]))


def conjugated(v, g, z, points=2, keep=True, shift=None, dims=-1):
    length = v.shape[-1]
    early = torch.where(torch.arange(length) <= z, g, 0.0) if keep else g
    n = points * length
    product = rfft(v, n=n) * rfft(early, n=n).conj()
    return irfft(product, n=n).roll(z if shift is None else shift, dims=dims)[..., :length]


def complex_conjugated(v, g, z):
    length = v.shape[-1]
    early = torch.where(torch.arange(length) <= z, g, 0.0)
    n = length + z + 1
    product = ifft(fft(v, n=n) * fft(early, n=n).conj()).real
    return torch.cat([product[..., n - z:], product], dim=-1)[..., :length]


def flipped(v, g, z):
    length = v.shape[-1]
    short = g[..., :z + 1].flip(-1)
    return irfft(rfft(v, n=2 * length) * rfft(short, n=2 * length), n=2 * length)[..., :length]


def summed(v, g, z):
    length = v.shape[-1]
    return torch.stack([sum(v[..., j] * g[..., j - t + z] for j in range(max(0, t - z), t + 1))
                        for t in range(length)], -1)


RIGHT = {
    check.window_kernel: [window, lag_window],
    check.nearest_kernel: [diagonal_means, least_squares],
    check.is_shift_equivariant: [equivariant(), equivariant(delays=(1, 2, 3)), equivariant(delays=(1,))],
    check.correlate: [conjugated, complex_conjugated, lambda v, g, z: conjugated(v, g, z, points=3)],
}
WRONG = {
    check.window_kernel: {
        "a sum, not a mean": lambda length, delay, width: window(length, delay, width) * width,
        "ignores the delay": lambda length, delay, width: window(length, 0, width),
        "one step too late": lambda length, delay, width: window(length, delay + 1, width),
        "one tap too many": lambda length, delay, width: window(length, delay, width + 1) * (width + 1) / width,
        "the window ends at the delay": lambda length, delay, width: window(length, max(0, delay - width + 1), width),
        "divides by what is left in the text": renormalised,
        "reversed": lambda length, delay, width: window(length, delay, width).flip(0),
        "float32": lambda length, delay, width: window(length, delay, width).float(),
        "the list": lambda length, delay, width: window(length, delay, width).tolist(),
    },
    check.nearest_kernel: {
        "the first column": lambda A: A[:, 0],
        "the last row backwards": lambda A: A[-1].flip(0),
        "sums, not means": lambda A: torch.stack([A.diagonal(-k).sum() for k in range(len(A))]),
        "sums over L": lambda A: torch.stack([A.diagonal(-k).sum() for k in range(len(A))]) / len(A),
        "medians": lambda A: torch.stack([A.diagonal(-k).median() for k in range(len(A))]),
        "upper diagonals": lambda A: torch.stack([A.diagonal(k).mean() for k in range(len(A))]),
        "column means": lambda A: A.sum(0) / torch.arange(len(A), 0, -1),
        "the matrix": lambda A: A,
        "float32": lambda A: diagonal_means(A).float(),
    },
    check.is_shift_equivariant: {
        "says yes": lambda f, length: True,
        "says no": lambda f, length: False,
        "tries a delay of two only": equivariant(delays=(2,)),
        "asks for exact equality": equivariant(share=0.0),
        "an absolute tolerance": equivariant(share=1e-12, absolute=True),
        "too lax for a faint kernel": equivariant(share=1e-3),
        "zeros for input": equivariant(start=torch.zeros),
        "an impulse for input": equivariant(start=impulse, skip=1),
        "looks at the last output only": equivariant(skip=-1, delays=(2,)),
        "wants silence for silence": whole_output,
        "tests linearity": is_linear,
        "tests the Jacobian at one input": jacobian_is_toeplitz,
        "forgets to return": lambda f, length: None,
    },
    check.correlate: {
        "no transform, the direct sum": summed,
        "reverses in time": flipped,
        "keeps all gates": lambda v, g, z: conjugated(v, g, z, keep=False),
        "no padding": lambda v, g, z: conjugated(v, g, z, points=1),
        "does not roll": lambda v, g, z: conjugated(v, g, z, shift=0),
        "rolls the other way": lambda v, g, z: conjugated(v, g, z, shift=-z),
        "rolls the whole batch": lambda v, g, z: conjugated(v, g, z, dims=None),
        "one gate too few": lambda v, g, z: conjugated(v, torch.where(torch.arange(g.shape[-1]) < z, g, 0.0), z),
        "conjugates the content": lambda v, g, z: conjugated(g, v, z),
        "the convolution": lambda v, g, z: causal_conv_fft(v, g),
        "float32": lambda v, g, z: conjugated(v, g, z).float(),
    },
}
REASONS = [
    (check.window_kernel, "ignores the delay", "delay=1, width=1): entry [0] should be 0, given 1"),
    (check.nearest_kernel, "the first column", "of a random 2 by 2 matrix: entry [0] should be"),
    (check.is_shift_equivariant, "forgets to return", "given None; is a return missing"),
    (check.is_shift_equivariant, "tries a delay of two only", "even positions negated, length=6): expected False"),
    (check.is_shift_equivariant, "tests linearity", "a tanh at each output"),
    (check.correlate, "no transform, the direct sum", "given a sum without it"),
    (check.correlate, "reverses in time", "given a sequence reversed by flip"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS


@pytest.mark.parametrize("length", [6, 17])
def test_the_verdicts_of_the_checker_hold_for_many_inputs(length):
    """The mixers are what their names say: by every delay, for several inputs, with a margin."""
    for seed in range(5):
        torch.manual_seed(seed)
        x = torch.randn(length, dtype=torch.float64)
        for mixers, equal in ((check._EQUIVARIANT, True), (check._TIED, False)):
            for name, f in mixers.items():
                y = f(x)
                apart = max(((f(F.pad(x, (m, 0)))[m:] - y).abs().max() / y.abs().max()).item() for m in range(1, 6))
                assert (apart < 1e-12) if equal else (apart > 1e-6), name
