"""The checkers of chapter 12: the answers that they accept, and those that they reject with what they say."""

import math

import numpy as np
import torch
from exercise_answers import Answers

from caracal_book.exercises import train_tiny as check


def right_bits(loss, tokens, text_bytes):
    return loss / math.log(2) * tokens / text_bytes


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


def gradients_by_grad(model, x, y, sizes):
    parts = zip(x.split(sizes), y.split(sizes), strict=True)
    total = [sum(g) for g in zip(*(torch.autograd.grad(model(targets=ys, tokens=xs)[1] * len(xs) / len(x),
                                                       list(model.parameters())) for xs, ys in parts), strict=True)]
    for p, g in zip(model.parameters(), total, strict=True):
        p.grad = g


def gradients_in_one_pass(model, x, y, sizes):
    model(x, y)[1].backward()


def gradients_sequence_by_sequence(model, x, y, sizes):
    right_gradients(model, x, y, [1] * len(x))


def gradients_of_a_sum(model, x, y, sizes):
    sum(model(xs, ys)[1] * len(xs) / len(x)
        for xs, ys in zip(x.split(sizes), y.split(sizes), strict=True)).backward()


def right_gradients(model, x, y, sizes):
    for xs, ys in zip(x.split(sizes), y.split(sizes), strict=True):
        (model(xs, ys)[1] * len(xs) / len(x)).backward()


def bits_forgets_the_base(loss, tokens, text_bytes):
    return loss * tokens / text_bytes


def bits_multiplies_by_the_base(loss, tokens, text_bytes):
    return loss * math.log(2) * tokens / text_bytes


def bits_of_a_token(loss, tokens, text_bytes):
    return loss / math.log(2)


def bits_turns_the_ratio_around(loss, tokens, text_bytes):
    return loss / math.log(2) * text_bytes / tokens


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


def gradients_mean_of_means(model, x, y, sizes):
    for xs, ys in zip(x.split(sizes), y.split(sizes), strict=True):
        (model(xs, ys)[1] / len(sizes)).backward()


def gradients_summed(model, x, y, sizes):
    for xs, ys in zip(x.split(sizes), y.split(sizes), strict=True):
        model(xs, ys)[1].backward()


def gradients_of_the_last_part(model, x, y, sizes):
    for xs, ys in zip(x.split(sizes), y.split(sizes), strict=True):
        model.zero_grad()
        (model(xs, ys)[1] * len(xs) / len(x)).backward()


def gradients_of_the_last_mean(model, x, y, sizes):
    for xs, ys in zip(x.split(sizes), y.split(sizes), strict=True):
        model.zero_grad()
        model(xs, ys)[1].backward()


RIGHT = {
    check.bits_per_byte: [right_bits],
    check.adamw: [right_adamw, adamw_in_place],
    check.trigram_model: [right_trigram, trigram_counted_by_dictionaries],
    check.accumulated_gradients: [right_gradients, gradients_by_grad],
}
WRONG = {
    check.bits_per_byte: {
        "forgets the base": bits_forgets_the_base,
        "multiplies by the base": bits_multiplies_by_the_base,
        "of a token": bits_of_a_token,
        "turns the ratio around": bits_turns_the_ratio_around,
        "of nothing known": lambda loss, tokens, text_bytes: 1.01 * right_bits(loss, tokens, text_bytes),
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
    check.accumulated_gradients: {
        "mean of means": gradients_mean_of_means,
        "summed": gradients_summed,
        "of the last part": gradients_of_the_last_part,
        "of the last part, as a mean": gradients_of_the_last_mean,
        "in one pass": gradients_in_one_pass,
        "sequence by sequence": gradients_sequence_by_sequence,
        "of a sum of all parts": gradients_of_a_sum,
    },
}
REASONS = [
    (check.bits_per_byte, "forgets the base", "bits_per_byte(0.6931, 100, 100): expected 1, given 0.693147; these are "
     "nats per byte"),
    (check.bits_per_byte, "multiplies by the base", "expected 1, given 0.480453; divide by ln 2"),
    (check.bits_per_byte, "of a token", "(5.5, 1000, 4200): expected 1.88924, given 7.93482; these are bits per "
     "token"),
    (check.bits_per_byte, "turns the ratio around", "the whole text costs loss * tokens"),
    (check.accumulated_gradients, "mean of means", "each part counts by its share of the batch"),
    (check.accumulated_gradients, "of the last part", "these are of the last part alone"),
    (check.accumulated_gradients, "of the last part, as a mean", "these are of the last part alone"),
    (check.adamw, "no correction", "step 1 of a weight of shape (3,), gradient of size 1e-06, decay 0.0: w: entry"),
    (check.adamw, "epsilon under the root", "gradient of size 1e-06, decay 0.0: w: entry"),
    (check.adamw, "decay in the gradient", "decay 0.1: w: entry"),
    (check.adamw, "the weight alone", "expected (w, (m, s)), given a Tensor"),
    (check.trigram_model, "without smoothing", "every token needs a probability above 0, the smallest is 0"),
    (check.trigram_model, "that does not sum to one", "they should sum to 1"),
    (check.trigram_model, "that looks at one token", "different tokens: expected"),
    (check.trigram_model, "adds one", "different tokens: expected"),
    (check.trigram_model, "fixed shares", "as many tokens as different ones came are added"),
    (check.accumulated_gradients, "in one pass", "parts [3, 4]: expected a pass over each part, given passes over [7]"),
    (check.accumulated_gradients, "of a sum of all parts", "parts [3, 4]: expected the backward pass of each part"),
    (check.accumulated_gradients, "summed", "parts [3, 4], gradient of embedding.weight: entry [0] should be"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
    complaint = "expected|should|needs|the source itself has"
