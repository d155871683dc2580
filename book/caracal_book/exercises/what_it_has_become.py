"""Checkers for the exercises of investigation B, what a trained Caracal has become."""

from collections.abc import Callable

import torch
from torch import Tensor

from . import checker, drawer, ensure, expect

__all__ = ["gates_of_others", "leaky", "share_of_mean"]


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
def leaky(answer: Callable) -> str:
    """Check `leaky(contents, weights, c, a)`: a generator of results, one for each content as it comes.

    With K weights, result t is the sum of weights[k] v_(t-k) over k < K, and of c a^(k-K) v_(t-k) over the later lags.
    """
    draw, cases = drawer(15), [(8, 40, 0.5, 0.9), (1, 12, -1.0, 0.5), (3, 2, 2.0, 0.7), (4, 30, 0.25, 1.0),
                               (2, 20, 1.5, 0.0)]
    for kept, length, c, a in cases:
        v, weights, taken = draw(length).tolist(), draw(kept).tolist(), []
        case = f"leaky of {length} contents, {kept} weights, c={c}, a={a}"
        given = [*weights]
        found = []
        for result in answer((taken.append(content) or content for content in v), given, c, a):
            found.append(float(result))
            ensure(len(taken) == len(found), f"{case}: {len(taken)} contents were taken before result "
                   f"{len(found) - 1} came; a decoder yields one for each content before it sees the next")
        ensure(given == weights, f"{case}: expected the weights to stay as they are")

        def direct(w=weights, c=c, a=a, first=kept, v=v) -> Tensor:
            kernel = [(w[k] if k < len(w) else 0.0) + (c * a ** (k - first) if k >= first else 0.0)
                      for k in range(len(v))]
            return torch.tensor([sum(kernel[k] * v[t - k] for k in range(t + 1)) for t in range(len(v))],
                                dtype=torch.float64)

        expect(case, torch.tensor(found, dtype=torch.float64), direct(), {
            "weights[0] belongs to the newest content": direct(weights[::-1]),
            "a content enters the sum when it leaves the weights, at lag K": direct(first=kept - 1),
            "a content of lag K counts c whole: the sum leaks before it comes in": direct(c=c * a),
            "the sum leaks": direct(a=1.0)})
    return f"{len(cases)} texts"
