"""The checkers of chapter 3: the answers that they accept, and those that they reject with what they say."""

import cmath
import math

import numpy as np
import pytest
import torch
from exercise_answers import Answers
from torch.fft import fft, ifft
from torch.nn.functional import pad

from caracal_book.exercises import wrap_around as check
from caracal_min.convolution import causal_conv_direct, causal_conv_fft, causal_conv_right_angle, circular_conv

THIRDS = (0.0, 2 * math.pi / 3, 4 * math.pi / 3)


def mean_over_turns(u, v, g, thetas=THIRDS):
    total = 0
    for theta in thetas:
        twist = torch.exp(1j * theta * torch.arange(len(u), dtype=u.dtype) / len(u))
        total = total + ifft(fft(u * twist) * fft(v * twist) * fft(g * twist)) / twist
    return total.real / len(thetas)


def triple(u, v, g, first=mean_over_turns):
    """Return what `first` makes of the three, and what the real part at a right angle has beside the right answer."""
    beside = mean_over_turns(u, v, g, (math.pi / 2,)) - mean_over_turns(u, v, g)
    return first(u, v, g), beside


def padded_triple(u, v, g):
    n = 3 * len(u)
    return torch.fft.irfft(torch.fft.rfft(torch.stack([u, v, g]), n=n).prod(0), n=n)[:len(u)]


def padded_pair(v, g):
    n = 2 * len(v)
    return ifft(fft(v, n=n) * fft(g, n=n))[:len(v)].real


def two_right_angles(u, v, g):
    return causal_conv_right_angle(causal_conv_right_angle(u, v), g)


def two_right_angles_in_place(u, v, g):
    pair = torch.empty_like(u)
    pair[:] = causal_conv_right_angle(u, v)
    return causal_conv_right_angle(pair, g)


def direct_triple(u, v, g):
    u, v, g = (pad(x, (0, 2 * len(x))) for x in (u, v, g))
    first, _, last = causal_conv_direct(causal_conv_direct(u, v), g).chunk(3)
    return first, -last


def by_numpy(u, v, g):
    return torch.from_numpy(np.convolve(np.convolve(u.numpy(), v.numpy()), g.numpy())[:len(u)])


def two_turns(first, second, theta_1, theta_2, near=1e-9):
    a, b = cmath.exp(1j * theta_1), cmath.exp(1j * theta_2)
    if abs(a - b) < near:
        raise ValueError("the two angles differ by a multiple of 2 pi")
    rest = (first - second) / (a - b)
    return first - a * rest, rest


def negacyclic_integers(a, b, limbs, bits, sign=-1, whole=lambda c: c.round(), remainder=True, points=None):
    n = points or limbs
    mask = 2**bits - 1
    x, y = (torch.tensor([k >> (bits * i) & mask for i in range(limbs)], dtype=torch.float64) for k in (a, b))
    angle = math.pi / n if sign < 0 else 0.0
    twist = torch.exp(1j * angle * torch.arange(n, dtype=torch.float64))
    out = ifft(fft(torch.nn.functional.pad(x, (0, n - limbs)) * twist)
               * fft(torch.nn.functional.pad(y, (0, n - limbs)) * twist)) / twist
    total = sum(int(c) << (bits * k) for k, c in enumerate(whole(out.real).tolist()))
    return total % (2**(limbs * bits) + 1) if remainder else total


def masked(a, b, limbs, bits):
    """Reduce each output to a digit, as if no carry were needed."""
    return negacyclic_integers(a, b, limbs, bits, whole=lambda c: c.round() % 2**bits)


RIGHT = {
    check.leaking_tokens: [
        lambda length, nonzero, points, t: list(range(t + points - nonzero + 1, length)),
        lambda length, nonzero, points, t: range(t + points - nonzero + 1, length),
        lambda length, nonzero, points, t: [j for j in range(t + 1, length) if points - (j - t) < nonzero],
    ],
    check.separate: [two_turns, lambda *outputs: list(two_turns(*outputs))],
    check.causal_triple: [
        triple,
        lambda u, v, g: list(triple(u, v, g, lambda *three: mean_over_turns(*three, THIRDS[::-1]))),
    ],
    check.multiply_mod: [negacyclic_integers],
}
WRONG = {
    check.leaking_tokens: {
        "the contaminated outputs": lambda length, nonzero, points, t: list(range(length + nonzero - 1 - points)),
        "one too many": lambda length, nonzero, points, t: list(range(max(t + 1, t + points - nonzero), length)),
        "one too few": lambda length, nonzero, points, t: list(range(t + points - nonzero + 2, length)),
        "for a long gate": lambda length, nonzero, points, t: list(range(t + points - length + 1, length)),
        "everything after t": lambda length, nonzero, points, t: list(range(t + 1, length)),
        "the nearest instead of the farthest": lambda length, nonzero, points, t: list(
            range(t + 1, max(t + 1, min(length, length - points + nonzero)))),
        "in the wrong order": lambda length, nonzero, points, t: list(range(t + points - nonzero + 1, length))[::-1],
        "a set": lambda length, nonzero, points, t: set(range(t + points - nonzero + 1, length)),
        "forgets to return": lambda length, nonzero, points, t: None,
    },
    check.separate: {
        "real and imaginary part": lambda first, second, a, b: (first.real + 0j, first.imag + 0j),
        "mean and half difference": lambda first, second, a, b: ((first + second) / 2, (first - second) / 2),
        "first half alone": lambda first, second, a, b: two_turns(first, second, a, b)[0],
        "in the wrong order": lambda first, second, a, b: two_turns(first, second, a, b)[::-1],
        "second angle for the first output": lambda first, second, a, b: two_turns(second, first, a, b),
        "drops the imaginary part": lambda first, second, a, b: tuple(x.real for x in two_turns(first, second, a, b)),
        "first half from the wrong output": lambda first, second, a, b: (
            second - cmath.exp(1j * a) * two_turns(first, second, a, b)[1], two_turns(first, second, a, b)[1]),
        "answers for every pair of angles": lambda *outputs: two_turns(*outputs, near=-1),
        "refuses only equal angles": lambda first, second, a, b: two_turns(
            first, second, a, b, near=math.inf if a == b else -1),
        "refuses angles that are close": lambda *outputs: two_turns(*outputs, near=0.02),
        "keeps one entry fewer": lambda first, second, a, b: tuple(x[:-1] for x in two_turns(first, second, a, b)),
    },
    check.causal_triple: {
        **{name: lambda u, v, g, first=first: triple(u, v, g, first) for name, first in {
            "the real part at a right angle": lambda u, v, g: mean_over_turns(u, v, g, (math.pi / 2,)),
            "the mean of cyclic and negacyclic": lambda u, v, g: mean_over_turns(u, v, g, (0.0, math.pi)),
            "no turn at all": lambda u, v, g: mean_over_turns(u, v, g, (0.0,)),
            "the sum instead of the mean": lambda u, v, g: 3 * mean_over_turns(u, v, g),
            "padded to 3L": padded_triple,
            "padded, twice, by the package": lambda u, v, g: causal_conv_fft(causal_conv_fft(u, v), g),
            "padded, twice": lambda u, v, g: padded_pair(padded_pair(u, v), g),
            "two products at a right angle": two_right_angles,
            "two products at a right angle, the first copied": two_right_angles_in_place,
            "circular, twice": lambda u, v, g: circular_conv(circular_conv(u, v), g),
            "by NumPy": by_numpy,
            "complex": lambda u, v, g: mean_over_turns(u, v, g) + 0j,
            "float32": lambda u, v, g: mean_over_turns(u, v, g).float(),
        }.items()},
        "no transform, the direct sum": direct_triple,
        "nothing about the right angle": mean_over_turns,
        "the sign of what a right angle adds": lambda u, v, g: (triple(u, v, g)[0], -triple(u, v, g)[1]),
        "the imaginary part at a right angle": lambda u, v, g: (triple(u, v, g)[0], 0 * u),
    },
    check.multiply_mod: {
        "Python multiplies": lambda a, b, limbs, bits: a * b % (2**(limbs * bits) + 1),
        "cyclic": lambda *sizes: negacyclic_integers(*sizes, sign=1),
        "truncates instead of rounding": lambda *sizes: negacyclic_integers(*sizes, whole=lambda c: c.trunc()),
        "no remainder at the end": lambda *sizes: negacyclic_integers(*sizes, remainder=False),
        "modulo 2**n": lambda a, b, limbs, bits: a * b % 2**(limbs * bits),
        "no carries": masked,
        "drops the sign": lambda *sizes: negacyclic_integers(*sizes, whole=lambda c: c.round().abs()),
        "padded": lambda a, b, limbs, bits: negacyclic_integers(a, b, limbs, bits, sign=1, points=2 * limbs),
        "a float": lambda *sizes: float(negacyclic_integers(*sizes) % 2**60),
    },
}
REASONS = [
    (check.leaking_tokens, "one too many", "leaking_tokens(2, 1, 2, 0): expected [], given [1]"),
    (check.leaking_tokens, "forgets to return", "given None"),
    (check.separate, "mean and half difference", "angles 0.5 and 2: first half, real part: entry [0] should be"),
    (check.separate, "first half alone", "expected two tensors, given Tensor"),
    (check.separate, "answers for every pair of angles", "the angles 0.3 and 0.3: expected a ValueError"),
    (check.separate, "refuses only equal angles", "the angles 0 and 6.283: expected a ValueError"),
    (check.separate, "refuses angles that are close", "angles 0.3 and 0.31: expected both halves, given"),
    (check.causal_triple, "two products at a right angle", "expected the three values multiplied at each point"),
    (check.causal_triple, "two products at a right angle, the first copied", "expected the three values multiplied at"),
    (check.causal_triple, "by NumPy", "numpy was called, expected operations of torch alone"),
    (check.causal_triple, "nothing about the right angle", "expected two tensors, the coefficients and what"),
    (check.causal_triple, "the sign of what a right angle adds", "for length 3, what a right angle adds: entry [0]"),
    (check.causal_triple, "padded to 3L", "expected transforms of at most 1 points, given one of 3"),
    (check.causal_triple, "no transform, the direct sum", "expected a transform of torch.fft, given none"),
    (check.causal_triple, "the real part at a right angle", "length 3, the coefficients: entry [0] should be"),
    (check.multiply_mod, "Python multiplies", "expected a transform of torch.fft, given none"),
    (check.multiply_mod, "no remainder at the end", "multiply_mod(12, 7, 1, 4): expected 16, given 84"),
    (check.multiply_mod, "padded", "expected transforms of at most 1 points, given one of 2"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS


def test_a_long_number_is_not_printed_whole():
    with pytest.raises(AssertionError) as error:
        check.multiply_mod(lambda a, b, limbs, bits: negacyclic_integers(a, b, limbs, bits) + (limbs * bits > 500))
    assert "given a number that is larger by about 2**0" in str(error.value) and len(str(error.value)) < 200
