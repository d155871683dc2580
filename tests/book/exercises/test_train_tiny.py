"""The checkers of chapter 12: the answers that they accept, and those that they reject with what they say."""

import math
import statistics

import numpy as np
import torch
from exercise_answers import Answers

from caracal_book.exercises import train_tiny as check


def right_bits(loss, tokens, text_bytes):
    return loss / math.log(2) * tokens / text_bytes


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


def hours_by_numpy(seconds, tokens_per_step, tokens):
    return np.median(seconds) * (tokens / tokens_per_step) / 3600


def hours_by(of=statistics.median, unit=3600):
    return lambda seconds, tokens_per_step, tokens: of(seconds) * tokens / tokens_per_step / unit


RIGHT = {
    check.hours_to_go: [hours_by_numpy, hours_by()],
    check.bits_per_byte: [right_bits],
    check.accumulated_gradients: [right_gradients, gradients_by_grad],
}
WRONG = {
    check.hours_to_go: {
        "the mean": hours_by(statistics.mean),
        "the first step": hours_by(lambda seconds: seconds[0]),
        "the last step": hours_by(lambda seconds: seconds[-1]),
        "without the first step": hours_by(lambda seconds: statistics.median(seconds[1:] or seconds)),
        "seconds": hours_by(unit=1),
        "minutes": hours_by(unit=60),
        "nothing": lambda *of: None,
    },
    check.bits_per_byte: {
        "forgets the base": bits_forgets_the_base,
        "multiplies by the base": bits_multiplies_by_the_base,
        "of a token": bits_of_a_token,
        "turns the ratio around": bits_turns_the_ratio_around,
        "of nothing known": lambda loss, tokens, text_bytes: 1.01 * right_bits(loss, tokens, text_bytes),
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
    (check.hours_to_go, "the mean", "the first step also prepares; take the median"),
    (check.hours_to_go, "seconds",
     "hours_to_go([2.0], 3600, 7200000): expected 1.11111, given 4000; these are seconds"),
    (check.hours_to_go, "minutes", "these are minutes"),
    (check.hours_to_go, "nothing", "expected a number, given a NoneType"),
    (check.bits_per_byte, "forgets the base", "bits_per_byte(0.6931, 100, 100): expected 1, given 0.693147; these are "
     "nats per byte"),
    (check.bits_per_byte, "multiplies by the base", "expected 1, given 0.480453; divide by ln 2"),
    (check.bits_per_byte, "of a token", "(5.5, 1000, 4200): expected 1.88924, given 7.93482; these are bits per "
     "token"),
    (check.bits_per_byte, "turns the ratio around", "the whole text costs loss * tokens"),
    (check.accumulated_gradients, "mean of means", "each part counts by its share of the batch"),
    (check.accumulated_gradients, "of the last part", "these are of the last part alone"),
    (check.accumulated_gradients, "of the last part, as a mean", "these are of the last part alone"),
    (check.accumulated_gradients, "in one pass", "parts [3, 4]: expected a pass over each part, given passes over [7]"),
    (check.accumulated_gradients, "of a sum of all parts", "parts [3, 4]: expected the backward pass of each part"),
    (check.accumulated_gradients, "summed", "parts [3, 4], gradient of embedding.weight: entry [0] should be"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
    complaint = "expected|should|needs|the source itself has"
