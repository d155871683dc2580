"""Checkers for the exercises of chapter 13, what a trained model uses.

Gates and answers are drawn from fixed seeds.
"""

import math
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from . import checker, expect_close, expect_numbers

__all__ = ["error_of_difference", "gates_of_others", "items_needed"]


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
def error_of_difference(answer: Callable[[Tensor, Tensor], tuple[float, float]]) -> str:
    """Check `error_of_difference(first, second)`: (unpaired, paired) standard error of a difference of accuracies.

    first and second are 0 or 1 for each of the same n items, `(n,)`, float64.  A variance may be divided by n or by
    n - 1: what lies between the two, a quarter of a percent at most, is accepted.
    """
    cases = _two_models()
    for what, first, second in cases:
        n = len(first)
        case = f"error_of_difference of {what}, n={n}"
        p1, p2, d = float(first.mean()), float(second.mean()), first - second
        right = {"unpaired": ((p1 * (1 - p1) + p2 * (1 - p2)) / n)**0.5,
                 "paired": (float((d**2).mean() - d.mean()**2) / n)**0.5}
        given = expect_numbers(case, answer(first.clone(), second.clone()), tuple(right))
        for name, low in right.items():
            high = low * (n / (n - 1))**0.5
            if not (1 - 1e-4) * low - 1e-5 * (low == 0) <= given[name] <= (1 + 1e-4) * high + 1e-5 * (low == 0):
                hint = "; unpaired first, then paired" if _swapped(given, right) else ""
                raise AssertionError(f"{case}: {name} expected {low:.5g}, given {given[name]:.5g}; "
                                     f"the accuracies are {p1:.3f} and {p2:.3f}{hint}")
    return f"{len(cases)} pairs of models"


def _swapped(given: dict[str, float], right: dict[str, float]) -> bool:
    unpaired, paired = right.values()
    return all(math.isclose(found, other, rel_tol=0.005, abs_tol=1e-5)
               for found, other in zip(given.values(), (paired, unpaired), strict=True))


def _two_models() -> list[tuple[str, Tensor, Tensor]]:
    """Return what two models have in common, and 0 or 1 for each item, first and second, `(n,)`."""
    source = torch.Generator().manual_seed(9)

    def drawn(n: int, p: float) -> Tensor:
        return (torch.rand(n, generator=source) < p).double()

    same, other, copied = drawn(400, 0.7), drawn(200, 0.65), drawn(300, 0.6)
    slips, better, worse = drawn(300, 0.1), drawn(250, 0.85), drawn(600, 0.4)
    return [
        ("identical answers", same, same),
        ("opposite answers", other, 1 - other),
        ("independent answers", drawn(1000, 0.9), drawn(1000, 0.3)),
        ("independent answers near chance", drawn(2000, 0.27), drawn(2000, 0.25)),
        ("answers that differ in one item of ten", copied, (copied - slips).abs()),
        ("a model that is right only where the first is right", better, better * drawn(250, 0.6)),
        ("a model that is right mostly where the first is wrong", worse, (1 - worse) * drawn(600, 0.9)),
        ("a model that is always right and one that is not", torch.ones(200).double(), drawn(200, 0.5)),
    ]


@checker
def items_needed(answer: Callable[[float, float, float], int]) -> str:
    """Check `items_needed(p, q, correlation)`: the fewest items that put two accuracies two standard errors apart.

    p and q are accuracies between 0 and 1, and the answers to one item have the correlation given.
    """
    cases = [(p, q, c) for (p, q), c in product([(0.5, 0.25), (0.164, 0.088), (0.31, 0.33), (0.6, 0.9), (0.502, 0.49)],
                                                [0.0, 0.5, 0.2, 0.41])]
    for p, q, c in cases:
        a, b = p * (1 - p), q * (1 - q)
        exact = 4 * (a + b - 2 * c * (a * b)**0.5) / (p - q)**2
        case = f"items_needed({p}, {q}, {c})"
        given = expect_numbers(case, [answer(p, q, c)], ("items",))["items"]
        least, most = (math.ceil(exact * (1 + rounding)) for rounding in (-1e-9, 1e-9))
        if given not in (least, most):
            raise AssertionError(f"{case}: expected {least}, given {given:.10g}{_hint(given, exact, p, q, a, b)}")
    return f"{len(cases)} pairs of models"


def _hint(given: float, exact: float, p: float, q: float, a: float, b: float) -> str:
    """Return what the answer seems to have left out."""
    uncorrelated = 4 * (a + b) / (p - q)**2
    for said, other in (("that is for one standard error", exact / 4), ("round up to whole items", exact),
                        ("the correlation is not used", uncorrelated)):
        if abs(given - other) < 1e-6 * other or given == (math.floor if other == exact else math.ceil)(other):
            return f"; {said}"
    return ""
