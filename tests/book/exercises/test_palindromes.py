"""The checkers of investigation A: the answers that they accept, and those that they reject with what they say."""

import statistics

import numpy as np
import torch
from exercise_answers import Answers

from caracal_book.exercises import palindromes as check
from caracal_min.convolution import causal_conv_direct, causal_conv_fft, circular_conv


def mirrored_by_fft(ids, vocab_size):
    x = torch.nn.functional.one_hot(ids, vocab_size).T.float()
    n = 2 * x.shape[-1]
    return torch.fft.irfft(torch.fft.rfft(x, n=n)**2, n=n)[:, :len(ids)].sum(0)


def mirrored_by_direct_sums(ids, vocab_size):
    counts = torch.zeros(len(ids), dtype=torch.long)
    for symbol in range(vocab_size):
        stream = (ids == symbol).double()
        counts += causal_conv_direct(stream, stream).round().long()
    return counts


def mirrored_by_lists(ids, vocab_size):
    ids = ids.tolist()
    return [sum(a == b for a, b in zip(ids[:t], reversed(ids[:t]), strict=True)) for t in range(1, len(ids) + 1)]


def one_hot(ids, vocab_size):
    return torch.eye(vocab_size, dtype=torch.float64)[ids].T


def palindrome_or_not(ids, vocab_size):
    return torch.stack([(ids[:t] == ids[:t].flip(0)).all() * t for t in range(1, len(ids) + 1)])


def whole_text_alone(ids, vocab_size):
    return (ids == ids.flip(0)).sum()


def mirrored_around(ids, vocab_size):
    x = one_hot(ids, vocab_size)
    return circular_conv(x, x).sum(0)


def mirrored_one_late(ids, vocab_size):
    return mirrored_by_direct_sums(ids, vocab_size).roll(1)


def mirrored_before_t(ids, vocab_size):
    return torch.stack([(ids[:t] == ids[:t].flip(0)).sum() for t in range(len(ids))])


def each_pair_once(ids, vocab_size):
    return (mirrored_by_direct_sums(ids, vocab_size) + 1) // 2


def ids_as_numbers(ids, vocab_size):
    return causal_conv_direct(ids.double(), ids.double())


def tokens_so_far(ids, vocab_size):
    """The same lag for all: how often the newest token stands in the text so far."""
    x = one_hot(ids, vocab_size)
    return (x * x.cumsum(-1)).sum(0)


def without_the_last_symbol(ids, vocab_size):
    x = one_hot(ids, vocab_size)[:-1]
    return causal_conv_fft(x, x).sum(0)


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


RIGHT = {
    check.mirrored_pairs: [mirrored_by_fft, mirrored_by_direct_sums, mirrored_by_lists],
    check.best_rate: [best_by_dictionary, best_by_numpy, best_by_tensors, best_by()],
    check.right_by_distance: [by_shares, by_expectation, shares_with()],
}
WRONG = {
    check.mirrored_pairs: {
        "palindrome or not": palindrome_or_not,
        "the whole text alone": whole_text_alone,
        "around the end": mirrored_around,
        "one late": mirrored_one_late,
        "before t": mirrored_before_t,
        "each pair once": each_pair_once,
        "ids as numbers": ids_as_numbers,
        "tokens so far": tokens_so_far,
        "without the last symbol": without_the_last_symbol,
        "complex": lambda ids, vocab_size: mirrored_by_fft(ids, vocab_size) + 0j,
        "nothing": lambda ids, vocab_size: None,
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
    (check.mirrored_pairs, "palindrome or not",
     "mirrored_pairs of ids [0, 1, 1], vocab_size=2: entry [2] should be 1, given 0; 1 of 3 differ"),
    (check.mirrored_pairs, "the whole text alone", "ids [0], vocab_size=1: expected shape (1,), given ()"),
    (check.mirrored_pairs, "around the end", "ids [1, 1], vocab_size=2: entry [0] should be 1, given 2"),
    (check.mirrored_pairs, "complex", "expected real numbers, given complex64"),
    (check.mirrored_pairs, "nothing", "expected a tensor, given a NoneType"),
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
