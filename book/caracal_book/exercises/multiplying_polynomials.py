"""Checkers for the exercises of chapter 2, multiplying polynomials: right, and with no more work than is allowed."""

import random
from collections.abc import Callable

import torch
from torch import Tensor

from caracal_min.convolution import linear_conv

from . import checker, drawer, ensure, expect
from .counting import PRODUCTS, Watch

__all__ = ["deciders", "fft_3", "integer_product", "karatsuba"]


@checker
def deciders(answer: Callable) -> str:
    """Check `deciders(t, j, width)`: the tokens from which the weight of v_j in r_t is computed."""
    cases = [(t, j, width) for width in (3, 1, 4) for t in range(7) for j in range(8)]
    for t, j, width in cases:
        gate = t - j
        reach = list(range(gate - width + 1, gate + 1)) if gate >= 0 else []
        expect(f"deciders(t={t}, j={j}, width={width})", answer(t, j, width), [k for k in reach if k >= 0], {
            "the gate is computed from a short convolution, which reads the tokens before it, too": [gate],
            "the gate alone decides the weight, and not the two tokens that the weight joins": sorted({j, t}),
            "there are no tokens before token 0": reach})
    return f"{len(cases)} cases"


@checker
def integer_product(answer: Callable) -> str:
    """Check `integer_product(a, b, multiply)`: the exact product of two lists of digits, by one call of `multiply`.

    `multiply` rounds as an FFT in float64 does, and takes at most len(a) / 4 + 1 coefficients.
    """
    counts, source = (1, 2, 7, 100, 1001, 4200), random.Random(2)
    for count in counts:
        a, b = ([source.randint(0, 9) for _ in range(count)] for _ in range(2))
        case, calls = f"integer_product of two numbers with {count} digits", []

        def multiply(v: Tensor, g: Tensor, calls: list = calls) -> Tensor:
            n = 1 << (len(v) + len(g)).bit_length()
            product = torch.fft.ifft(torch.fft.fft(v + 0j, n=n) * torch.fft.fft(g + 0j, n=n)).real
            calls.append((max(len(v), len(g)), product[:len(v) + len(g) - 1]))
            return calls[-1][1].clone()

        given = answer(list(a), list(b), multiply)
        expect(f"{case}, calls of multiply", len(calls), 1, {"make the product with multiply": 0})
        length, product = calls[0]
        ensure(length <= count / 4 + 1, f"{case}: multiply was given {length} coefficients, expected at most {count} / "
                                        "4 + 1; put more digits into each")
        ensure(type(given) is int, f"{case}: expected an int, given a {type(given).__name__}")
        off, largest = given - _horner(a, 1) * _horner(b, 1), float(product.abs().max())
        cut = _horner([int(c) for c in product.tolist()], -(-count // length))
        ensure(not off, f"{case}: the product is wrong; " + (
            f"your coefficients reach {largest:.0e}, float64 counts to 9e+15, and the FFT rounds some of these digits"
            if largest > 1e15 else "round the coefficients: int() cuts off what is a little too small"
            if given == cut else "round each coefficient, and let Horner's rule carry"))
    return f"numbers of {counts[0]} to {counts[-1]} digits"


def _horner(coefficients: list[int], m: int) -> int:
    """Return the value at 10^m."""
    value = 0
    for coefficient in reversed(coefficients):
        value = value * 10**m + coefficient
    return value


@checker
def karatsuba(answer: Callable) -> str:
    """Check `karatsuba(v, g, times)`: the product of two lists of 2^p numbers by 3^p calls of `times`."""
    source, largest = random.Random(2), 6
    for p in range(largest):
        v, g = ([source.randint(-99, 99) for _ in range(2**p)] for _ in range(2))
        calls = []

        def times(a: int, b: int, calls: list = calls) -> int:
            calls.append(a)
            return a * b

        case = f"karatsuba with {2**p} numbers a list"
        right = linear_conv(torch.tensor(v, dtype=torch.float64), torch.tensor(g, dtype=torch.float64)).round().tolist()
        expect(case, answer(list(v), list(g), times), right)
        expect(f"{case}, calls of times", len(calls), 3**p, {
            "use times for every product": 0,
            "four products of half the size; the two in the middle take one, from (v' + v'')(g' + g'')": 4**p})
    return f"lists of 1 to {2 ** (largest - 1)} numbers"


@checker
def fft_3(answer: Callable) -> str:
    """Check `fft_3(v)`: the discrete Fourier transform of 3^p complex numbers, in O(N log N) operations of torch."""
    draw, levels = drawer(2), 7
    for p in range(levels):
        N, most = 3**p, 60 * p * 3**p  # some three times what it takes
        v = draw(N, dtype=torch.complex128)
        case = f"fft_3 with {N} points"
        with Watch() as seen:
            given = answer(v.clone())
        expect(case, given, torch.fft.fft(v), {"the points are exp(-2 pi i n / N), and here is the sign of the inverse":
                                               torch.fft.ifft(v) * N})
        seen.require_torch(case)
        seen.forbid(case, ("fft_",), "write the transform with other operations of torch")
        seen.forbid(case, PRODUCTS, "a matrix of all N^2 powers is too much: split by the remainder of the exponent")
        ensure(p < 3 or seen.numbers <= most, f"{case}: {seen.numbers:,} numbers were computed, expected at most "
               f"{most:,}; a matrix of all N^2 powers is too much")
    return f"{levels} powers of three"
