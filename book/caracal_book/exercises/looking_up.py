"""Checkers for the exercises of investigation A, looking up.

Runs are made up; what a model of few comparisons knows is found by going through all orders of the questions.
"""

import random
from collections.abc import Callable
from itertools import permutations

from . import checker, expect_numbers

__all__ = ["best_rate", "carriers", "right_by_distance"]


# Accuracies by learning rate.  Sums of eighths have no rounding, so that a tie is one in any order of the runs.
_SWEEPS: dict[str, dict[float, list[float]]] = {
    "a single run": {1e-3: [0.5]},
    "one seed for each rate": {3e-4: [0.25], 1e-3: [0.875], 3e-3: [0.5]},
    "three seeds for each rate": {3e-4: [0.375, 0.5, 0.25], 1e-3: [0.5, 0.625, 0.75], 3e-3: [0.5, 0.125, 0.25]},
    "one lucky seed": {1e-3: [0.25, 1.0, 0.125], 3e-3: [0.625, 0.5, 0.75], 1e-2: [0.125, 0.25, 0.25]},
    "one unlucky seed at the rate of the best median": {1e-3: [0.0, 0.75, 0.75], 3e-3: [0.625, 0.5, 0.625]},
    "the lowest accuracy at the best rate": {1e-3: [0.25, 1.0, 1.0], 3e-3: [0.5, 0.5, 0.5]},
    "a rate run with one seed that looks best": {3e-4: [0.5, 0.75, 0.625], 1e-3: [0.25, 0.5, 0.375], 1e-2: [1.0]},
    "later seeds at one rate alone": {3e-4: [0.75], 1e-3: [0.875, 0.125, 0.25], 3e-3: [0.625]},
    "four seeds or five": {1e-3: [0.75] * 4, 3e-3: [0.5, 0.25, 0.5, 0.375, 0.5], 1e-2: [0.25] * 4 + [0.625]},
    "a tie of two rates": {1e-3: [0.625, 0.625], 3e-3: [0.5, 0.75], 1e-2: [0.5, 0.5]},
    "a tie of the two highest of three rates": {3e-4: [0.5] * 4, 1e-2: [0.75] * 4, 3e-2: [0.5, 1.0, 0.875, 0.625]},
    "all accuracies 0": {3e-3: [0.0, 0.0], 1e-2: [0.0, 0.0]},
}


@checker
def best_rate(answer: Callable[[list[dict[str, float]]], tuple[float, float, float, float]]) -> str:
    """Check `best_rate(runs)`: (rate, mean, low, high) of the rate whose mean accuracy over its seeds is highest.

    runs are dicts with learning_rate, seed and accuracy, in any order.  Only the rates that were run with the most
    seeds count, and of equal ones the smallest is taken.
    """
    shuffle = random.Random(9).shuffle
    for what, sweep in _SWEEPS.items():
        most = max(map(len, sweep.values()))
        rate = min((rate for rate in sweep if len(sweep[rate]) == most), key=lambda rate: (-sum(sweep[rate]), rate))
        expected = rate, sum(sweep[rate]) / most, min(sweep[rate]), max(sweep[rate])
        runs = [{"learning_rate": rate, "seed": seed, "accuracy": accuracy}
                for rate, accuracies in sweep.items() for seed, accuracy in enumerate(accuracies)]
        backwards = runs[::-1]
        for order in range(6):
            ordered = runs if order == 0 else backwards
            if order > 1:
                shuffle(ordered)
            case = f"best_rate, {what}, {_listed(ordered)}"
            given = expect_numbers(case, answer([dict(run) for run in ordered]), ("rate", "mean", "low", "high"))
            for name, right in zip(given, expected, strict=True):
                if not abs(given[name] - right) <= 1e-6 * max(abs(right), 1e-3):  # also where given is nan
                    raise AssertionError(f"{case}: {name} expected {right:.6g}, given {given[name]:.6g}")
    return f"{len(_SWEEPS)} sweeps"


def _listed(runs: list[dict[str, float]]) -> str:
    """Write what each rate reached, rates and seeds in the order of the runs."""
    reached: dict[float, list[float]] = {}
    for run in runs:
        reached.setdefault(run["learning_rate"], []).append(run["accuracy"])
    return ", ".join(f"rate {rate:g}: {', '.join(f'{a:g}' for a in each)}" for rate, each in reached.items())


@checker
def right_by_distance(answer: Callable[[int, set[int]], list[float]]) -> str:
    """Check `right_by_distance(pairs, distances)`: how often each question of recall is answered right.

    The model compares the asking key, at position 2 * pairs + q, with what stands at each of the distances before it,
    and guesses among the values that it cannot rule out.  One number for each question, right within 1e-6.
    """
    cases = [(1, set()), (1, {2}), (1, {1}), (2, set()), (2, {2}), (2, {4}), (2, {2, 3}), (2, {2, 3, 4}),
             (3, {2, 3, 4}), (3, {1, 5}), (3, {2, 4}), (4, set()), (4, {2}), (4, {3}), (4, {1}), (4, {2, 4, 6}),
             (4, {5, 6, 7}), (4, {4, 5, 6, 7, 8, 9}), (4, {2, 3, 4, 5, 6, 7}), (4, set(range(2, 12))),
             (5, {10, 11}), (5, {6, 8, 9, 40})]
    for pairs, distances in cases:
        case = f"right_by_distance({pairs}, {distances})"
        names = tuple(f"question {q}" for q in range(pairs))
        given = expect_numbers(case, answer(pairs, set(distances)), names)
        for (name, found), right in zip(given.items(), _by_all_orders(pairs, distances), strict=True):
            if not abs(found - right) <= 1e-6:  # also where given is nan
                raise AssertionError(f"{case}: {name} expected {right:.6g}, given {found:.6g}")
    return f"{len(cases)} models"


def _by_all_orders(pairs: int, distances: set[int]) -> list[float]:
    """Ask the keys in every order; the model has compared, and so either knows the value or rules some out."""
    right, orders = [0.0] * pairs, list(permutations(range(pairs)))
    for order in orders:
        for q, asked in enumerate(order):
            compared = [pair for pair in range(pairs) if 2 * pairs + q - 2 * pair in distances]
            right[q] += 1 if asked in compared else 1 / (pairs - len(compared))
    return [sure / len(orders) for sure in right]


@checker
def carriers(answer: Callable[[int, int, int], list[int]]) -> str:
    """Check `carriers(distance, window, K)`: how far before the question the tokens stand that can hand on a value.

    Such a token is in the window, less than `window` positions before the question, and has the value at most K
    positions before it or is the value's own.
    """
    cases = [(17, 12, 12), (23, 12, 12), (21, 12, 12), (24, 12, 12), (5, 12, 0), (5, 12, 3), (0, 12, 4), (3, 1, 3),
             (3, 1, 2), (9, 6, 4), (9, 6, 3), (2, 12, 30), (29, 6, 24), (11, 12, 1), (12, 12, 0)]
    for distance, window, K in cases:
        case = f"carriers({distance}, {window}, {K})"
        right = _carriers(distance, window, K)
        given = answer(distance, window, K)
        try:
            found = [int(place) for place in given]
        except (TypeError, ValueError):
            raise AssertionError(f"{case}: expected {right}, given a {type(given).__name__}") from None
        if found != right:
            hint = _hint_on_carriers(found, distance, window, K)
            raise AssertionError(f"{case}: expected {right}, given {found}{hint}")
    return f"{len(cases)} values"


def _carriers(distance: int, window: int, K: int) -> list[int]:
    return [place for place in range(window) if 0 <= distance - place <= K]


def _hint_on_carriers(found: list[int], distance: int, window: int, K: int) -> str:
    """Return what the answer seems to have taken for the reach of the window or of the gates."""
    right = _carriers(distance, window, K)
    mistakes = {"the question is itself the last token of the window": _carriers(distance, window + 1, K),
                "g_K is kept, too": _carriers(distance, window, K - 1),
                "ascending, so the nearest carrier first": right[::-1],
                "distances count from the question, not from the value": [distance - place for place in right]}
    return next((f"; {hint}" for hint, wrong in mistakes.items() if found == wrong != right), "")
