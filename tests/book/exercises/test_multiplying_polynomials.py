"""The checkers of chapter 2: the answers that they accept, and those that they reject with what they say."""

import cmath
import math

import numpy as np
import torch
from exercise_answers import Answers

from caracal_book.exercises import multiplying_polynomials as check


def right_deciders(t, j, taps):
    return list(range(max(0, t - j - taps + 1), t - j + 1)) if j <= t else []


def by_halves(v, g, times, products=3, smallest=1, shift=0):
    """Multiply two lists by recursion, with three or four products of halves."""
    n = len(v)
    if n <= smallest:
        return loops(v, g, times)
    h = n // 2
    a, b, c, d = v[:h], v[h:], g[:h], g[h:]
    again = [products, smallest, shift]
    low, high = by_halves(a, c, times, *again), by_halves(b, d, times, *again)
    if products == 3:
        both = by_halves([x + y for x, y in zip(a, b, strict=True)], [x + y for x, y in zip(c, d, strict=True)],
                         times, *again)
        middle = [x - y - z for x, y, z in zip(both, low, high, strict=True)]
    elif products == 4:
        pair = by_halves(a, d, times, *again), by_halves(b, c, times, *again)
        middle = [x + y for x, y in zip(*pair, strict=True)]
    else:
        middle = [0] * len(low)
    product = [0] * (2 * n - 1)
    for k in range(2 * h - 1):
        product[k] += low[k]
        product[k + h - (shift if h > 1 else 0)] += middle[k]
        product[k + 2 * h] += high[k]
    return product


def loops(v, g, times):
    product = [0] * (len(v) + len(g) - 1)
    for j, a in enumerate(v):
        for i, b in enumerate(g):
            product[j + i] += times(a, b)
    return product


def in_groups(a, b, multiply, k=5, rounded=round, times=1):
    """Multiply two lists of digits in groups of k, with `times` products of polynomials."""
    v, g = (torch.tensor(x + [0] * (-len(x) % k), dtype=torch.float64).view(-1, k)
            @ 10.0 ** torch.arange(k, dtype=torch.float64) for x in (a, b))
    for _ in range(times):
        product = multiply(v, g)
    value = 0
    for c in reversed(product.tolist()):
        value = value * 10**k + rounded(c)
    return value


def by_halving(roots, multiply):
    if len(roots) == 1:
        return torch.stack([-roots[0], torch.ones_like(roots[0])])
    h = len(roots) // 2
    return multiply(by_halving(roots[:h], multiply), by_halving(roots[h:], multiply))


def rounds(roots, multiply, keep_odd=True):
    players = [torch.stack([-a, torch.ones_like(a)]) for a in roots]
    while len(players) > 1:
        odd = [players[-1]] if keep_odd and len(players) % 2 else []
        players = [multiply(a, b) for a, b in zip(players[::2], players[1::2], strict=False)] + odd
    return players[0]


def one_after_the_other(roots, multiply):
    product = torch.stack([-roots[0], torch.ones_like(roots[0])])
    for a in roots[1:]:
        product = multiply(product, torch.stack([-a, torch.ones_like(a)]))
    return product


def by_thirds(v, sign=-1, order=(0, 1, 2), twiddle=True):
    n = len(v)
    if n == 1:
        return v
    a, b, c = (by_thirds(v[r::3], sign, order, twiddle) for r in order)
    z = torch.exp(sign * 2j * math.pi * torch.arange(n // 3, dtype=torch.float64) / n) if twiddle else 1
    w = complex(-0.5, sign * math.sqrt(0.75))
    b, c = z * b, z * z * c
    return torch.cat([a + b + c, a + w * b + w * w * c, a + w * w * b + w * c])


def points(n):
    return torch.exp(-2j * math.pi * torch.arange(n, dtype=torch.float64) / n)


def horner_everywhere(v):
    value = torch.zeros_like(v)
    for c in v.flip(0):
        value = value * points(len(v)) + c
    return value


def sums_of_python(numbers):
    n = len(numbers)
    return torch.tensor([sum(x * cmath.exp(-2j * math.pi * j * k / n) for j, x in enumerate(numbers))
                         for k in range(n)], dtype=torch.complex128)


RIGHT = {
    check.deciders: [right_deciders],
    check.integer_product: [in_groups, lambda a, b, multiply: in_groups(a, b, multiply, k=4)],
    check.karatsuba: [by_halves],
    check.from_roots: [rounds, by_halving],
    check.fft_3: [by_thirds],
}
WRONG = {
    check.deciders: {
        "the two tokens that it joins": lambda t, j, taps: sorted({j, t}) if j <= t else [],
        "forgets the short convolution": lambda t, j, taps: [t - j] if j <= t else [],
        "does not stop at the first token": lambda t, j, taps: list(range(t - j - taps + 1, t - j + 1)),
        "the neighbours of token j": lambda t, j, taps: list(range(max(0, j - taps + 1), j + 1)) if j <= t else [],
        "looks ahead": lambda t, j, taps: list(range(t - j, t - j + taps)) if j <= t else [],
        "falling": lambda t, j, taps: right_deciders(t, j, taps)[::-1],
        "returns a range": lambda t, j, taps: range(max(0, t - j - taps + 1), t - j + 1),
        "forgets to return": lambda t, j, taps: None,
    },
    check.integer_product: {
        "seven digits in a group": lambda a, b, multiply: in_groups(a, b, multiply, k=7),
        "three digits in a group": lambda a, b, multiply: in_groups(a, b, multiply, k=3),
        "cuts off where it should round": lambda a, b, multiply: in_groups(a, b, multiply, rounded=int),
        "two products": lambda a, b, multiply: in_groups(a, b, multiply, times=2),
        "without multiply": lambda a, b, multiply: int("".join(map(str, a[::-1]))) * int("".join(map(str, b[::-1]))),
        "the tens first": lambda a, b, multiply: in_groups(a[::-1], b[::-1], multiply),
        "not an int": lambda a, b, multiply: str(in_groups(a, b, multiply)),
        "forgets to return": lambda a, b, multiply: in_groups(a, b, multiply) and None,
    },
    check.karatsuba: {
        "four products": lambda v, g, times: by_halves(v, g, times, products=4),
        "two products, no middle": lambda v, g, times: by_halves(v, g, times, products=2),
        "the two loops": loops,
        "stops at two": lambda v, g, times: by_halves(v, g, times, smallest=2),
        "middle one place too low": lambda v, g, times: by_halves(v, g, times, shift=1),
        "does not use times": lambda v, g, times: by_halves(v, g, lambda a, b: a * b),
        "forgets the top coefficient": lambda v, g, times: by_halves(v, g, times)[:-1],
    },
    check.from_roots: {
        "one after the other": one_after_the_other,
        "a product of its own": lambda roots, multiply: rounds(roots, lambda a, b: torch.from_numpy(
            np.convolve(a.numpy(), b.numpy()))),
        "drops whoever has no neighbour": lambda roots, multiply: rounds(roots, multiply, keep_odd=False),
        "plus in place of minus": lambda roots, multiply: rounds(-roots, multiply),
        "highest power first": lambda roots, multiply: rounds(roots, multiply).flip(0),
        "without the leading one": lambda roots, multiply: rounds(roots, multiply)[:-1],
        "in float32": lambda roots, multiply: rounds(roots.float(), multiply),
    },
    check.fft_3: {
        "the library": torch.fft.fft,
        "numpy": lambda v: torch.from_numpy(np.fft.fft(v.numpy())),
        "two loops of Python": lambda v: sums_of_python([x.item() for x in v]),
        "two loops of Python, by complex": lambda v: sums_of_python([complex(x) for x in v]),
        "the matrix": lambda v: points(len(v)) ** torch.arange(len(v))[:, None] @ v,
        "Horner at every point": horner_everywhere,
        "the inverse direction": lambda v: by_thirds(v, sign=1),
        "thirds in the wrong order": lambda v: by_thirds(v, order=(0, 2, 1)),
        "no factors z": lambda v: by_thirds(v, twiddle=False),
        "real part only": lambda v: by_thirds(v).real,
        "the input itself": lambda v: v,
        "nan": lambda v: by_thirds(v) * float("nan"),
    },
}
REASONS = [
    (check.deciders, "the two tokens that it joins", "deciders(t=1, j=1, taps=3): expected [0], given [1]"),
    (check.deciders, "forgets to return", "given None"),
    (check.integer_product, "seven digits in a group", "numbers with 1001 digits: digit "),
    (check.integer_product, "three digits in a group", "multiply was given 3 coefficients, expected at most 7 / 4 + 1"),
    (check.integer_product, "two products", "calls of multiply: expected 1, given 2"),
    (check.integer_product, "without multiply", "calls of multiply: expected 1, given 0"),
    (check.integer_product, "not an int", "expected an int, given a str"),
    (check.karatsuba, "four products", "2 numbers a list, calls of times: expected 3, given 4"),
    (check.karatsuba, "stops at two", "2 numbers a list, calls of times: expected 3, given 4"),
    (check.karatsuba, "does not use times", "1 numbers a list, calls of times: expected 1, given 0"),
    (check.from_roots, "one after the other", "the degrees of all products add up to"),
    (check.from_roots, "a product of its own", "multiply was called 0 times, expected 1"),
    (check.from_roots, "drops whoever has no neighbour", "from_roots with 3 roots: expected shape (4,)"),
    (check.fft_3, "the library", "fft_3 with 1 points: fft_fft was called"),
    (check.fft_3, "numpy", "numpy was called"),
    (check.fft_3, "two loops of Python", "item was called"),
    (check.fft_3, "the matrix", "numbers were computed"),
    (check.fft_3, "Horner at every point", "numbers were computed"),
    (check.fft_3, "thirds in the wrong order", "fft_3 with 3 points, real part: entry [1] should be"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
