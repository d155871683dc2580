"""Checkers for the exercises of chapter 3, wrap-around.

Sequences are float64 or complex128 and drawn from a fixed seed; whole numbers are compared to the last digit.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from caracal_min.convolution import causal_conv_direct, circular_conv

from . import checker, expect_close, expect_equal

__all__ = ["enough_points", "leaking_tokens", "multiply_mod", "separate"]


@checker
def leaking_tokens(answer: Callable[[int, int, int, int], list[int]]) -> str:
    """Check `leaking_tokens(length, nonzero, points, t)`: the later tokens whose content reaches output t."""
    cases = [(length, nonzero, points, t) for length in (1, 2, 3, 5, 8)
             for nonzero in {1, (length + 1) // 2, length}
             for points in range(length, 2 * length + 1) for t in range(length)]
    for case in cases:
        given = answer(*case)
        if isinstance(given, range | tuple):
            given = list(given)
        expect_equal(f"leaking_tokens{case}", given, _tokens_that_leak(*case))
    return f"{len(cases)} cases"


def _tokens_that_leak(length: int, nonzero: int, points: int, t: int) -> list[int]:
    """Find them by trying: output t for each unit vector of contents."""
    gate = (torch.arange(length) < nonzero).double()
    weights = circular_conv(torch.eye(length, dtype=torch.float64), gate, points)[:, t]
    return [j for j in range(t + 1, length) if weights[j] > 0.5]


@checker
def enough_points(answer: Callable[[int, int], int]) -> str:
    """Check `enough_points(length, first)`: the fewest points on which no output from `first` on is contaminated."""
    cases = [(length, first) for length in range(1, 9) for first in range(length)]
    for length, first in cases:
        ones = torch.ones(length, dtype=torch.float64)  # a wrapped product of ones adds something
        wanted = causal_conv_direct(ones, ones)[first:]
        expected = next(points for points in range(length, 2 * length)
                        if (circular_conv(ones, ones, points)[first:length] - wanted).abs().max() < 0.5)
        expect_equal(f"enough_points(length={length}, first={first})", answer(length, first), expected)
    return f"{len(cases)} cases"


@checker
def separate(answer: Callable[[Tensor, Tensor, float, float], tuple[Tensor, Tensor]]) -> str:
    """Check `separate(out_1, out_2, phi_1, phi_2)`: both halves of a complex product, or a ValueError."""
    turns = ((0.0, math.pi), (0.5, 2.0), (math.pi / 2, -math.pi / 2), (4.0, 1.0), (0.3, 0.9), (0.3, 0.31))
    refused = ((0.3, 0.3), (0.0, 2 * math.pi), (-math.pi / 2, 3 * math.pi / 2), (1.0, 1 - 4 * math.pi))
    source = torch.Generator().manual_seed(3)
    for length in (1, 2, 5, 16):
        for phi_1, phi_2 in turns:
            parts = torch.randn(2, length, dtype=torch.complex128, generator=source)
            parts[1, -1] = 0
            low, high = parts
            first, second = (low + complex(math.cos(a), math.sin(a)) * high for a in (phi_1, phi_2))
            case = f"separate for length {length}, angles {phi_1:.4g} and {phi_2:.4g}"
            try:
                given = answer(first, second, phi_1, phi_2)
            except ValueError as error:
                raise AssertionError(f"{case}: expected both halves, given ValueError('{error}')") from error
            if not isinstance(given, tuple | list) or len(given) != 2:
                raise AssertionError(f"{case}: expected two tensors, given {type(given).__name__}")
            for name, half, expected in zip(("first half", "second half"), given, (low, high), strict=True):
                _expect_close_complex(f"{case}: {name}", half, expected)
    for phi_1, phi_2 in refused:
        try:
            answer(first, first, phi_1, phi_2)
        except ValueError:
            continue
        raise AssertionError(f"separate for the angles {phi_1:.4g} and {phi_2:.4g}: expected a ValueError, "
                             "since these two will not do, given an answer")
    return f"4 lengths, {len(turns)} pairs of angles that will do and {len(refused)} that will not"


def _expect_close_complex(case: str, given: object, expected: Tensor) -> None:
    if not isinstance(given, Tensor) or given.dtype != expected.dtype:
        kind = str(given.dtype).removeprefix("torch.") if isinstance(given, Tensor) else type(given).__name__
        raise AssertionError(f"{case}: expected a complex128 tensor, given {kind}")
    for part, of in (("real part", torch.real), ("imaginary part", torch.imag)):
        expect_close(f"{case}, {part}", of(given), of(expected))


@checker
def multiply_mod(answer: Callable[[int, int, int, int], int]) -> str:
    """Check `multiply_mod(a, b, limbs, bits)`: a * b modulo 2**(limbs * bits) + 1, by transforms of `limbs` points."""
    cases = [(limbs, bits) for limbs in (1, 2, 3, 8, 64) for bits in (1, 4, 12)] + [(256, 16)]
    source = torch.Generator().manual_seed(3)
    for limbs, bits in cases:
        n = limbs * bits
        random = [int("".join(map(str, torch.randint(2, (n,), generator=source).tolist())), 2) for _ in range(2)]
        for name, a, b in (("random numbers", *random), ("the largest numbers", 2**n - 1, 2**n - 1),
                           ("0 and a random number", 0, random[0]), ("1 and a random number", 1, random[0])):
            case = (f"multiply_mod({a}, {b}, {limbs}, {bits})" if n <= 64
                    else f"multiply_mod of {name}, limbs={limbs}, bits={bits}")
            with _Transforms() as made:
                given = answer(a, b, limbs, bits)
            if n > 64 and type(given) is int and given != a * b % (2**n + 1):
                off = given - a * b % (2**n + 1)
                raise AssertionError(f"{case}: expected a * b modulo 2**{n} + 1, given a number that is "
                                     f"{'larger' if off > 0 else 'smaller'} by about 2**{abs(off).bit_length() - 1}")
            expect_equal(case, given, a * b % (2**n + 1))
            made.expect_at_most(case, limbs)
    return f"{len(cases)} sizes up to {max(limbs * bits for limbs, bits in cases)} bits"


class _Transforms(TorchFunctionMode):
    """Record the points of each transform of torch.fft inside the `with` block."""

    _BACK_TO_REAL = {torch.fft.irfft, torch.fft.hfft}
    _WATCHED = {torch.fft.fft, torch.fft.ifft, torch.fft.rfft, torch.fft.ihfft} | _BACK_TO_REAL

    def __init__(self) -> None:
        super().__init__()
        self.points: list[int] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in self._WATCHED:
            dim = (kwargs or {}).get("dim", args[2] if len(args) > 2 else -1)
            n = (kwargs or {}).get("n", args[1] if len(args) > 1 else None)
            self.points.append(n or (result if func in self._BACK_TO_REAL else args[0]).shape[dim])
        elif getattr(func, "__name__", "").startswith("causal_conv"):  # the package's: its FFTs are not seen
            self.points.append(2 * result.shape[-1] - 1)
        return result

    def expect_at_most(self, case: str, points: int) -> None:
        """Raise AssertionError unless there was a transform, and none had more points."""
        if not self.points:
            raise AssertionError(f"{case}: the numbers are right; expected a transform of torch.fft, given none")
        if max(self.points) > points:
            raise AssertionError(f"{case}: the numbers are right; expected transforms of at most {points} points, "
                                 f"given one of {max(self.points)}")
