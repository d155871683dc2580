"""Checkers for the exercises of investigation B, what a trained model uses.

Gates are drawn from fixed seeds, and so are rises of the loss.
"""

from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

from . import checker, expect_close, expect_equal

__all__ = ["gates_of_others", "lags_needed", "share_of_mean"]


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
def lags_needed(answer: Callable[[Tensor, list[int], float], int | None]) -> str:
    """Check `lags_needed(rises, lags, tolerance)`: the smallest lag from which on no seed loses more than that.

    rises are `(seeds, lags)`, float64: by how much the loss of each seed rises with its gate cut after each of the
    lags, which ascend.  None, where even after the longest of them one seed loses more than the tolerance.
    """
    cases = _cut_gates()
    for rises, lags, tolerance in cases:
        given = answer(torch.tensor(rises, dtype=torch.float64), list(lags), tolerance)
        right = _first_harmless(rises, lags, tolerance)
        try:
            expect_equal(f"lags_needed({rises}, {lags}, {tolerance})", given, right)
        except AssertionError as error:
            raise AssertionError(f"{error}{_hint_on_lags(given, right, rises, lags, tolerance)}") from None
    return f"{len(cases)} tables"


def _first_harmless(rises: list[list[float]], lags: list[int], tolerance: float) -> int | None:
    """Return the first lag from which on all rises are at most the tolerance, None if there is none."""
    longer = [all(rise <= tolerance for row in rises for rise in row[k:]) for k in range(len(lags))]
    return lags[longer.index(True)] if True in longer else None


def _cut_gates() -> list[tuple[list[list[float]], list[int], float]]:
    """Return rises of the loss (seeds, lags), the lags, and a tolerance, one difficulty at a time and then several."""
    source = torch.Generator().manual_seed(15)
    cases = [
        ([[0.9, 0.3, 0.04, 0.01, 0.0], [0.8, 0.2, 0.01, 0.02, 0.01]], [0, 4, 8, 32, 64], 0.05),
        ([[0.9, 0.01, 0.3, 0.01, 0.0]], [0, 1, 4, 16, 64], 0.05),  # one good lag before a bad one
        ([[0.6, 0.03, 0.04, 0.2, 0.02]], [0, 1, 2, 3, 4], 0.1),
        ([[0.4, 0.07, 0.02, 0.0, 0.0], [0.3, 0.02, 0.06, 0.01, 0.01], [0.5, 0.4, 0.2, 0.09, 0.02]],
         [1, 3, 9, 27, 81], 0.05),  # the mean hides one seed
        ([[0.4, 0.08, 0.01], [0.6, -0.4, 0.02]], [2, 5, 7], 0.1),  # the loss falls
        ([[0.2, -0.3, -0.6]], [2, 8, 16], 0.1),
        ([[0.5, 0.25, 0.125]], [3, 4, 5], 0.25),  # just the tolerance
        ([[-0.1, 0.0, 0.01], [0.02, 0.01, 0.0]], [0, 6, 12], 0.05),  # from the first on
        ([[0.3, 0.01, 0.0], [0.2, 0.02, 0.2]], [0, 2, 10], 0.1),  # never
        ([[0.7, 0.5, 0.3]], [1, 2, 3], 0.1),
        ([[0.01]], [5], 0.02),
        ([[0.03]], [0], 0.02),
        ([[0.01, 0.06, 0.01], [0.06, 0.01, 0.04]], [2, 4, 6], 0.05),
        ([[0.04, 0.03, 0.02, 0.01], [0.04, 0.03, 0.04, 0.0], [0.04, 0.02, 0.03, 0.01]],
         [7, 8, 9, 10], 0.05),  # together more
        ([[0.03, 0.02], [-0.2, -0.3]], [0, 3], 0.0),
        ([[0.5, 0.2, 0.01], [0.5, 0.03, 0.01], [0.5, 0.02, 0.02]], [1, 2, 3], 0.1),  # the first seed alone
        ([[0.5, 0.1004, 0.02]], [0, 1, 2], 0.1),  # nearly the tolerance
    ]
    for lags in ([0, 1, 2, 4, 8], [3, 5, 6, 20]) * 4:
        fall = torch.logspace(-0.3, -1.7, len(lags), dtype=torch.float64)
        noise = 0.05 * torch.randn((3, len(lags)), dtype=torch.float64, generator=source)
        cases.append(([[round(rise, 2) for rise in row] for row in (fall + noise).tolist()], lags, 0.1))
    return cases


def _hint_on_lags(given: object, right: int | None, rises: list[list[float]], lags: list[int],
                  tolerance: float) -> str:
    """Return what the answer seems to have done."""
    if isinstance(given, Tensor) and given.numel() == 1 or isinstance(given, Real) and given == right:
        return "; give the lag as an int"
    if given is not None and not isinstance(given, Real):
        return ""
    seeds, columns = len(rises), list(zip(*rises, strict=True))
    good = [max(column) <= tolerance for column in columns]
    if given is None and right is not None:
        return "; 0 is a lag like the others" if right == 0 else ""
    if right is None and not good[-1] and given in (lags[-1], -1, len(lags)):
        return "; None, since a gate up to the longest lag is too short"
    if any(good) and given == lags[good.index(True)]:
        return "; after a longer lag a seed loses more than the tolerance"
    mistakes = {
        "a seed may lose as much as the tolerance, but not more": [
            [max(rise, tolerance + 1) if rise == tolerance else rise for rise in row] for row in rises],
        "where the loss falls, nothing is lost": [[abs(rise) for rise in row] for row in rises],
        "a mean or a median over the seeds hides the worst of them": [[sum(column) / seeds for column in columns]],
        "each seed counts, and not only the best": [[min(column) for column in columns]],
        "take each seed for itself, and not their sum": [[sum(column) for column in columns]],
        "each seed counts, and not only the first": rises[:1],
        "each seed counts, and not only the last": rises[-1:],
    }
    for said, other in mistakes.items():
        if given == _first_harmless(other, lags, tolerance):
            return f"; {said}"
    if right is not None and given == lags.index(right):
        return "; that is the place in the list, and not the lag"
    if right is not None and False in good and given == lags[len(good) - 1 - good[::-1].index(False)]:
        return "; that is the longest lag at which a seed loses too much"
    return ""
