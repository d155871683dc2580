"""The checkers of chapter 9: the answers that they accept, and those that they reject with what they say."""

import statistics
from collections import deque

import numpy as np
import torch
from exercise_answers import Answers

from caracal_min.convolution import causal_conv_direct, causal_conv_fft, circular_conv
from caracal_min.exercises import what_it_learns as check


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


def state_by_deque(stream, K):
    contents, gates = deque(maxlen=K), []
    for v, g in stream:
        contents.appendleft(v)
        if len(gates) < K:
            gates.append(g)
        yield sum(gate * content for gate, content in zip(gates, contents, strict=True))


def state_by_lists(stream, K):
    contents, gates = [], []
    for t, pair in enumerate(stream):
        contents.append(pair[0])
        gates = (gates + [pair[1]])[:K]
        r = torch.zeros_like(pair[0])
        for k in range(min(t + 1, K)):
            r += gates[k] * contents[-1 - k]
        yield r
        contents = contents[-K:]


def state_by_ring(stream, K):
    contents = gates = None
    for t, (v, g) in enumerate(stream):
        if contents is None:
            contents, gates = v.new_zeros(2, K, len(v))
        contents[t % K] = v
        if t < K:
            gates[t] = g
        lags = (t - torch.arange(K)) % K
        yield (gates * contents[lags]).sum(0)


def state_by_rolled_stack(stream, K):
    contents = gates = None
    for v, g in stream:
        contents = v[None] if contents is None else torch.cat([v[None], contents])[:K]
        gates = g[None] if gates is None else torch.cat([gates, g[None]])[:K]
        yield torch.einsum("kd,kd->d", gates, contents)


class StateAsAClass:
    def __init__(self, stream, K):
        self.stream, self.K, self.contents, self.gates = iter(stream), K, [], []

    def __iter__(self):
        return self

    def __next__(self):
        v, g = next(self.stream)
        self.contents = [v, *self.contents[:self.K - 1]]
        self.gates = [*self.gates, g][:self.K]
        return (torch.stack(self.contents) * torch.stack(self.gates)).sum(0)


def state_with(gates=lambda gates, K: gates[:K], contents=lambda contents, K: contents[-K:], lags=lambda K: K):
    """A state that keeps something else than asked, or sums over other lags."""
    def fixed_state(stream, K):
        kept_v, kept_g = [], []
        for v, g in stream:
            kept_v, kept_g = contents([*kept_v, v], K), gates([*kept_g, g], K)
            yield sum((a * b for a, b in list(zip(kept_g, reversed(kept_v), strict=False))[:lags(K)]), 0 * v)

    return fixed_state


def keeps_copies_of_all_contents(stream, K):
    gates, contents = [], torch.empty(0)
    for v, g in stream:
        contents = torch.cat([contents, v[None]]) if len(contents) else v[None].clone()
        gates = [*gates, g][:K]
        yield (torch.stack(gates) * contents[-K:].flip(0)).sum(0)


def keeps_all_as_lists(stream, K):
    past = []
    for v, g in stream:
        past.append((v.tolist(), g.tolist()))
        lags = range(min(K, len(past)))
        yield sum(torch.tensor(past[k][1], dtype=v.dtype) * torch.tensor(past[-1 - k][0], dtype=v.dtype) for k in lags)


def keeps_its_results(stream, K):
    results = []
    for r in state_by_deque(stream, K):
        results.append(r)
        yield r


def reads_the_whole_text(stream, K):
    yield from state_by_deque(iter(list(stream)), K)


def reads_one_ahead(stream, K):
    before = None
    for r in state_by_deque(stream, K):
        if before is not None:
            yield before
        before = r
    yield before


def returns_a_list(stream, K):
    return list(state_by_deque(stream, K))


def stops_after(results):
    def fixed_state(stream, K):
        for _, r in zip(range(results), state_by_deque(stream, K), strict=False):
            yield r

    return fixed_state


def never_stops(stream, K):
    yield from state_by_deque(stream, K)
    yield torch.zeros(4, dtype=torch.float64)


RIGHT = {
    check.mirrored_pairs: [mirrored_by_fft, mirrored_by_direct_sums, mirrored_by_lists],
    check.best_rate: [best_by_dictionary, best_by_numpy, best_by_tensors, best_by()],
    check.fixed_state: [state_by_deque, state_by_lists, state_by_ring, state_by_rolled_stack, StateAsAClass,
                        state_with()],
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
    check.fixed_state: {
        "the last K gates": state_with(gates=lambda gates, K: gates[-K:]),
        "the first K contents": state_with(contents=lambda contents, K: contents[:K]),
        "contents and gates exchanged": state_with(gates=lambda gates, K: gates[-K:],
                                                   contents=lambda contents, K: contents[:K]),
        "one lag less": state_with(lags=lambda K: K - 1),
        "one lag more": state_with(gates=lambda gates, K: gates[:K + 1], contents=lambda contents, K: contents[-K - 1:],
                                   lags=lambda K: K + 1),
        "all lags": state_with(gates=lambda gates, K: gates, contents=lambda contents, K: contents,
                               lags=lambda K: None),
        "keeps everything": state_with(gates=lambda gates, K: gates, contents=lambda contents, K: contents),
        "keeps all gates": state_with(gates=lambda gates, K: gates),
        "keeps all contents": state_with(contents=lambda contents, K: contents),
        "keeps copies of all contents": keeps_copies_of_all_contents,
        "keeps all as lists": keeps_all_as_lists,
        "keeps its results": keeps_its_results,
        "reads the whole text": reads_the_whole_text,
        "reads one ahead": reads_one_ahead,
        "returns a list": returns_a_list,
        "ends early": stops_after(5),
        "does not end": never_stops,
        "yields nothing": lambda stream, K: (None for _ in stream),
        "single precision": lambda stream, K: (r.float() for r in state_by_deque(stream, K)),
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
    (check.fixed_state, "the last K gates", "fixed_state with K=1, length 2: r_1: entry [0] should be"),
    (check.fixed_state, "one lag less", "fixed_state with K=1, length 1: r_0: entry [0] should be"),
    (check.fixed_state, "one lag more", "fixed_state with K=1, length 2: r_1: entry [0] should be"),
    (check.fixed_state, "keeps all gates", "with K=1, length 150: after token 3 expected only the last 1 of v and the "
     "first 1 of g to stay, given g_1"),
    (check.fixed_state, "keeps all contents", "to stay, given v_0"),
    (check.fixed_state, "keeps copies of all contents", "expected a state of about 8 numbers, given"),
    (check.fixed_state, "keeps all as lists", "expected a state of about 8 numbers, given"),
    (check.fixed_state, "keeps its results", "expected a state of about 8 numbers, given"),
    (check.fixed_state, "reads the whole text", "fixed_state with K=1, length 2: expected result 0 between the draws "
     "of pairs 0 and 1, given it with 2 drawn"),
    (check.fixed_state, "reads one ahead", "between the draws of pairs 0 and 1, given it with 2 drawn"),
    (check.fixed_state, "returns a list", "expected a generator, given a list; is a yield missing?"),
    (check.fixed_state, "ends early", "fixed_state with K=1, length 150: expected 150 results, given 5"),
    (check.fixed_state, "does not end", "fixed_state with K=1, length 1: expected 1 results, given more"),
    (check.fixed_state, "yields nothing", "expected a tensor, given a NoneType"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
