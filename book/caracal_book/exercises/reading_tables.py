"""Checkers for the exercises of investigation C, reading the paper's tables.

Answers of models are drawn from fixed seeds.
"""

import math
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from . import checker, expect_numbers

__all__ = ["error_of_difference", "expected_spread", "items_needed"]


@checker
def expected_spread(answer: Callable[[int, float], float]) -> str:
    """Check `expected_spread(models, error)`: how far the highest score of equals is above the lowest, in the mean.

    The scores are independent draws of one normal distribution with the standard deviation `error`, in points.  The
    answer may be simulated, so 2 percent off is accepted; the mean of 100,000 tables is closer than that.
    """
    cases = [(2, 1.7), (3, 1.7), (5, 1.7), (10, 0.4), (20, 0.4), (5, 1.0), (2, 0.3), (3, 12.0), (13, 2.2)]
    for models, error in cases:
        right = error * _mean_range(models)
        case = f"expected_spread({models}, {error})"
        given = expect_numbers(case, [answer(models, error)], ("spread",))["spread"]
        if not abs(given - right) <= 0.02 * right:  # also where given is nan
            raise AssertionError(f"{case}: expected {right:.5g}, given {given:.5g}"
                                 f"{_hint_on_spread(given, models, error, right)}")
    return f"{len(cases)} tables"


def _mean_range(models: int) -> float:
    """Return the mean of highest minus lowest of so many standard normal draws, to ten digits.

    A threshold x lies between the two unless all draws are below it or all above, and the range is the integral over
    x of that chance.
    """
    def chance(x: float) -> float:
        below = (1 + math.erf(x / 2**0.5)) / 2
        return 1 - below**models - (1 - below)**models

    return _sum_over(chance)


def _mean_of_largest_size(models: int) -> float:
    """Return the mean of the largest of so many standard normal draws, taken without their signs."""
    return _sum_over(lambda x: (1 - math.erf(abs(x) / 2**0.5)**models) / 2)


def _sum_over(function: Callable[[float], float]) -> float:
    step = 1 / 64
    return step * sum(function(step * k) for k in range(-640, 641))


def _hint_on_spread(given: float, models: int, error: float, right: float) -> str:
    """Return what a wrong distance suggests, or "" if it has no usual cause."""
    mistakes = {
        "that is the number of errors; the distance is in points": right / error,
        "error is a standard deviation already, so take no root": right / error**0.5,
        "error is a standard deviation and not a variance": right * error,
        "that is the highest above the mean of all, and the lowest is as far below it": right / 2,
        "that is the standard deviation of a difference; the mean distance is asked": 2**0.5 * error,
        "that is the mean distance of two models, however many there are": 2 / math.pi**0.5 * error,
        "that is the standard deviation of one model": error,
        "that is two standard deviations": 2 * error,
        "that is the largest of the scores without their signs": error * _mean_of_largest_size(models),
        "the mean of so many scores has a smaller error than one of them": right / models**0.5,
        "one model is too many": error * _mean_range(models + 1),
    }
    if models > 2:
        mistakes["one model is missing"] = error * _mean_range(models - 1)
    for said, other in mistakes.items():
        if abs(given - other) < 0.01 * other and not math.isclose(other, right):
            return f"; {said}"
    return "; if this is simulated, draw more tables" if abs(given - right) < 0.05 * right else ""


@checker
def error_of_difference(answer: Callable[[Tensor, Tensor], tuple[float, float]]) -> str:
    """Check `error_of_difference(first, second)`: (unpaired, paired) standard error of a difference of accuracies.

    first and second are 0 or 1 for each of the same n items, `(n,)`, float64.  A variance may be divided by n or by
    n - 1: what lies between the two, a quarter of a percent at most, is accepted.
    """
    cases = _two_models()
    for what, first, second in cases:
        n = len(first)
        case = f"error_of_difference of {what}, n={n}"
        p1, p2, d = float(first.mean()), float(second.mean()), first - second
        right = {"unpaired": ((p1 * (1 - p1) + p2 * (1 - p2)) / n)**0.5,
                 "paired": (float((d**2).mean() - d.mean()**2) / n)**0.5}
        given = expect_numbers(case, answer(first.clone(), second.clone()), tuple(right))
        for name, low in right.items():
            high = low * (n / (n - 1))**0.5
            if not (1 - 1e-4) * low - 1e-5 * (low == 0) <= given[name] <= (1 + 1e-4) * high + 1e-5 * (low == 0):
                hint = "; unpaired first, then paired" if _swapped(given, right) else ""
                raise AssertionError(f"{case}: {name} expected {low:.5g}, given {given[name]:.5g}; "
                                     f"the accuracies are {p1:.3f} and {p2:.3f}{hint}")
    return f"{len(cases)} pairs of models"


def _swapped(given: dict[str, float], right: dict[str, float]) -> bool:
    unpaired, paired = right.values()
    if math.isclose(unpaired, paired, rel_tol=0.02):  # too close to tell
        return False
    return all(math.isclose(found, other, rel_tol=0.005, abs_tol=1e-5)
               for found, other in zip(given.values(), (paired, unpaired), strict=True))


def _two_models() -> list[tuple[str, Tensor, Tensor]]:
    """Return what two models have in common, and 0 or 1 for each item, first and second, `(n,)`."""
    source = torch.Generator().manual_seed(9)

    def drawn(n: int, p: float) -> Tensor:
        return (torch.rand(n, generator=source) < p).double()

    same, other, copied = drawn(400, 0.7), drawn(200, 0.65), drawn(300, 0.6)
    slips, better, worse = drawn(300, 0.1), drawn(250, 0.85), drawn(600, 0.4)
    return [
        ("identical answers", same, same),
        ("opposite answers", other, 1 - other),
        ("independent answers", drawn(1000, 0.9), drawn(1000, 0.3)),
        ("independent answers near chance", drawn(2000, 0.27), drawn(2000, 0.25)),
        ("answers that differ in one item of ten", copied, (copied - slips).abs()),
        ("a model that is right only where the first is right", better, better * drawn(250, 0.6)),
        ("a model that is right mostly where the first is wrong", worse, (1 - worse) * drawn(600, 0.9)),
        ("a model that is always right and one that is not", torch.ones(200).double(), drawn(200, 0.5)),
    ]


@checker
def items_needed(answer: Callable[[float, float, float], int]) -> str:
    """Check `items_needed(p, q, correlation)`: the fewest items that put two accuracies two standard errors apart.

    p and q are accuracies between 0 and 1, and the answers to one item have the correlation given.
    """
    cases = [(p, q, c) for (p, q), c in product([(0.5, 0.25), (0.164, 0.088), (0.32, 0.35), (0.6, 0.9), (0.503, 0.49)],
                                                [0.0, 0.5, 0.2, 0.41, -0.3])]
    for p, q, c in cases:
        a, b = p * (1 - p), q * (1 - q)
        exact = 4 * (a + b - 2 * c * (a * b)**0.5) / (p - q)**2
        case = f"items_needed({p}, {q}, {c})"
        given = expect_numbers(case, [answer(p, q, c)], ("items",))["items"]
        expected = math.ceil(exact)  # one is whole, 28, and free of rounding errors
        if given != expected:
            raise AssertionError(f"{case}: expected {expected}, given {given:.10g}{_hint(given, exact, p, q, a, b)}")
    return f"{len(cases)} pairs of models"


def _hint(given: float, exact: float, p: float, q: float, a: float, b: float) -> str:
    """Return what the answer seems to have left out."""
    uncorrelated = 4 * (a + b) / (p - q)**2
    for said, other in (("that is for one standard error", exact / 4), ("round up to whole items", exact),
                        ("the correlation is not used", uncorrelated)):
        if abs(given - other) < 1e-6 * other or given == (math.floor if other == exact else math.ceil)(other):
            return f"; {said}"
    return ""
