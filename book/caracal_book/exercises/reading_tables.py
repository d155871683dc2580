"""Checkers for the exercises of investigation C, reading the paper's tables."""

import math
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from . import checker, expect

__all__ = ["error_of_difference", "expected_spread", "items_needed"]


@checker
def expected_spread(answer: Callable) -> str:
    """Check `expected_spread(models, error)`: how far the highest score of equals is above the lowest, in the mean.

    The scores are independent draws of one normal distribution with the standard deviation `error`, in points.  The
    answer may be simulated, so 2 percent off is accepted; the mean of 100,000 tables is closer than that.
    """
    cases = [(2, 1.7), (3, 1.7), (5, 1.7), (10, 0.4), (20, 0.4), (2, 0.3), (13, 2.2)]
    for models, error in cases:
        right, given = error * _mean_range(models), answer(models, error)
        expect(f"expected_spread({models}, {error})", given, right, {
            "that is the number of errors; the distance is in points": right / error,
            "error is a standard deviation and not a variance": right * error,
            "that is the highest above the mean of all, and the lowest is as far below it": right / 2,
            "that is the standard deviation of a difference; the mean distance is asked": 2**0.5 * error,
            "that is the mean distance of two models, however many there are": 2 / math.pi**0.5 * error,
            "that is the standard deviation of one model": error,
            "if this is simulated, draw more tables": given if 0.95 * right < given < 1.05 * right else math.nan}, 0.02)
    return f"{len(cases)} tables"


def _mean_range(models: int) -> float:
    """Return the mean of highest minus lowest of so many standard normal draws, to ten digits.

    A threshold x lies between the two unless all draws are below it or all above, and the range is the integral over
    x of that chance.
    """
    below = torch.special.ndtr(torch.arange(-640, 641, dtype=torch.float64) / 64)
    return float((1 - below**models - (1 - below)**models).sum() / 64)


@checker
def error_of_difference(answer: Callable) -> str:
    """Check `error_of_difference(first, second)`: (unpaired, paired) standard error of a difference of accuracies.

    first and second are 0 or 1 for each of the same n items, `(n,)`, float64.  A variance may be divided by n or by
    n - 1: what lies between the two, a quarter of a percent at most, is accepted.
    """
    source = torch.Generator().manual_seed(9)

    def drawn(n: int, p: float) -> Tensor:
        return (torch.rand(n, generator=source) < p).double()

    same, other, copied, better = drawn(400, 0.7), drawn(200, 0.65), drawn(300, 0.6), drawn(250, 0.85)
    cases = {"identical answers": (same, same), "opposite answers": (other, 1 - other),
             "independent answers": (drawn(1000, 0.9), drawn(1000, 0.3)),
             "answers that differ in one item of ten": (copied, (copied - drawn(300, 0.1)).abs()),
             "a model that is right only where the first is right": (better, better * drawn(250, 0.6))}
    for what, (first, second) in cases.items():
        n, d = len(first), first - second
        a, b = (float(p.mean() * (1 - p.mean()) / n) for p in (first, second))
        unpaired, paired = (a + b)**0.5, (float((d**2).mean() - d.mean()**2) / n)**0.5
        expect(f"error_of_difference of {what}, n={n}, accuracies {first.mean():.3f} and {second.mean():.3f}",
               answer(first.clone(), second.clone()), {"unpaired": unpaired, "paired": paired}, {
            "unpaired first, then paired": (paired, unpaired),
            "the second comes from the differences of the answers": (unpaired, unpaired),
            "the mean of the differences counts, too: a variance is around it": (
                unpaired, (float((d**2).mean()) / n)**0.5),
            "variances add up, and not standard errors": (a**0.5 + b**0.5, paired),
            "that is the deviation of one answer: the error of the mean is smaller by the root of n": (
                unpaired * n**0.5, paired * n**0.5)}, 0.003)
    return f"{len(cases)} pairs of models"


@checker
def items_needed(answer: Callable) -> str:
    """Check `items_needed(p, q, correlation)`: the fewest items that put two accuracies two standard errors apart."""
    cases = [(p, q, c) for (p, q), c in product([(0.5, 0.25), (0.164, 0.088), (0.6, 0.9), (0.503, 0.49)],
                                                [0.0, 0.5, 0.2, -0.3])]
    for p, q, c in cases:
        a, b = p * (1 - p), q * (1 - q)
        exact = 4 * (a + b - 2 * c * (a * b)**0.5) / (p - q)**2  # one is whole, 28, and free of rounding errors
        expect(f"items_needed({p}, {q}, {c})", answer(p, q, c), math.ceil(exact), {
            "that is for one standard error": math.ceil(exact / 4), "round up to whole items": math.floor(exact),
            "give a whole number, rounded up": exact,
            "the correlation is not used": math.ceil(4 * (a + b) / (p - q)**2),
            "the correlation takes off twice c times the root of ab": math.ceil(
                4 * (a + b - c * (a * b)**0.5) / (p - q)**2)})
    return f"{len(cases)} pairs of models"
