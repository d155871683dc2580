"""The checkers of chapter 9: the answers that they accept, and those that they reject with what they say."""

import copy
import math

import numpy as np
import torch
from exercise_answers import Answers

from caracal_book.exercises import teaching_it as check


def without_grad(model, loss_of):
    learning = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    gradients = torch.autograd.grad(loss_of(model), [p for _, p in learning], allow_unused=True)
    return [name for (name, _), g in zip(learning, gradients, strict=True) if g is None or not g.any()]


def in_a_copy(model, loss_of):
    twin = copy.deepcopy(model)
    twin.zero_grad(set_to_none=True)
    loss_of(twin).backward()
    return tuple(k for k, p in twin.named_parameters()
                 if p.requires_grad and (p.grad is None or p.grad.abs().max() == 0))


def with_backward(model, loss_of, clear=False, none=True, zeros=True, frozen=False, restore=False):
    """A test with backward; the options leave out one part each."""
    old = {k: None if p.grad is None else p.grad.clone() for k, p in model.named_parameters()}
    if clear:
        model.zero_grad(set_to_none=True)
    loss_of(model).backward()
    names = [k for k, p in model.named_parameters() if (p.requires_grad or frozen)
             and ((none and p.grad is None) or (zeros and p.grad is not None and not p.grad.any()))]
    if restore:
        for k, p in model.named_parameters():
            p.grad = old[k]
    return names


def right_adamw(w, g, moments, step, rate, decay):
    m, s = 0.9 * moments[0] + 0.1 * g, 0.95 * moments[1] + 0.05 * g**2
    move = m / (1 - 0.9**step) / ((s / (1 - 0.95**step)).sqrt() + 1e-8)
    return w - rate * (move + decay * w), (m, s)


def adamw_in_place(w, g, moments, step, rate, decay):
    m, s = moments
    m.lerp_(g, 0.1)
    s.mul_(0.95).addcmul_(g, g, value=0.05)
    w.mul_(1 - rate * decay)
    w.addcdiv_(m / (1 - 0.9**step), s.sqrt() / math.sqrt(1 - 0.95**step) + 1e-8, value=-rate)
    return [w, [m, s]]


def right_trigram(train, vocabulary):
    def counted(tokens):
        counts = np.zeros((vocabulary,) * tokens)
        np.add.at(counts, tuple(train[k:len(train) - tokens + 1 + k] for k in range(tokens)), 1)
        return counts

    def leaning(seen, p):
        return (seen + np.count_nonzero(seen) * p) / max(1, seen.sum() + np.count_nonzero(seen)) if seen.any() else p

    pairs, triples = counted(2), counted(3)
    single = (counted(1) + 0.5) / (len(train) + 0.5 * vocabulary)
    return lambda a, b: leaning(triples[a, b], leaning(pairs[b], single))


def trigram_counted_by_dictionaries(train, vocabulary):
    text = train.tolist()
    after = {}
    for a, b, c in zip([None, *text], text, text[1:], strict=False):
        for context in {(b,), (a, b)}:
            after.setdefault(context, []).append(c)
    single = [(text.count(c) + 0.5) / (len(text) + 0.5 * vocabulary) for c in range(vocabulary)]

    def predict(a, b):
        p = single
        for context in ((b,), (a, b)):
            came = after.get(context, [])
            new = len(set(came))
            p = [(came.count(c) + new * q) / (len(came) + new) for c, q in enumerate(p)] if came else p
        return np.array(p)

    return predict


def trigram_that_sets_one_aside(train, vocabulary):
    triples, pairs = np.zeros((vocabulary,) * 3), np.zeros((vocabulary,) * 2)
    np.add.at(triples, (train[:-2], train[1:-1], train[2:]), 1)
    np.add.at(pairs, (train[:-1], train[1:]), 1)
    second = (pairs + 1 / vocabulary) / (pairs.sum(-1, keepdims=True) + 1)
    return lambda a, b: (triples[a, b] + second[b]) / (triples[a, b].sum() + 1)


def mixed_trigram(train, vocabulary):
    """Fixed shares of the models of triples, pairs and single tokens."""
    triples, pairs = np.zeros((vocabulary,) * 3), np.zeros((vocabulary,) * 2)
    np.add.at(triples, (train[:-2], train[1:-1], train[2:]), 1)
    np.add.at(pairs, (train[:-1], train[1:]), 1)
    second, single = pairs / pairs.sum(-1, keepdims=True), np.bincount(train, minlength=vocabulary) / len(train)

    def predict(a, b):
        seen = triples[a, b].sum()
        return 0.7 * (triples[a, b] / seen if seen else second[b]) + 0.28 * second[b] + 0.02 * single

    return predict


def adamw_variant(steps=0, correct=True, inside=False, coupled=False, rated=True, root=True, keep_corrected=False):
    """One step with something else than asked."""
    def adamw(w, g, moments, step, rate, decay):
        g = g + decay * w if coupled else g
        m, s = 0.9 * moments[0] + 0.1 * g, 0.95 * moments[1] + 0.05 * g**2
        n = step + steps
        first, second = (m / (1 - 0.9**n), s / (1 - 0.95**n)) if correct else (m, s)
        size = (second + 1e-8).sqrt() if inside else (second.sqrt() if root else second) + 1e-8
        shrink = 0 if coupled else decay * w if rated else decay * w / rate
        return w - rate * (first / size + shrink), (first, second) if keep_corrected else (m, s)

    return adamw


def trigram_without_smoothing(train, vocabulary):
    triples = np.zeros((vocabulary,) * 3)
    np.add.at(triples, (train[:-2], train[1:-1], train[2:]), 1)
    return lambda a, b: triples[a, b] / max(1, triples[a, b].sum())


def trigram_that_does_not_sum_to_one(train, vocabulary):
    triples = np.zeros((vocabulary,) * 3)
    np.add.at(triples, (train[:-2], train[1:-1], train[2:]), 1)
    return lambda a, b: (triples[a, b] + 1) / max(1, triples[a, b].sum())


def trigram_that_looks_at_one_token(train, vocabulary):
    pairs = np.ones((vocabulary, vocabulary))
    np.add.at(pairs, (train[:-1], train[1:]), 1)
    return lambda a, b: pairs[b] / pairs[b].sum()


def trigram_smoothed_away(train, vocabulary):
    triples = np.full((vocabulary,) * 3, 1000.0)
    np.add.at(triples, (train[:-2], train[1:-1], train[2:]), 1)
    return lambda a, b: triples[a, b] / triples[a, b].sum()


def trigram_that_adds_one(train, vocabulary, one=1.0):
    triples = np.full((vocabulary,) * 3, one)
    np.add.at(triples, (train[:-2], train[1:-1], train[2:]), 1)
    return lambda a, b: triples[a, b] / triples[a, b].sum()


def trigram_that_leans_on_single_counts(train, vocabulary):
    triples = np.zeros((vocabulary,) * 3)
    np.add.at(triples, (train[:-2], train[1:-1], train[2:]), 1)
    single = (np.bincount(train, minlength=vocabulary) + 0.5) / (len(train) + 0.5 * vocabulary)
    return lambda a, b: (triples[a, b] + single) / (triples[a, b].sum() + 1)


RIGHT = {
    check.silent_parameters: [without_grad, in_a_copy,
                              lambda model, loss_of: with_backward(model, loss_of, clear=True, restore=True)],
    check.adamw: [right_adamw, adamw_in_place],
    check.trigram_model: [right_trigram, trigram_counted_by_dictionaries],
}
WRONG = {
    check.silent_parameters: {
        "old gradients hide": lambda m, f: with_backward(m, f, restore=True),
        "changes the gradients": lambda m, f: with_backward(m, f, clear=True),
        "None alone": lambda m, f: with_backward(m, f, clear=True, zeros=False, restore=True),
        "zeros alone": lambda m, f: with_backward(m, f, clear=True, none=False, restore=True),
        "frozen ones too": lambda m, f: with_backward(m, f, clear=True, frozen=True, restore=True),
        "any zero entry": lambda m, f: [k for (k, p), g in zip(
            [x for x in m.named_parameters() if x[1].requires_grad],
            torch.autograd.grad(f(m), [p for p in m.parameters() if p.requires_grad], allow_unused=True), strict=True)
            if g is None or (g == 0).any()],
        "nearly zero counts": lambda m, f: [k for (k, p), g in zip(
            [x for x in m.named_parameters() if x[1].requires_grad],
            torch.autograd.grad(f(m), [p for p in m.parameters() if p.requires_grad], allow_unused=True), strict=True)
            if g is None or g.abs().max() < 1e-12],
        "nobody": lambda m, f: [],
        "reversed": lambda m, f: without_grad(m, f)[::-1],
        "how many": lambda m, f: len(without_grad(m, f)),
    },
    check.adamw: {
        "no correction": adamw_variant(correct=False),
        "corrects for one step more": adamw_variant(steps=1),
        "epsilon under the root": adamw_variant(inside=True),
        "decay in the gradient": adamw_variant(coupled=True),
        "decay without the rate": adamw_variant(rated=False),
        "no root": adamw_variant(root=False),
        "keeps the corrected moments": adamw_variant(keep_corrected=True),
        "plain gradient descent": lambda w, g, moments, step, rate, decay: (w - rate * (g + decay * w), moments),
        "uphill": lambda w, *rest: (2 * w - right_adamw(w, *rest)[0], right_adamw(w, *rest)[1]),
        "the weight alone": lambda *a: right_adamw(*a)[0],
    },
    check.trigram_model: {
        "without smoothing": trigram_without_smoothing,
        "that does not sum to one": trigram_that_does_not_sum_to_one,
        "that looks at one token": trigram_that_looks_at_one_token,
        "smoothed away": trigram_smoothed_away,
        "adds one": trigram_that_adds_one,
        "adds a tenth": lambda train, vocabulary: trigram_that_adds_one(train, vocabulary, 0.1),
        "adds a hundredth": lambda train, vocabulary: trigram_that_adds_one(train, vocabulary, 0.01),
        "leans on single counts": trigram_that_leans_on_single_counts,
        "fixed shares": mixed_trigram,
        "sets one aside": trigram_that_sets_one_aside,
    },
}
REASONS = [
    (check.silent_parameters, "nearly zero counts", "the gradient of c is tiny: expected []"),
    (check.silent_parameters, "old gradients hide", "b is unused, with old gradients in the model: expected ['b']"),
    (check.silent_parameters, "changes the gradients", "the gradient of a was changed"),
    (check.silent_parameters, "None alone", "a is multiplied by zero: expected ['a']"),
    (check.silent_parameters, "any zero entry", "one entry of b is used: expected []"),
    (check.silent_parameters, "frozen ones too", "a is not meant to learn: expected []"),
    (check.adamw, "no correction", "step 1 of a weight of shape (3,), gradient of size 1e-06, decay 0.0: w: entry"),
    (check.adamw, "epsilon under the root", "gradient of size 1e-06, decay 0.0: w: entry"),
    (check.adamw, "decay in the gradient", "decay 0.1: w: entry"),
    (check.adamw, "the weight alone", "expected (w, (m, s)), given a Tensor"),
    (check.trigram_model, "without smoothing", "every token needs a probability above 0, the smallest is 0"),
    (check.trigram_model, "that does not sum to one", "they should sum to 1"),
    (check.trigram_model, "that looks at one token", "different tokens: expected"),
    (check.trigram_model, "adds one", "different tokens: expected"),
    (check.trigram_model, "fixed shares", "as many tokens as different ones came are added"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
    complaint = "expected|should|needs|the source itself has"
