"""Checkers for the exercises of chapter 3, wrap-around."""

import cmath
import math
from collections.abc import Callable

import torch

from . import Wrong, checker, drawer, expect
from .counting import Watch

__all__ = ["enough_points", "leaking_tokens", "multiply_mod", "separate"]


@checker
def leaking_tokens(answer: Callable) -> str:
    """Check `leaking_tokens(length, nonzero, points, t)`: the later tokens whose content reaches output t."""
    cases = [(length, nonzero, points, t) for length in (3, 2, 1, 5, 8)
             for nonzero in {1, (length + 1) // 2, length}
             for points in range(length, 2 * length + 1) for t in range(length)]
    for length, nonzero, points, t in cases:
        def later(first: int, t=t, length=length) -> list[int]:
            return list(range(max(t + 1, first), length))

        # v_j g_k reaches t where j + k = t + points, and the last gate has k = nonzero - 1.
        expect(f"leaking_tokens{(length, nonzero, points, t)}", answer(length, nonzero, points, t),
               later(t + points - nonzero + 1), {
                   "one too many: g is zero from `nonzero` on, so its last index is one less":
                       later(t + points - nonzero),
                   "the gate ends at `nonzero`, and not with the text": later(t + points - length + 1),
                   "the smallest pair wraps around at `points`": later(t + points - length)})
    return f"{len(cases)} cases"


@checker
def enough_points(answer: Callable) -> str:
    """Check `enough_points(length, first)`: the fewest points on which no output from `first` on is contaminated."""
    cases = [(length, first) for length in range(1, 9) for first in range(length)]
    for length, first in cases:
        fewest = 2 * length - 1 - first                         # the last contaminated output is 2L - 2 - N
        expect(f"enough_points{(length, first)}", answer(length, first), fewest, {
            "outputs before `first` may be wrong": 2 * length - 1,
            "one more than needed: output 2L - 2 - N is the last that is contaminated": fewest + 1})
    return f"{len(cases)} cases"


@checker
def separate(answer: Callable) -> str:
    """Check `separate(out_1, out_2, phi_1, phi_2)`: both halves of a complex product, or a ValueError."""
    turns = ((0.0, math.pi), (0.5, 2.0), (math.pi / 2, -math.pi / 2), (0.3, 0.31))
    refused = ((0.3, 0.3), (0.0, 2 * math.pi), (-math.pi / 2, 3 * math.pi / 2))
    draw = drawer(3)
    for length in (1, 5):
        for angles in turns:
            low, high = draw(2, length, dtype=torch.complex128)
            first, second = (low + cmath.exp(1j * angle) * high for angle in angles)
            case = f"separate for length {length}, angles {angles[0]:.4g} and {angles[1]:.4g}"
            try:
                given = answer(first, second, *angles)
            except ValueError as error:
                raise Wrong(f"{case}: these two will do, given ValueError('{error}')") from None
            expect(case, given, {"first half": low, "second half": high}, {
                "half the sum and half the difference are right for the angles 0 and pi alone": (
                    (first + second) / 2, (first - second) / 2),
                "the two halves are exchanged": (high, low)})
    for angles in refused:
        try:
            answer(first, first, *angles)
        except ValueError:
            continue
        raise Wrong(f"separate for the angles {angles[0]:.4g} and {angles[1]:.4g}: expected a ValueError, given an "
                    "answer; angles that differ by whole turns give the same output twice")
    return f"2 lengths, {len(turns)} pairs of angles that will do and {len(refused)} that will not"


@checker
def multiply_mod(answer: Callable) -> str:
    """Check `multiply_mod(a, b, limbs, bits)`: a * b modulo 2**(limbs * bits) + 1, by transforms of `limbs` points."""
    cases = [(limbs, bits) for limbs in (1, 2, 3, 8, 64) for bits in (1, 4, 12)] + [(256, 16)]
    source = torch.Generator().manual_seed(3)
    for limbs, bits in cases:
        n = limbs * bits
        x = int("".join(map(str, torch.randint(2, (n,), generator=source).tolist())), 2)
        for a, b in ((x, x ^ 1), (2**n - 1, 2**n - 1), (1, x), (0, x)):
            case = f"multiply_mod({a}, {b}, {limbs}, {bits})" if n <= 64 else f"multiply_mod of {limbs} x {bits} bits"
            with Watch() as seen:
                given = answer(a, b, limbs, bits)
            expect(case, given, a * b % (2**n + 1), {
                "take the remainder modulo 2**n + 1 at the end":
                    lambda a=a, b=b, size=(limbs, bits): _folded(a, b, *size, -1),
                "digits that wrap around change their sign, since 2**n is -1: twist them before the transform":
                    lambda a=a, b=b, size=(limbs, bits), n=n: _folded(a, b, *size, 1) % (2**n + 1)})
            seen.require_points(case, limbs)
    return f"{len(cases)} sizes up to {256 * 16} bits"


def _folded(a: int, b: int, limbs: int, bits: int, sign: int) -> int:
    """Add up the products of all pairs of digits; those from 2**n on return with a sign."""
    first, second = ([x >> j * bits & (2**bits - 1) for j in range(limbs)] for x in (a, b))
    return sum(x * y * (1 if j + k < limbs else sign) << (j + k) % limbs * bits
               for j, x in enumerate(first) for k, y in enumerate(second))
