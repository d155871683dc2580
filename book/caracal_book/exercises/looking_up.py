"""Checkers for the exercises of investigation A on looking up.

Runs are made up; what a model of few comparisons knows is found by going through all orders of the questions.
"""

import random
from collections.abc import Callable
from itertools import permutations

from . import checker, expect

__all__ = ["best_rate", "carriers", "right_by_distance"]


# Accuracies by learning rate.  Sums of eighths have no rounding, so that a tie is one in any order of the runs.
_SWEEPS: dict[str, dict[float, list[float]]] = {
    "a single run": {1e-3: [0.5]},
    "three seeds for each rate": {3e-4: [0.375, 0.5, 0.25], 1e-3: [0.5, 0.625, 0.75], 3e-3: [0.5, 0.125, 0.25]},
    "one lucky seed": {1e-3: [0.25, 1.0, 0.125], 3e-3: [0.625, 0.5, 0.75], 1e-2: [0.125, 0.25, 0.25]},
    "one unlucky seed at the rate of the best median": {1e-3: [0.0, 0.75, 0.75], 3e-3: [0.625, 0.5, 0.625]},
    "a rate run with one seed that looks best": {3e-4: [0.5, 0.75, 0.625], 1e-3: [0.25, 0.5, 0.375], 1e-2: [1.0]},
    "four seeds or five": {1e-3: [0.75] * 4, 3e-3: [0.5, 0.25, 0.5, 0.375, 0.5], 1e-2: [0.25] * 4 + [0.625]},
    "a tie of the two highest of three rates": {3e-4: [0.5] * 4, 1e-2: [0.75] * 4, 3e-2: [0.5, 1.0, 0.875, 0.625]},
}


@checker
def best_rate(answer: Callable) -> str:
    """Check `best_rate(runs)`: (rate, mean, low, high) of the rate whose mean accuracy over its seeds is highest.

    runs are dicts with learning_rate, seed and accuracy, in any order.  Only the rates that were run with the most
    seeds count, and of equal ones the smallest is taken.
    """
    shuffle = random.Random(9).shuffle
    for what, sweep in _SWEEPS.items():
        most = max(map(len, sweep.values()))
        whole = [rate for rate in sorted(sweep) if len(sweep[rate]) == most]

        def found(rate: float, sweep=sweep) -> dict[str, float]:
            of = sweep[rate]
            return {"rate": rate, "mean": sum(of) / len(of), "low": min(of), "high": max(of)}

        def mean(rate: float, sweep=sweep) -> float:
            return sum(sweep[rate]) / len(sweep[rate])

        runs = [{"learning_rate": rate, "seed": seed, "accuracy": accuracy}
                for rate, accuracies in sweep.items() for seed, accuracy in enumerate(accuracies)]
        listed = ", ".join(f"rate {rate:g}: {', '.join(f'{a:g}' for a in each)}" for rate, each in sweep.items())
        for _ in range(3):
            expect(f"best_rate, {what}, {listed}", answer([dict(run) for run in runs]), found(max(whole, key=mean)), {
                "one lucky seed decides here: take the rate of the highest mean":
                    found(max(whole, key=lambda rate, sweep=sweep: max(sweep[rate]))),
                "a rate that was run with fewer seeds does not count": found(max(sorted(sweep), key=mean)),
                "of two equal rates the smaller one": found(max(reversed(whole), key=mean))})
            shuffle(runs)
    return f"{len(_SWEEPS)} sweeps"


@checker
def right_by_distance(answer: Callable) -> str:
    """Check `right_by_distance(pairs, distances)`: how often each question of recall is answered right.

    The model compares the asking key, at position 2 * pairs + q, with what stands at each of the distances before it,
    and guesses among the values that it cannot rule out.  One number for each question, right within 1e-6.
    """
    cases = [(1, set()), (1, {2}), (1, {1}), (2, set()), (2, {2}), (2, {2, 3}), (2, {2, 3, 4}), (3, {1, 5}), (4, {2}),
             (4, {3}), (4, {2, 4, 6}), (4, {2, 3, 4, 5, 6, 7}), (4, set(range(2, 12))), (5, {6, 8, 9, 40})]
    for pairs, distances in cases:
        def by_question(guess: bool = True, forget: bool = True, pairs=pairs, distances=distances) -> list[float]:
            """Ask the keys in every order; the model has compared, and so knows the value or rules some out."""
            right, orders = [0.0] * pairs, list(permutations(range(pairs)))
            for order in orders:
                for q, asked in enumerate(order):
                    out = [pair for pair in range(pairs) if 2 * pairs + q - 2 * pair in distances]
                    left = {*range(pairs)} - {*out, *(() if forget else order[:q])}
                    right[q] += 1 if asked in out else guess / len(left)
            return [sure / len(orders) for sure in right]

        right, sure = by_question(), by_question(guess=False)
        expect(f"right_by_distance({pairs}, {distances})", answer(pairs, set(distances)),
               {f"question {q}": of for q, of in enumerate(right)}, {
            "where the key is not found, the model guesses among the others": tuple(sure),
            "it guesses among the values that are left, and not among all": tuple(
                known + (1 - known) / pairs for known in sure),
            "a number for each question was asked for, and this is their mean": sum(right) / pairs,
            "it does not remember what was asked before": tuple(by_question(forget=False))})
    return f"{len(cases)} models"


@checker
def carriers(answer: Callable) -> str:
    """Check `carriers(distance, window, K)`: how far before the question the tokens stand that can hand on a value.

    Such a token is in the window, less than `window` positions before the question, and has the value at most K
    positions before it or is the value's own.
    """
    cases = [(17, 12, 12), (24, 12, 12), (5, 12, 0), (5, 12, 3), (0, 12, 4), (3, 1, 3), (9, 6, 4), (2, 12, 30),
             (12, 12, 0)]
    for distance, window, K in cases:
        def places(window: int, K: int, distance: int = distance) -> list[int]:
            return [place for place in range(window) if 0 <= distance - place <= K]

        right = places(window, K)
        expect(f"carriers({distance}, {window}, {K})", answer(distance, window, K), right, {
            "the question is itself the last token of the window": places(window + 1, K),
            "g_K is kept, too": places(window, K - 1),
            "ascending, so the nearest carrier first": right[::-1],
            "distances count from the question, not from the value": [distance - place for place in right]})
    return f"{len(cases)} values"
