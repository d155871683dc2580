"""The checkers of chapter 12: the answers that they accept, and those that they reject with what they say."""

import math

import numpy as np
import torch
from exercise_answers import Answers

from caracal_min.exercises import training as check


def right_bits(loss, tokens, text_bytes):
    return loss / math.log(2) * tokens / text_bytes


def right_nucleus(probabilities, p):
    ordered, order = probabilities.sort(descending=True)
    kept = ordered * (ordered.cumsum(0) - ordered < p)
    return torch.zeros_like(probabilities).scatter(0, order, kept / kept.sum())


def right_trigram(train, vocabulary):
    triples, pairs = np.zeros((vocabulary,) * 3), np.zeros((vocabulary,) * 2)
    np.add.at(triples, (train[:-2], train[1:-1], train[2:]), 1)
    np.add.at(pairs, (train[:-1], train[1:]), 1)
    second = (pairs + 1 / vocabulary) / (pairs.sum(-1, keepdims=True) + 1)
    return lambda a, b: (triples[a, b] + second[b]) / (triples[a, b].sum() + 1)


def right_gradients(model, x, y, sizes):
    for xs, ys in zip(x.split(sizes), y.split(sizes), strict=True):
        (model(xs, ys)[1] * len(xs) / len(x)).backward()


def bits_forgets_the_base(loss, tokens, text_bytes):
    return loss * tokens / text_bytes


def bits_turns_the_ratio_around(loss, tokens, text_bytes):
    return loss / math.log(2) * text_bytes / tokens


def nucleus_drops_the_token_that_crosses(probabilities, p):
    ordered, order = probabilities.sort(descending=True)
    kept = ordered * (ordered.cumsum(0) <= p)
    kept[0] = ordered[0]
    return torch.zeros_like(probabilities).scatter(0, order, kept / kept.sum())


def nucleus_does_not_rescale(probabilities, p):
    ordered, order = probabilities.sort(descending=True)
    return torch.zeros_like(probabilities).scatter(0, order, ordered * (ordered.cumsum(0) - ordered < p))


def nucleus_starts_with_the_least_likely(probabilities, p):
    ordered, order = probabilities.sort()
    kept = ordered * (ordered.cumsum(0) - ordered < p)
    return torch.zeros_like(probabilities).scatter(0, order, kept / kept.sum())


def nucleus_is_a_threshold(probabilities, p):
    kept = probabilities * (probabilities >= (1 - p) * probabilities.max())
    return kept / kept.sum()


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


RIGHT = {
    check.bits_per_byte: [right_bits],
    check.nucleus: [right_nucleus],
    check.trigram_model: [right_trigram],
    check.accumulated_gradients: [right_gradients],
}
WRONG = {
    check.bits_per_byte: {
        "forgets the base": bits_forgets_the_base,
        "turns the ratio around": bits_turns_the_ratio_around,
    },
    check.nucleus: {
        "drops the token that crosses": nucleus_drops_the_token_that_crosses,
        "does not rescale": nucleus_does_not_rescale,
        "starts with the least likely": nucleus_starts_with_the_least_likely,
        "is a threshold": nucleus_is_a_threshold,
    },
    check.trigram_model: {
        "without smoothing": trigram_without_smoothing,
        "that does not sum to one": trigram_that_does_not_sum_to_one,
        "that looks at one token": trigram_that_looks_at_one_token,
        "smoothed away": trigram_smoothed_away,
    },
    check.accumulated_gradients: {
        "mean of means": gradients_mean_of_means,
        "summed": gradients_summed,
        "of the last part": gradients_of_the_last_part,
    },
}
REASONS = [
    (check.bits_per_byte, "forgets the base", "bits_per_byte(0.6931, 100, 100): expected 1, given 0.693147"),
    (check.nucleus, "does not rescale", "p=0.05: entry [0] should be 1"),
    (check.trigram_model, "without smoothing", "every token needs a probability above 0, the smallest is 0"),
    (check.trigram_model, "that does not sum to one", "they should sum to 1"),
    (check.trigram_model, "smoothed away", "counting triples with a smoothing that fades"),
    (check.accumulated_gradients, "summed", "parts [3, 4], gradient of embedding.weight: entry [0] should be"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
    complaint = "expected|should|needs|the source itself has"
