"""The checkers of investigation D: the answers that they accept, and those that they reject with what they say."""

import math
import statistics

import numpy as np
import pytest
import torch
from exercise_answers import Answers

from caracal_book.exercises import reading_tables as check

MEAN_RANGES = {1: 0.0, 2: 1.12838, 3: 1.69257, 4: 2.05875, 5: 2.32593, 10: 3.07751, 20: 3.73495}  # d2 of control charts


def spread_by_simulation(models, error):
    scores = error * torch.randn(100_000, models)
    return (scores.amax(1) - scores.amin(1)).mean()


def spread_by_sorting(models, error):
    scores = np.sort(np.random.default_rng(0).normal(70, error, (100_000, models)))
    return scores[:, -1].mean() - scores[:, 0].mean()


def spread_by_the_highest(models, error):
    """Twice the mean of the highest, with the density of the highest."""
    x = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    below, density = torch.special.ndtr(x), torch.exp(-x**2 / 2) / math.sqrt(2 * math.pi)
    return 2 * error * torch.trapezoid(models * x * below**(models - 1) * density, x).item()


def spread_by_integral(models, error):
    below = [statistics.NormalDist(0, error).cdf(x * error / 50) for x in range(-400, 401)]
    return sum(1 - p**models - (1 - p)**models for p in below) * error / 50


def highest_above_mean(models, error):
    scores = error * np.random.default_rng(0).standard_normal((100_000, models))
    return float((scores.max(1) - scores.mean(1)).mean())


def largest_size(models, error):
    return float((error * torch.randn(200_000, models)).abs().amax(1).mean())


def uniform(models, error):
    scores = 12**0.5 * error * torch.rand(200_000, models)
    return float((scores.amax(1) - scores.amin(1)).mean())


def median_range(models, error):
    scores = error * torch.randn(200_000, models)
    return float((scores.amax(1) - scores.amin(1)).median())


def spread_of_spreads(models, error):
    scores = error * torch.randn(100_000, models)
    return float((scores.amax(1) - scores.amin(1)).std())


def distance_of_neighbours(models, error):
    scores = (error * torch.randn(100_000, models)).sort(1).values
    return float((scores[:, -1] - scores[:, -2]).mean())


def few_tables(models, error):
    scores = np.random.default_rng(2).normal(0, error, (30, models))
    return float(np.ptp(scores, axis=1).mean())


def spread_with(change):
    return lambda models, error: change(spread_by_the_highest(models, error), models, error)


def error_by_formula(first, second):
    n, d = len(first), first - second
    p1, p2 = first.mean(), second.mean()
    paired = ((d**2).mean() - d.mean()**2).sqrt() / n**0.5
    return (p1 * (1 - p1) / n + p2 * (1 - p2) / n).sqrt(), paired


def error_by_sample_variances(first, second):
    n = len(first)
    return math.sqrt((first.var() + second.var()) / n), (first - second).std().item() / math.sqrt(n)


def error_by_mixed_variances(first, second):
    a, b = first.numpy().astype(np.float32), second.numpy().astype(np.float32)
    return [np.sqrt(a.var(ddof=1) / len(a) + b.var() / len(b)), np.sqrt((a - b).var(ddof=1) / len(a))]


def error_by_counting(first, second):
    """From the four counts of a table: both right, one of them, none."""
    n = len(first)
    only_first, only_second = int((first > second).sum()), int((second > first).sum())
    p1, p2 = int(first.sum()) / n, int(second.sum()) / n
    different = only_first + only_second - (only_first - only_second)**2 / n
    return ((p1 * (1 - p1) + p2 * (1 - p2)) / n)**0.5, different**0.5 / n


def error_with(change):
    def error_of_difference(first, second):
        return change(*map(float, error_by_formula(first, second)), first, second, len(first))

    return error_of_difference


def items_by_formula(p, q, correlation):
    a, b = p * (1 - p), q * (1 - q)
    return math.ceil(4 * (a + b - 2 * correlation * math.sqrt(a * b)) / (p - q)**2)


def items_by_trying(p, q, correlation):
    a, b = p * (1 - p), q * (1 - q)
    for n in range(1, 10**6):
        if (p - q)**2 >= 4 * (a + b - 2 * correlation * math.sqrt(a * b)) / n - 1e-15:
            return n


def items_with(errors=2, correlation=lambda c: c, whole=math.ceil):
    def items_needed(p, q, c):
        a, b = p * (1 - p), q * (1 - q)
        return whole(errors**2 * (a + b - 2 * correlation(c) * math.sqrt(a * b)) / (p - q)**2)

    return items_needed


RIGHT = {
    check.expected_spread: [spread_by_simulation, spread_by_sorting, spread_by_the_highest, spread_by_integral,
                            spread_with(lambda right, *of: 1.015 * right),
                            spread_with(lambda right, *of: torch.tensor(0.985 * right))],
    check.error_of_difference: [error_by_formula, error_by_sample_variances, error_by_mixed_variances,
                                error_by_counting],
    check.items_needed: [items_by_formula, items_by_trying, items_with(),
                         lambda p, q, c: np.ceil(items_with(whole=float)(p, q, c))],
}
WRONG = {
    check.expected_spread: {
        "error of a difference": lambda models, error: 2**0.5 * error,
        "error forgotten": lambda models, error: spread_by_the_highest(models, 1.0),
        "a variance": lambda models, error: spread_by_the_highest(models, error**0.5),
        "error squared": lambda models, error: spread_by_the_highest(models, error**2),
        "highest above the mean": highest_above_mean,
        "highest without signs": largest_size,
        "highest without signs, twice": lambda models, error: 2 * largest_size(models, error),
        "two models": lambda models, error: spread_by_the_highest(2, error),
        "one model fewer": lambda models, error: spread_by_the_highest(models - 1, error),
        "one model more": lambda models, error: spread_by_the_highest(models + 1, error),
        "the error of a mean": lambda models, error: spread_by_the_highest(models, error / models**0.5),
        "one error": lambda models, error: error,
        "two errors": lambda models, error: 2 * error,
        "no error": lambda models, error: 0.0,
        "uniform": uniform,
        "median": median_range,
        "their own spread": spread_of_spreads,
        "first to second": distance_of_neighbours,
        "grows with the logarithm": lambda models, error: 2 * error * math.sqrt(2 * math.log(models)),
        "grows with the number": lambda models, error: (models - 1) * 2 / math.pi**0.5 * error,
        "few tables": few_tables,
        "2.1 percent more": spread_with(lambda right, *of: 1.021 * right),
        "2.1 percent less": spread_with(lambda right, *of: 0.979 * right),
        "below": spread_with(lambda right, *of: -right),
        "nan": lambda models, error: math.nan,
        "infinite": lambda models, error: math.inf,
        "a word": lambda models, error: "far",
        "both": lambda models, error: (spread_by_the_highest(models, error), error),
        "all tables": lambda models, error: torch.ones(10) * error,
    },
    check.error_of_difference: {
        "unpaired twice": error_with(lambda u, p, *rest: (u, u)),
        "paired twice": error_with(lambda u, p, *rest: (p, p)),
        "paired first": error_with(lambda u, p, *rest: (p, u)),
        "squares": error_with(lambda u, p, *rest: (u**2, p**2)),
        "not divided by n": error_with(lambda u, p, a, b, n: (u * n**0.5, p * n**0.5)),
        "divided by n, not its root": error_with(lambda u, p, a, b, n: (u, p / n**0.5)),
        "one model's error": error_with(lambda u, p, a, b, n: (float(a.var() / n)**0.5, p)),
        "errors added": error_with(lambda u, p, a, b, n: (float(a.std() + b.std()) / n**0.5, p)),
        "one accuracy for both": error_with(lambda u, p, a, b, n: (
            (2 * float((a + b).mean() / 2 * (1 - (a + b).mean() / 2)) / n)**0.5, p)),
        "mean of d forgotten": error_with(lambda u, p, a, b, n: (u, float(((a - b)**2).mean() / n)**0.5)),
        "d without its sign": error_with(lambda u, p, a, b, n: (u, float((a - b).abs().std() / n**0.5))),
        "correlation with the wrong sign": error_with(lambda u, p, a, b, n: (u, abs(2 * u**2 - p**2)**0.5)),
        "a tenth of a percent less": error_with(lambda u, p, *rest: (0.999 * u, p)),
        "a tenth of a percent too much": error_with(lambda u, p, a, b, n: (u, 1.001 * p * (n / (n - 1))**0.5)),
        "an error where there is none": error_with(lambda u, p, *rest: (u, p + 0.005 * (p == 0))),
        "half a percent more": error_with(lambda u, p, *rest: (1.005 * u, p)),
        "half a percent less": error_with(lambda u, p, *rest: (u, 0.995 * p)),
        "nan": lambda a, b: (math.nan, math.nan),
        "one number": lambda a, b: error_by_formula(a, b)[0],
    },
    check.items_needed: {
        "one error": items_with(errors=1),
        "unpaired": items_with(correlation=lambda c: 0.0),
        "correlation the other way": items_with(correlation=lambda c: -c),
        "half the correlation": items_with(correlation=lambda c: c / 2),
        "the correlation without its sign": items_with(correlation=abs),
        "no negative correlation": items_with(correlation=lambda c: max(c, 0)),
        "the correlation squared": items_with(correlation=lambda c: c * c),
        "at most a half": items_with(correlation=lambda c: min(c, 0.3)),
        "rounded down": items_with(whole=int),
        "one more than rounded down": items_with(whole=lambda n: int(n) + 1),
        "not rounded": items_with(whole=float),
        "a word": items_with(whole=str),
        "both": lambda p, q, c: (items_by_formula(p, q, c), c),
    },
}
REASONS = [
    (check.expected_spread, "error of a difference",
     "expected_spread(2, 1.7): expected 1.9182, given 2.4042; that is the standard deviation of a difference"),
    (check.expected_spread, "error forgotten", "given 1.1284; that is the number of errors; the distance is in points"),
    (check.expected_spread, "a variance", "; error is a standard deviation already, so take no root"),
    (check.expected_spread, "error squared", "; error is a standard deviation and not a variance"),
    (check.expected_spread, "highest above the mean", "; that is the highest above the mean of all, and the lowest"),
    (check.expected_spread, "highest without signs", "expected_spread(3, 1.7): expected 2.8774"),
    (check.expected_spread, "highest without signs", "; that is the largest of the scores without their signs"),
    (check.expected_spread, "two models", "expected_spread(3, 1.7): expected 2.8774, given 1.9182; that is the mean"),
    (check.expected_spread, "one model more", "; one model is too many"),
    (check.expected_spread, "the error of a mean", "; the mean of so many scores has a smaller error than one of them"),
    (check.expected_spread, "one error", "; that is the standard deviation of one model"),
    (check.expected_spread, "two errors", "; that is two standard deviations"),
    (check.expected_spread, "2.1 percent more", "; if this is simulated, draw more tables"),
    (check.expected_spread, "2.1 percent less", "; if this is simulated, draw more tables"),
    (check.expected_spread, "few tables", "; if this is simulated, draw more tables"),
    (check.expected_spread, "nan", "given nan"),
    (check.expected_spread, "a word", "spread expected as a number, given a str"),
    (check.error_of_difference, "unpaired twice", "error_of_difference of identical answers, n=400: paired expected 0"),
    (check.error_of_difference, "correlation with the wrong sign", "identical answers, n=400: paired expected 0"),
    (check.error_of_difference, "one accuracy for both", "opposite answers, n=200: unpaired expected"),
    (check.error_of_difference, "mean of d forgotten", "opposite answers, n=200: paired expected"),
    (check.error_of_difference, "paired first", "; unpaired first, then paired"),
    (check.error_of_difference, "nan", "given nan"),
    (check.error_of_difference, "one number", "expected (unpaired, paired), given a Tensor"),
    (check.items_needed, "one error", "expected 28, given 7; that is for one standard error"),
    (check.items_needed, "unpaired",
     "items_needed(0.5, 0.25, 0.5): expected 15, given 28; the correlation is not used"),
    (check.items_needed, "not rounded", "; round up to whole items"),
    (check.items_needed, "rounded down", "expected 15, given 14; round up to whole items"),
    (check.items_needed, "a word", "items expected as a number, given a str"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS


@pytest.mark.parametrize("models, mean", MEAN_RANGES.items())
def test_the_distance_that_is_asked_for_is_exact(models, mean):
    exact = {2: 2 / math.pi**0.5, 3: 3 / math.pi**0.5}.get(models, mean)
    assert abs(check._mean_range(models) - exact) < (1e-10 if models < 4 else 1e-5)


def test_a_hint_is_given_only_where_there_is_a_usual_cause():
    with pytest.raises(AssertionError, match=r"given 1000$"):
        check.expected_spread(lambda models, error: 1000.0)
