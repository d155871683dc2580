"""Checkers for the exercises of chapter 2, multiplying polynomials.

All but the first also count: an answer must be right and must not take more work than the exercise allows.
"""

import random
from collections.abc import Callable

import torch
from torch import Tensor

from . import checker, expect_close, expect_equal
from .counting import CountWork

__all__ = ["deciders", "fft_3", "integer_product", "karatsuba"]

_WORK = 60  # numbers computed for each point and each level of a transform: some three times what it takes


@checker
def deciders(answer: Callable[[int, int, int], list[int]]) -> str:
    """Check `deciders(t, j, width)`: the tokens from which the weight of v_j in r_t is computed."""
    cases = [(t, j, width) for width in (3, 1, 2, 4) for t in range(7) for j in range(8)]
    for t, j, width in cases:
        gate = t - j
        expected = [k for k in range(gate - width + 1, gate + 1) if k >= 0] if gate >= 0 else []
        expect_equal(f"deciders(t={t}, j={j}, width={width})", answer(t, j, width), expected)
    return f"{len(cases)} cases"


@checker
def integer_product(answer: Callable[[list, list, Callable[[Tensor, Tensor], Tensor]], int]) -> str:
    """Check `integer_product(a, b, multiply)`: the exact product of two lists of digits, by one call of `multiply`.

    `multiply` rounds as an FFT in float64 does, and takes at most len(a) / 4 + 1 coefficients.
    """
    counts, source = (1, 2, 3, 7, 100, 1001, 4200), random.Random(2)
    for count in counts:
        a, b = ([source.randint(0, 9) for _ in range(count)] for _ in range(2))
        lengths: list[int] = []

        def multiply(v: Tensor, g: Tensor) -> Tensor:
            lengths.append(max(len(v), len(g)))  # noqa: B023  (used in this round only)
            return _by_fft(v, g)

        case = f"integer_product of two numbers with {count} digits"
        given = answer(list(a), list(b), multiply)
        expect_equal(f"{case}, calls of multiply", len(lengths), 1)
        if lengths[0] > count / 4 + 1:
            raise AssertionError(f"{case}: multiply was given {lengths[0]} coefficients, "
                                 f"expected at most {count} / 4 + 1")
        if type(given) is not int:
            raise AssertionError(f"{case}: expected an int, given a {type(given).__name__}")
        expected = _from_digits(a) * _from_digits(b)
        if given != expected:
            place = next(k for k in range(3 * count) if (given - expected) % 10 ** (k + 1))
            right, wrong = (number // 10**place % 10 for number in (expected, given))
            raise AssertionError(f"{case}: digit {place} should be {right}, given {wrong}; the ones are digit 0")
    return f"numbers of {counts[0]} to {counts[-1]} digits"


def _by_fft(v: Tensor, g: Tensor) -> Tensor:
    length = len(v) + len(g) - 1
    n = 1 << (length - 1).bit_length()
    return torch.fft.ifft(torch.fft.fft(v + 0j, n=n) * torch.fft.fft(g + 0j, n=n)).real[:length]


def _from_digits(digits: list[int]) -> int:
    value = 0
    for digit in reversed(digits):
        value = 10 * value + digit
    return value


@checker
def karatsuba(answer: Callable[[list, list, Callable], list]) -> str:
    """Check `karatsuba(v, g, times)`: the product of two lists of 2^p numbers by 3^p calls of `times`."""
    source, largest = random.Random(2), 6
    for p in range(largest):
        v, g = ([source.randint(-99, 99) for _ in range(2**p)] for _ in range(2))
        calls = 0

        def times(a: int, b: int) -> int:
            nonlocal calls
            calls += 1
            return a * b

        case = f"karatsuba with {2**p} numbers a list"
        expected = [sum(v[j] * g[t - j] for j in range(2**p) if 0 <= t - j < 2**p) for t in range(2 ** (p + 1) - 1)]
        expect_equal(case, answer(list(v), list(g), times), expected)
        expect_equal(f"{case}, calls of times", calls, 3**p)
    return f"lists of 1 to {2 ** (largest - 1)} numbers"


@checker
def fft_3(answer: Callable[[Tensor], Tensor]) -> str:
    """Check `fft_3(v)`: the discrete Fourier transform of 3^p complex numbers, in O(n log n) operations of torch."""
    sizes = [3**p for p in range(7)]
    source = torch.Generator().manual_seed(2)
    for p, n in enumerate(sizes):
        v = torch.randn(n, dtype=torch.complex128, generator=source)
        expected = torch.fft.fft(v)
        case = f"fft_3 with {n} points"
        with CountWork() as counted:
            given = answer(v.clone())
        if isinstance(given, Tensor) and given.is_complex() and given.shape == expected.shape:
            expect_close(f"{case}, real part", given.real, expected.real)
            expect_close(f"{case}, imaginary part", given.imag, expected.imag)
        expect_close(case, given, expected)
        counted.expect_within_torch(case)
        transforms = sorted(name for name in counted.names if name.startswith("fft_"))
        if transforms:
            raise AssertionError(f"{case}: {transforms[0]} was called, expected operations of torch "
                                 "other than its transforms")
        if n >= 27 and not n <= counted.numbers <= _WORK * n * p:
            raise AssertionError(f"{case}: {counted.numbers:,} numbers were computed, "
                                 f"expected between {n:,} and {_WORK * n * p:,}, {_WORK} N for each level")
    return f"{len(sizes)} powers of three"
