"""Answers to the exercise `fixed_state` of chapter 10, right ones and wrong ones, for the tests of its checker."""

from collections import deque

import torch


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


RIGHT = [state_by_deque, state_by_lists, state_by_ring, state_by_rolled_stack, StateAsAClass, state_with()]
WRONG = {
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
}
REASONS = [
    ("the last K gates", "fixed_state with K=1, length 2: r_1: entry [0] should be"),
    ("one lag less", "fixed_state with K=1, length 1: r_0: entry [0] should be"),
    ("one lag more", "fixed_state with K=1, length 2: r_1: entry [0] should be"),
    ("keeps all gates", "with K=1, length 150: after token 3 expected only the last 1 of v and the "
     "first 1 of g to stay, given g_1"),
    ("keeps all contents", "to stay, given v_0"),
    ("keeps copies of all contents", "expected a state of about 8 numbers, given"),
    ("keeps all as lists", "expected a state of about 8 numbers, given"),
    ("keeps its results", "expected a state of about 8 numbers, given"),
    ("reads the whole text", "fixed_state with K=1, length 2: expected result 0 between the draws "
     "of pairs 0 and 1, given it with 2 drawn"),
    ("reads one ahead", "between the draws of pairs 0 and 1, given it with 2 drawn"),
    ("returns a list", "expected a generator, given a list; is a yield missing?"),
    ("ends early", "fixed_state with K=1, length 150: expected 150 results, given 5"),
    ("does not end", "fixed_state with K=1, length 1: expected 1 results, given more"),
    ("yields nothing", "expected a tensor, given a NoneType"),
]
