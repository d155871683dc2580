"""The checkers of chapter 13: the answers that they accept, and those that they reject with what they say."""

import math

import numpy as np
import torch
from exercise_answers import Answers

from caracal_min.exercises import what_it_uses as check


def others_by_sum(gates):
    return (gates.sum(0) - gates) / (len(gates) - 1)


def others_by_mask(gates):
    weights = 1 - torch.eye(len(gates), dtype=gates.dtype)
    return torch.einsum("ij,jdl->idl", weights / weights.sum(1, keepdim=True), gates)


def others_in_place(gates):
    gates.neg_().add_(-gates.sum(0)).div_(len(gates) - 1)
    return gates


def error_by_formula(first, second):
    n, d = len(first), first - second
    p1, p2 = first.mean(), second.mean()
    paired = ((d**2).mean() - d.mean()**2).sqrt() / n**0.5
    return (p1 * (1 - p1) / n + p2 * (1 - p2) / n).sqrt(), paired


def error_by_sample_variances(first, second):
    n = len(first)
    return math.sqrt((first.var() + second.var()) / n), (first - second).std().item() / math.sqrt(n)


def error_by_mixed_variances(first, second):
    a, b = first.numpy().astype(np.float32), second.numpy().astype(np.float32)
    return [np.sqrt(a.var(ddof=1) / len(a) + b.var() / len(b)), np.sqrt((a - b).var(ddof=1) / len(a))]


def error_by_counting(first, second):
    """From the four counts of a table: both right, one of them, none."""
    n = len(first)
    only_first, only_second = int((first > second).sum()), int((second > first).sum())
    p1, p2 = int(first.sum()) / n, int(second.sum()) / n
    different = only_first + only_second - (only_first - only_second)**2 / n
    return ((p1 * (1 - p1) + p2 * (1 - p2)) / n)**0.5, different**0.5 / n


def error_with(change):
    def error_of_difference(first, second):
        return change(*map(float, error_by_formula(first, second)), first, second, len(first))

    return error_of_difference


def items_by_formula(p, q, correlation):
    a, b = p * (1 - p), q * (1 - q)
    return math.ceil(4 * (a + b - 2 * correlation * math.sqrt(a * b)) / (p - q)**2)


def items_by_trying(p, q, correlation):
    a, b = p * (1 - p), q * (1 - q)
    for n in range(1, 10**6):
        if (p - q)**2 >= 4 * (a + b - 2 * correlation * math.sqrt(a * b)) / n - 1e-15:
            return n


def items_with(errors=2, correlation=lambda c: c, whole=math.ceil):
    def items_needed(p, q, c):
        a, b = p * (1 - p), q * (1 - q)
        return whole(errors**2 * (a + b - 2 * correlation(c) * math.sqrt(a * b)) / (p - q)**2)

    return items_needed


RIGHT = {
    check.gates_of_others: [others_by_sum, others_by_mask],
    check.error_of_difference: [error_by_formula, error_by_sample_variances, error_by_mixed_variances,
                                error_by_counting],
    check.items_needed: [items_by_formula, items_by_trying, items_with(),
                         lambda p, q, c: np.ceil(items_with(whole=float)(p, q, c))],
}
WRONG = {
    check.gates_of_others: {
        "the mean of all": lambda gates: gates.mean(0, keepdim=True).expand_as(gates),
        "one mean": lambda gates: gates.mean(0),
        "divided by all": lambda gates: (gates.sum(0) - gates) / len(gates),
        "the next text": lambda gates: gates.roll(-1, dims=0),
        "its own": lambda gates: gates.clone(),
        "over places": lambda gates: (gates.sum(-1, keepdim=True) - gates) / max(1, gates.shape[-1] - 1),
        "in place": others_in_place,
        "single precision": lambda gates: others_by_sum(gates).float(),
        "nothing": lambda gates: None,
    },
    check.error_of_difference: {
        "unpaired twice": error_with(lambda u, p, *rest: (u, u)),
        "paired twice": error_with(lambda u, p, *rest: (p, p)),
        "paired first": error_with(lambda u, p, *rest: (p, u)),
        "squares": error_with(lambda u, p, *rest: (u**2, p**2)),
        "not divided by n": error_with(lambda u, p, a, b, n: (u * n**0.5, p * n**0.5)),
        "divided by n, not its root": error_with(lambda u, p, a, b, n: (u, p / n**0.5)),
        "one model's error": error_with(lambda u, p, a, b, n: (float(a.var() / n)**0.5, p)),
        "errors added": error_with(lambda u, p, a, b, n: (float(a.std() + b.std()) / n**0.5, p)),
        "one accuracy for both": error_with(lambda u, p, a, b, n: (
            (2 * float((a + b).mean() / 2 * (1 - (a + b).mean() / 2)) / n)**0.5, p)),
        "mean of d forgotten": error_with(lambda u, p, a, b, n: (u, float(((a - b)**2).mean() / n)**0.5)),
        "d without its sign": error_with(lambda u, p, a, b, n: (u, float((a - b).abs().std() / n**0.5))),
        "correlation with the wrong sign": error_with(lambda u, p, a, b, n: (u, abs(2 * u**2 - p**2)**0.5)),
        "half a percent more": error_with(lambda u, p, *rest: (1.005 * u, p)),
        "half a percent less": error_with(lambda u, p, *rest: (u, 0.995 * p)),
        "nan": lambda a, b: (math.nan, math.nan),
        "one number": lambda a, b: error_by_formula(a, b)[0],
    },
    check.items_needed: {
        "one error": items_with(errors=1),
        "unpaired": items_with(correlation=lambda c: 0.0),
        "correlation the other way": items_with(correlation=lambda c: -c),
        "half the correlation": items_with(correlation=lambda c: c / 2),
        "rounded down": items_with(whole=int),
        "not rounded": items_with(whole=float),
        "a word": items_with(whole=str),
        "both": lambda p, q, c: (items_by_formula(p, q, c), c),
    },
}
REASONS = [
    (check.gates_of_others, "the mean of all",
     "gates_of_others of 2 texts, gates (2, 1, 1): entry [0, 0, 0] should be"),
    (check.gates_of_others, "the mean of all", "; a text's own gate is in its mean"),
    (check.gates_of_others, "divided by all", "; divide by the number of the other texts"),
    (check.gates_of_others, "one mean", "expected shape (2, 1, 1), given (1, 1)"),
    (check.gates_of_others, "in place",
     "expected the gates given to stay as they are; make new ones"),
    (check.error_of_difference, "unpaired twice", "error_of_difference of identical answers, n=400: paired expected 0"),
    (check.error_of_difference, "correlation with the wrong sign", "identical answers, n=400: paired expected 0"),
    (check.error_of_difference, "one accuracy for both", "opposite answers, n=200: unpaired expected"),
    (check.error_of_difference, "mean of d forgotten", "opposite answers, n=200: paired expected"),
    (check.error_of_difference, "paired first", "; unpaired first, then paired"),
    (check.error_of_difference, "nan", "given nan"),
    (check.error_of_difference, "one number", "expected (unpaired, paired), given a Tensor"),
    (check.items_needed, "one error", "expected 28, given 7; that is for one standard error"),
    (check.items_needed, "unpaired",
     "items_needed(0.5, 0.25, 0.5): expected 15, given 28; the correlation is not used"),
    (check.items_needed, "not rounded", "; round up to whole items"),
    (check.items_needed, "rounded down", "expected 15, given 14; round up to whole items"),
    (check.items_needed, "a word", "items expected as a number, given a str"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
