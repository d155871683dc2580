"""Checkers for the exercises of investigation B, what a trained Caracal has become."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from . import checker, expect_close

__all__ = ["gates_of_others", "leaky", "share_of_mean"]


@checker
def gates_of_others(answer: Callable[[Tensor], Tensor]) -> str:
    """Check `gates_of_others(gates)`: for each text the mean of the gates of all the other texts.

    gates and result are `(texts, width, length)`, float64, of at least two texts; the gates given stay as they are.
    """
    source = torch.Generator().manual_seed(13)
    shapes = [(2, 1, 1), (3, 1, 2), (2, 4, 8), (5, 3, 7), (16, 8, 32)]
    for shape in shapes:
        gates = torch.randn(shape, dtype=torch.float64, generator=source)
        given = gates.clone()
        case = f"gates_of_others of {shape[0]} texts, gates {shape}"
        found = answer(given)
        if not torch.equal(given, gates):
            raise AssertionError(f"{case}: expected the gates given to stay as they are; make new ones")
        right = torch.stack([torch.cat([gates[:i], gates[i + 1:]]).mean(0) for i in range(len(gates))])
        try:
            expect_close(case, found, right)
        except AssertionError as error:
            raise AssertionError(f"{error}{_hint_on_gates(found, gates, right)}") from None
    return f"{len(shapes)} batches"


def _hint_on_gates(found: Tensor, gates: Tensor, right: Tensor) -> str:
    """Return what the answer seems to have done."""
    texts = len(gates)
    for said, other in (("a text's own gate is in its mean", gates.mean(0).expand_as(gates)),
                        ("divide by the number of the other texts", right * (texts - 1) / texts)):
        same_kind = isinstance(found, Tensor) and (found.shape, found.dtype) == (other.shape, other.dtype)
        if same_kind and torch.allclose(found, other):
            return f"; {said}"
    return ""


@checker
def share_of_mean(answer: Callable[[Tensor], Tensor]) -> str:
    """Check `share_of_mean(gates)`: the share of each channel's energy that the mean gate of all texts explains.

    gates are `(texts, width, length)` and the result `(width,)`, float64; the gates given stay as they are.  The share
    of a channel that writes nothing is 0.
    """
    cases = _gates_with_a_common_part()
    for what, gates in cases:
        given = gates.clone()
        case = f"share_of_mean of {what}, gates {tuple(gates.shape)}"
        found = answer(given)
        if not torch.equal(given, gates):
            raise AssertionError(f"{case}: expected the gates given to stay as they are; make new ones")
        right = _of_energy(len(gates) * (gates.mean(0)**2).sum(-1), gates)
        try:
            expect_close(case, found, right)
        except AssertionError as error:
            raise AssertionError(f"{error}{_hint_on_share(found, gates, right)}") from None
    return f"{len(cases)} batches"


def _of_energy(part: Tensor, gates: Tensor) -> Tensor:
    """Divide a part of each channel's energy by all of it, `(width,)`; a channel of zeros gives 0."""
    energy = (gates**2).sum((0, -1))
    return torch.where(energy > 0, part / energy, 0.0)


def _gates_with_a_common_part() -> list[tuple[str, Tensor]]:
    """Return what gates are like, and the gates, `(texts, width, length)`; some have a channel of zeros."""
    source = torch.Generator().manual_seed(14)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=source)

    part = torch.tensor([0.0, 0.3, 1.0, 3.0, 30.0], dtype=torch.float64)[:, None]
    mixed = drawn(7, 5, 9) + part * drawn(1, 5, 9)
    fading = (drawn(6, 3, 11) + drawn(1, 3, 11)) * torch.logspace(0, -2, 11, dtype=torch.float64)
    faint = (drawn(5, 3, 4) + 1) * torch.tensor([1.0, 0.01, 100.0], dtype=torch.float64)[:, None]
    silent = drawn(4, 3, 6) + drawn(1, 3, 6)
    silent[:, 1] = 0
    opposite = drawn(1, 2, 5)
    return [
        ("two texts", drawn(2, 1, 4)),
        ("one kernel for all texts", drawn(1, 2, 5).repeat(3, 1, 1)),
        ("two texts with opposite gates", torch.cat([opposite, -opposite])),
        ("texts that have more and more in common", mixed),
        ("gates that fade with the lag", fading),
        ("a faint channel and a strong one", faint),
        ("gates of one lag", drawn(6, 4, 1) + 1),
        ("one text", drawn(1, 2, 4)),
        ("many independent texts", drawn(64, 3, 8)),
        ("a channel that writes nothing", silent),
    ]


def _hint_on_share(found: object, gates: Tensor, right: Tensor) -> str:
    """Return what the answer seems to have done."""
    if not isinstance(found, Tensor) or (found.shape, found.dtype) != (right.shape, right.dtype):
        return ""
    texts, length = len(gates), gates.shape[-1]
    energy, mean = (gates**2).sum((0, -1)), gates.mean(0)
    silent = energy == 0
    if silent.any() and torch.allclose(found[~silent], right[~silent]):
        return "; the share of a channel that writes nothing is 0"
    by_lag = torch.where(mean != 0, texts * mean**2 / (gates**2).sum(0), 0.0)
    whole = (texts * mean**2).sum() / energy.sum()
    mistakes = {
        "that is the rest, which the mean leaves": 1 - right,
        "that is the mean over the lags; the mean gate is one over the texts": (
            _of_energy(length * (gates.mean(-1)**2).sum(0), gates)),
        "the mean stands in for the gate of each text, so its energy counts once for each": right / texts,
        "divide the sums over the lags, and not lag by lag": by_lag.mean(-1),
        "give each channel its own share": whole.expand_as(right),
        "an energy is a sum of squares; there is no root to take": right.sqrt(),
        "the gates keep their signs in the mean": _of_energy(texts * (gates.abs().mean(0)**2).sum(-1), gates),
        "square first, and sum over the lags then": _of_energy(texts * mean.sum(-1)**2, gates),
    }
    if texts > 1:
        mistakes["divide the variance by the number of texts, not by one less"] = (
            1 - _of_energy(texts * gates.var(0).sum(-1), gates))
    for said, other in mistakes.items():
        if torch.allclose(found, other) and not torch.allclose(right, other):
            return f"; {said}"
    for added in (10.0**-k for k in range(3, 11)):
        if torch.allclose(found, right * energy / (energy + added), rtol=1e-12, atol=0):
            return "; add nothing to the energy, since it shows in a faint channel"
    return ""


@checker
def leaky(answer: Callable[[Iterator[float], list[float], float, float], Iterator[float]]) -> str:
    """Check `leaky(contents, weights, c, a)`: a generator of results, one for each content as it comes.

    With K weights, result t is the sum of weights[k] v_(t-k) over k < K, and of c a^(k-K) v_(t-k) over the later lags.
    """
    source = torch.Generator().manual_seed(15)
    cases = [(8, 40, 0.5, 0.9), (1, 12, -1.0, 0.5), (3, 2, 2.0, 0.7), (4, 30, 0.25, 1.0), (2, 20, 1.5, 0.0), (5, 400, 0.1, 0.99)]
    for kept, length, c, a in cases:
        v, weights = (torch.randn(n, dtype=torch.float64, generator=source).tolist() for n in (length, kept))
        case = f"leaky of {length} contents, {kept} weights, c={c}, a={a}"
        taken = 0

        def contents(v: list[float] = v) -> Iterator[float]:
            nonlocal taken
            for content in v:
                taken += 1
                yield content

        found, given = [], list(weights)
        results = answer(contents(), given, c, a)
        if not isinstance(results, Iterator):
            raise AssertionError(f"{case}: expected a generator, given a {type(results).__name__}; yield each result")
        for result in results:
            found.append(float(result))
            if taken != len(found):
                raise AssertionError(f"{case}: {taken} contents were taken before result {len(found) - 1} came; a "
                                     "decoder yields a result for each content before it sees the next")
        if given != weights:
            raise AssertionError(f"{case}: expected the weights to stay as they are")
        right = _short_and_leaky(v, weights, c, a)
        try:
            expect_close(case, torch.tensor(found, dtype=torch.float64), right)
        except AssertionError as error:
            raise AssertionError(f"{error}{_hint_on_leaky(found, v, weights, c, a, right)}") from None
    return f"{len(cases)} texts"


def _short_and_leaky(v: list[float], weights: list[float], c: float, a: float, first: int | None = None) -> Tensor:
    """Return the results term by term; the sum begins at lag `first`, None: after the weights."""
    first = len(weights) if first is None else first
    return torch.tensor([sum(weight * v[t - k] for k, weight in enumerate(weights[:t + 1]))
                         + sum(c * a ** (k - first) * v[t - k] for k in range(first, t + 1)) for t in range(len(v))],
                        dtype=torch.float64)


def _hint_on_leaky(found: list[float], v: list[float], weights: list[float], c: float, a: float, right: Tensor) -> str:
    """Return what the answer seems to have done."""
    kept = len(weights)
    if len(found) != len(v):
        return "; give one result for each content"
    mistakes = {
        "weights[0] belongs to the newest content": _short_and_leaky(v, weights[::-1], c, a),
        "a content enters the sum when it leaves the weights, at lag K": _short_and_leaky(v, weights, c, a, kept - 1),
        "a content of lag K counts c whole: the sum leaks before it comes in": _short_and_leaky(v, weights, c * a, a),
        "the sum leaks": _short_and_leaky(v, weights, c, 1.0),
    }
    for said, other in mistakes.items():
        if torch.allclose(torch.tensor(found, dtype=torch.float64), other) and not torch.allclose(right, other):
            return f"; {said}"
    return ""
