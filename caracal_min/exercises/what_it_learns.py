"""Checkers for the exercises of chapter 9, what it can and cannot learn.

Texts, runs and answers are drawn from fixed seeds.  What a state keeps is looked up in Python's own memory.
"""

import gc
import random
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType

import numpy as np
import torch
from torch import Tensor

from . import checker, expect_close, expect_numbers

__all__ = ["best_rate", "fixed_state", "mirrored_pairs"]


@checker
def mirrored_pairs(answer: Callable[[Tensor, int], Tensor]) -> str:
    """Check `mirrored_pairs(ids, vocab_size)`: for each t, how many j in 0..t have ids[j] == ids[t - j].

    ids are int64, `(L,)`; the counts, `(L,)`, may be of any real dtype and are right within 1e-3.
    """
    source = torch.Generator().manual_seed(9)
    texts = [(f"of ids {ids}", torch.tensor(ids), symbols) for ids, symbols in
             (([0], 1), ([3], 5), ([1, 1], 2), ([0, 1], 2), ([0, 1, 0], 2), ([0, 1, 1], 2), ([0, 1, 1, 0], 2),
              ([0, 1, 2, 0], 3), ([2, 0, 1, 0, 2], 3), ([2, 0, 1, 0, 1], 4), ([0, 0, 0, 0, 0, 0], 1),
              ([6, 5, 4, 3, 2, 1, 0], 7))]
    for length, symbols in ((64, 2), (255, 3), (256, 7), (301, 20)):
        ids = torch.randint(symbols, (length,), generator=source)
        half = ids[:length // 2]
        palindrome = torch.cat([half, ids[length // 2:length - length // 2], half.flip(0)])
        near = palindrome.clone()
        near[length // 3] = (near[length // 3] + 1) % symbols
        texts += [(f"of {what} of {length} tokens", text, symbols) for what, text in
                  (("a random text", ids), ("a palindrome", palindrome), ("a palindrome but for one token", near))]
    texts.append(("of a text of 200 times token 2", torch.full((200,), 2), 4))
    for what, ids, symbols in texts:
        case = f"mirrored_pairs {what}, vocab_size={symbols}"
        given = answer(ids.clone(), symbols)
        try:
            given = torch.as_tensor(given).detach().cpu()
        except (TypeError, ValueError, RuntimeError):
            raise AssertionError(f"{case}: expected a tensor, given a {type(given).__name__}") from None
        if given.is_complex():
            raise AssertionError(f"{case}: expected real numbers, given {str(given.dtype).removeprefix('torch.')}")
        counts = torch.stack([(ids[:t + 1] == ids[:t + 1].flip(0)).sum() for t in range(len(ids))]).double()
        expect_close(case, given.double(), counts, tolerance=1e-3 / float(counts.max()))
    return f"{len(texts)} texts"


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
def fixed_state(answer: Callable[[Iterator[tuple[Tensor, Tensor]], int], Iterator[Tensor]]) -> str:
    """Check `fixed_state(stream, K)`: a generator of r_t, the sum over k < K of g_k v_{t-k}, from a fixed state.

    stream yields (v_t, g_t), each `(D,)`, float64, and does not say how long it is.  Result t comes before pair t + 1
    is drawn.  Contents older than the last K and gates after the first K may not stay, nor copies of them.
    """
    channels, source = 4, torch.Generator().manual_seed(9)
    sizes = [(K, length) for K in (1, 3, 8) for length in sorted({1, 2, K, K + 1, 150})]
    for K, length in sizes:
        v, g = torch.randn(2, length, channels, dtype=torch.float64, generator=source)
        case = f"fixed_state with K={K}, length {length}"
        stream, ended = _Stream(v, g), object()
        results = answer(stream, K)
        if not isinstance(results, Iterator):
            raise AssertionError(f"{case}: expected a generator, given a {type(results).__name__}; is a yield missing?")
        for t in range(length):
            given = next(results, ended)
            if given is ended:
                raise AssertionError(f"{case}: expected {length} results, given {t}")
            if stream.drawn != t + 1:
                raise AssertionError(f"{case}: expected result {t} between the draws of pairs {t} and {t + 1}, "
                                     f"given it with {stream.drawn} drawn")
            lags = range(min(t + 1, K))
            expect_close(f"{case}: r_{t}", given, sum(g[k] * v[t - k] for k in lags))
            del given
            stream.expect_dropped(case, K)
            most, kept = channels * (10 * K + 16), _numbers_kept(results)
            if kept > most:
                raise AssertionError(f"{case}: after token {t} expected a state of about {2 * K * channels} numbers, "
                                     f"given {kept}")
        if next(results, ended) is not ended:
            raise AssertionError(f"{case}: expected {length} results, given more")
    return f"{len(sizes)} texts"


class _Stream:
    """Yield v_t and g_t as tensors of their own, and know how many were drawn and which of them still live."""

    def __init__(self, v: Tensor, g: Tensor) -> None:
        self._v, self._g, self.drawn = v, g, 0
        self._living: dict[str, list[weakref.ref]] = {"v": [], "g": []}

    def __iter__(self) -> "_Stream":
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        if self.drawn == len(self._v):
            raise StopIteration
        pair = self._v[self.drawn].clone(), self._g[self.drawn].clone()
        for name, x in zip("vg", pair, strict=True):
            self._living[name].append(weakref.ref(x))
        self.drawn += 1
        return pair

    def expect_dropped(self, case: str, K: int) -> None:
        """Raise AssertionError if a content before the last K lives, or a gate after the first K.

        One content more may live, because an answer may make room only when the next comes, and the two newest gates,
        because variables still hold them.
        """
        past = {"v": range(self.drawn - K - 1), "g": range(K, self.drawn - 2)}
        for again in (False, True):
            kept = [f"{name}_{i}" for name, indices in past.items() for i in indices
                    if self._living[name][i]() is not None]
            if not kept:
                return
            if not again:
                gc.collect()
        raise AssertionError(f"{case}: after token {self.drawn - 1} expected only the last {K} of v and the first {K} "
                             f"of g to stay, given {kept[0]} and {len(kept) - 1} more besides")


def _numbers_kept(state: object) -> int:
    """Count the numbers that a generator holds: in tensors, with all of their storage, in arrays and as floats."""
    seen: dict[object, object] = {}
    found, todo = 0, [state]
    while todo:
        x = todo.pop()
        if id(x) in seen or isinstance(x, type | ModuleType | CodeType | _Stream):
            continue
        seen[id(x)] = x
        if isinstance(x, Tensor):
            storage = x.untyped_storage()
            place = "storage", storage.data_ptr()
            found += 0 if place in seen else storage.nbytes() // 8
            seen[place] = x
        elif isinstance(x, np.ndarray):
            found += x.nbytes // 8
        elif isinstance(x, float):
            found += 1
        elif isinstance(x, FunctionType):  # its globals are not its state
            todo += [x.__closure__, x.__defaults__]
        elif not (isinstance(x, dict) and "__builtins__" in x):
            todo += gc.get_referents(x)
    return found
