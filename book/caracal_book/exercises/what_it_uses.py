"""Checkers for the exercises of investigation B, what a trained Caracal has become."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from . import checker, drawer, ensure, expect

__all__ = ["gates_of_others", "lags_needed", "share_of_mean"]


@checker
def gates_of_others(answer: Callable) -> str:
    """Check `gates_of_others(gates)`: for each text the mean of the gates of all the other texts.

    gates and result are `(texts, width, length)`, float64, of at least two texts; the gates given stay as they are.
    """
    draw, shapes = drawer(13), [(2, 1, 1), (2, 4, 8), (5, 3, 7), (16, 8, 32)]
    for shape in shapes:
        gates = draw(*shape)
        kept, case = gates.clone(), f"gates_of_others of {shape[0]} texts, gates {shape}"
        found = answer(gates)
        ensure(torch.equal(gates, kept), f"{case}: expected the gates given to stay as they are; make new ones")
        right = torch.stack([torch.cat([gates[:i], gates[i + 1:]]).mean(0) for i in range(len(gates))])
        expect(case, found, right, {"a text's own gate is in its mean": gates.mean(0).expand_as(gates),
                                    "divide by the number of the other texts": right * (len(gates) - 1) / len(gates),
                                    "that is one mean for all texts": gates.mean(0)})
    return f"{len(shapes)} batches"


@checker
def share_of_mean(answer: Callable) -> str:
    """Check `share_of_mean(gates)`: the share of each channel's energy that the mean gate of all texts explains.

    gates are `(texts, width, length)` and the result `(width,)`, float64; the gates given stay as they are.  The share
    of a channel that writes nothing is 0.
    """
    draw = drawer(14)
    common = torch.tensor([0.0, 1.0, 30.0], dtype=torch.float64)[:, None] * draw(1, 3, 9)
    faint = torch.tensor([1.0, 1e-4, 0.0], dtype=torch.float64)[:, None]
    cases = {"two texts": draw(2, 1, 4), "one kernel for all texts": draw(1, 2, 5).repeat(3, 1, 1),
             "texts that have more and more in common": draw(7, 3, 9) + common,
             "gates that fade with the lag": (draw(6, 3, 11) + draw(1, 3, 11)) * torch.logspace(0, -2, 11),
             "one text": draw(1, 2, 4), "a faint channel, and one that writes nothing": (draw(5, 3, 4) + 1) * faint}
    for what, gates in cases.items():
        kept, case = gates.clone(), f"share_of_mean of {what}, gates {tuple(gates.shape)}"
        found = answer(gates)
        ensure(torch.equal(gates, kept), f"{case}: expected the gates given to stay as they are; make new ones")
        energy, mean, texts = (gates**2).sum((0, 2)), gates.mean(0), len(gates)

        def of_energy(part: Tensor, energy=energy) -> Tensor:
            return torch.where(energy > 0, part / energy, 0.0)

        right = of_energy(texts * (mean**2).sum(-1))
        expect(case, found, right, {
            "the share of a channel that writes nothing is 0": texts * (mean**2).sum(-1) / energy,
            "that is the rest, which the mean leaves": 1 - right,
            "the mean stands in for the gate of each text, so its energy counts once for each": right / texts,
            "that is the mean over the lags; the mean gate is one over the texts":
                of_energy(gates.shape[-1] * (gates.mean(-1)**2).sum(0)),
            "give each channel its own share": ((texts * mean**2).sum() / energy.sum()).expand_as(right),
            "an energy is a sum of squares; there is no root to take": right.sqrt()})
    return f"{len(cases)} batches"


@checker
def lags_needed(answer: Callable) -> str:
    """Check `lags_needed(rises, lags, tolerance)`: the smallest lag from which on no seed loses more than that.

    rises are `(seeds, lags)`, float64: by how much the loss of each seed rises with its gate cut after each of the
    lags, which ascend.  None, where even after the longest of them one seed loses more than the tolerance.
    """
    cases = [
        ([[0.9, 0.3, 0.04, 0.01, 0.0], [0.8, 0.2, 0.01, 0.02, 0.01]], [0, 4, 8, 32, 64], 0.05),
        ([[0.9, 0.01, 0.3, 0.01, 0.0]], [0, 1, 4, 16, 64], 0.05),  # one good lag before a bad one
        ([[0.4, 0.07, 0.02, 0.0, 0.0], [0.3, 0.02, 0.06, 0.01, 0.01], [0.5, 0.4, 0.2, 0.09, 0.02]],
         [1, 3, 9, 27, 81], 0.05),  # the mean hides one seed
        ([[0.2, -0.3, -0.6]], [2, 8, 16], 0.1),  # the loss falls
        ([[0.5, 0.25, 0.125]], [3, 4, 5], 0.25),  # just the tolerance
        ([[-0.1, 0.0, 0.01], [0.02, 0.01, 0.0]], [0, 6, 12], 0.05),  # from the first on
        ([[0.3, 0.01, 0.0], [0.2, 0.02, 0.2]], [0, 2, 10], 0.1),  # never
        ([[0.01]], [5], 0.02),
    ]
    for rises, lags, tolerance in cases:
        table = torch.tensor(rises, dtype=torch.float64)

        def first(rises: Tensor, tolerance: float = tolerance, lags=lags) -> int | None:
            """Return the first lag from which on all rises are at most the tolerance."""
            later = rises.amax(0).flip(0).cummax(0).values.flip(0)
            return next((lag for lag, rise in zip(lags, later.tolist(), strict=True) if rise <= tolerance), None)

        right, good = first(table), (table <= tolerance).all(0).tolist()
        given = answer(table.clone(), list(lags), tolerance)
        expect(f"lags_needed({rises}, {lags}, {tolerance})", given, right, {
            "None, since a gate up to the longest lag is too short": given if right is None else math.nan,
            "after a longer lag a seed loses more than the tolerance":
                lags[good.index(True)] if True in good else math.nan,
            "a seed may lose as much as the tolerance, but not more": first(table, tolerance - 1e-9),
            "where the loss falls, nothing is lost": first(table.abs()),
            "a mean or a median over the seeds hides the worst of them": first(table.mean(0, keepdim=True)),
            "each seed counts, and not only the best": first(table.amin(0, keepdim=True)),
            "that is the place in the list, and not the lag": lags.index(right) if right is not None else math.nan})
    return f"{len(cases)} tables"
