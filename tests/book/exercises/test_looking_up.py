"""The checkers of investigation B: the answers that they accept, and those that they reject with what they say."""

import statistics

import numpy as np
import torch
from exercise_answers import Answers

from caracal_book.exercises import looking_up as check


def best_by_dictionary(runs):
    by_rate = {}
    for run in runs:
        by_rate.setdefault(run["learning_rate"], []).append(run["accuracy"])
    most = max(map(len, by_rate.values()))
    rate = max(sorted(r for r in by_rate if len(by_rate[r]) == most), key=lambda r: statistics.mean(by_rate[r]))
    return rate, statistics.mean(by_rate[rate]), min(by_rate[rate]), max(by_rate[rate])


def best_by_numpy(runs):
    rates, place = np.unique([run["learning_rate"] for run in runs], return_inverse=True)
    accuracy = np.array([run["accuracy"] for run in runs])
    seeds = np.bincount(place)
    means = np.where(seeds == seeds.max(), np.bincount(place, accuracy) / seeds, -1)
    there = accuracy[place == means.argmax()]
    return np.array([rates[means.argmax()], there.mean(), there.min(), there.max()])


def best_by_tensors(runs):
    table = torch.tensor([[run["learning_rate"], run["accuracy"]] for run in runs])
    found = []
    for rate in table[:, 0].unique():
        there = table[table[:, 0] == rate, 1]
        found.append((len(there), there.mean(), -rate, there.min(), there.max()))
    _, mean, rate, low, high = max(found, key=lambda row: row[:3])
    return [-rate, mean, low, high]


def best_by(score=statistics.mean, most=lambda seeds: seeds, prefer=min, low=min, high=max, center=statistics.mean):
    """The best rate with something else than asked."""
    def best_rate(runs):
        by_rate = {}
        for run in runs:
            by_rate.setdefault(run["learning_rate"], []).append(run["accuracy"])
        enough = most(max(map(len, by_rate.values())))
        scores = {rate: score(found) for rate, found in by_rate.items() if len(found) >= enough}
        rate = prefer(rate for rate, value in scores.items() if value == max(scores.values()))
        return rate, center(by_rate[rate]), low(by_rate[rate]), high(by_rate[rate])

    return best_rate


def range_of_all_runs(runs):
    rate, mean, _, _ = best_by_dictionary(runs)
    accuracies = [run["accuracy"] for run in runs]
    return rate, mean, min(accuracies), max(accuracies)


def best_run(runs):
    best = max(runs, key=lambda run: run["accuracy"])
    return best["learning_rate"], best["accuracy"], best["accuracy"], best["accuracy"]


def best_above_zero(runs):
    best = (None, 0.0, 0.0, 0.0)
    for rate in sorted({run["learning_rate"] for run in runs}):
        found = best_by_dictionary([run for run in runs if run["learning_rate"] == rate])
        best = found if found[1] > best[1] else best
    return best


def by_shares(pairs, distances):
    right = []
    for q in range(pairs):
        compared = sum(2 * (pairs - pair) + q in distances for pair in range(pairs))
        right.append(min(1.0, (compared + 1) / pairs))
    return right


def by_expectation(pairs, distances):
    """The formula of the chapter, with tensors."""
    lags = 2 * pairs + torch.arange(pairs)[:, None] - 2 * torch.arange(pairs)
    share = torch.isin(lags, torch.tensor(sorted(distances), dtype=torch.long)).double().mean(1)
    return share + (1 - share) / (pairs * (1 - share)).clamp(min=1)


def shares_with(place=lambda pairs, q: 2 * pairs + q, key=lambda pair: 2 * pair,
                right=lambda compared, pairs: min(1, (compared + 1) / pairs)):
    """The right answer with something else than asked."""
    def right_by_distance(pairs, distances):
        return [right(sum(place(pairs, q) - key(pair) in distances for pair in range(pairs)), pairs)
                for q in range(pairs)]

    return right_by_distance


def carriers_by_sets(distance, window, K):
    in_window = set(range(window))
    return sorted(in_window & {distance - carried for carried in range(K + 1)})


def carriers_by_bounds(distance, window, K):
    return np.arange(max(0, distance - K), min(distance, window - 1) + 1)


def carriers_with(reach=0, gates=0):
    return lambda distance, window, K: carriers_by_sets(distance, window + reach, K + gates)


RIGHT = {
    check.carriers: [carriers_by_sets, carriers_by_bounds, carriers_with()],
    check.best_rate: [best_by_dictionary, best_by_numpy, best_by_tensors, best_by()],
    check.right_by_distance: [by_shares, by_expectation, shares_with()],
}
WRONG = {
    check.carriers: {
        "a window and the question": carriers_with(reach=1),
        "a window without its last token": carriers_with(reach=-1),
        "without g_K": carriers_with(gates=-1),
        "one gate more": carriers_with(gates=1),
        "the farthest first": lambda *of: carriers_by_sets(*of)[::-1],
        "from the value": lambda distance, *of: [distance - place for place in carriers_by_sets(distance, *of)],
        "the whole window": lambda distance, window, K: range(window),
        "after the question, too": lambda distance, window, K: range(distance - K, min(distance, window - 1) + 1),
        "how many": lambda *of: len(carriers_by_sets(*of)),
        "nothing": lambda *of: None,
    },
    check.best_rate: {
        "highest accuracy": best_by(score=max),
        "lowest accuracy": best_by(score=min),
        "median": best_by(score=statistics.median),
        "any number of seeds": best_by(most=lambda seeds: 1),
        "two seeds are enough": best_by(most=lambda seeds: min(2, seeds)),
        "the larger of equal rates": best_by(prefer=max),
        "the first of equal rates": best_by(prefer=lambda rates: next(iter(rates))),
        "reports the highest as the mean": best_by(center=max),
        "reports the median as the mean": best_by(center=statistics.median),
        "high before low": best_by(low=max, high=min),
        "range of all runs": range_of_all_runs,
        "best run": best_run,
        "better than zero": best_above_zero,
        "spread in place of the range": best_by(low=lambda found: statistics.mean(found) - statistics.pstdev(found)),
        "the rate alone": lambda runs: best_by_dictionary(runs)[0],
        "the rate and the mean": lambda runs: best_by_dictionary(runs)[:2],
        "rate as a word": lambda runs: (str(best_by_dictionary(runs)[0]), *best_by_dictionary(runs)[1:]),
    },
    check.right_by_distance: {
        "the first question for all": shares_with(place=lambda pairs, q: 2 * pairs),
        "distance to the value": shares_with(key=lambda pair: 2 * pair + 1),
        "questions are pairs": shares_with(place=lambda pairs, q: 2 * pairs + 2 * q),
        "one place late": shares_with(place=lambda pairs, q: 2 * pairs + q + 1),
        "sure or nothing": shares_with(right=lambda compared, pairs: compared / pairs),
        "guesses among all": shares_with(
            right=lambda compared, pairs: compared / pairs + (1 - compared / pairs) / pairs),
        "above 1": shares_with(right=lambda compared, pairs: (compared + 1) / pairs),
        "counts distances": lambda pairs, distances: [min(1, (len(distances) + 1) / pairs)] * pairs,
        "the mean": lambda pairs, distances: sum(by_shares(pairs, distances)) / pairs,
        "one number": lambda pairs, distances: [sum(by_shares(pairs, distances)) / pairs],
        "a guess": lambda pairs, distances: [1 / pairs] * pairs,
        "nothing": lambda pairs, distances: None,
    },
}
REASONS = [
    (check.carriers, "a window and the question", "the question is itself the last token of the window"),
    (check.carriers, "without g_K",
     "carriers(17, 12, 12): expected [5, 6, 7, 8, 9, 10, 11], given [6, 7, 8, 9, 10, 11]; g_K is kept, too"),
    (check.carriers, "from the value", "distances count from the question, not from the value"),
    (check.carriers, "the farthest first", "the nearest carrier first"),
    (check.carriers, "how many", "given a int"),
    (check.carriers, "nothing", "given a NoneType"),
    (check.best_rate, "highest accuracy", "best_rate, one lucky seed, rate 0.001: 0.25, 1, 0.125, rate 0.003: 0.625, "
     "0.5, 0.75, rate 0.01: 0.125, 0.25, 0.25: rate expected 0.003, given 0.001"),
    (check.best_rate, "any number of seeds", "a rate run with one seed that looks best, rate 0.0003: 0.5, 0.75, 0.625, "
     "rate 0.001: 0.25, 0.5, 0.375, rate 0.01: 1: rate expected 0.0003, given 0.01"),
    (check.best_rate, "median", "one unlucky seed at the rate of the best median"),
    (check.best_rate, "lowest accuracy", "the lowest accuracy at the best rate"),
    (check.best_rate, "two seeds are enough", "four seeds or five"),
    (check.best_rate, "the larger of equal rates", "a tie of two rates"),
    (check.best_rate, "better than zero", "rate expected"),
    (check.best_rate, "range of all runs", "low expected 0.875, given 0.25"),
    (check.best_rate, "the rate alone", "expected (rate, mean, low, high), given a float"),
    (check.best_rate, "the rate and the mean", "expected 4 numbers (rate, mean, low, high), given 2"),
    (check.best_rate, "rate as a word", "rate expected as a number, given a str"),
    (check.right_by_distance, "sure or nothing", "right_by_distance(1, set()): question 0 expected 1, given 0"),
    (check.right_by_distance, "the first question for all",
     "right_by_distance(2, {2}): question 1 expected 0.5, given 1"),
    (check.right_by_distance, "above 1", "right_by_distance(1, {2}): question 0 expected 1, given 2"),
    (check.right_by_distance, "guesses among all", "right_by_distance(2, {2}): question 0 expected 1, given 0.75"),
    (check.right_by_distance, "the mean", "expected (question 0), given a float"),
    (check.right_by_distance, "one number", "expected 2 numbers (question 0, question 1), given 1"),
    (check.right_by_distance, "nothing", "given a NoneType"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
