"""The checkers of chapter 11: right answers pass, named wrong ones fail with the case, blank ones are reported."""

import itertools
import math

import numpy as np
import torch
from exercise_answers import Answers

from caracal_book.exercises import how_fast as check


def intensity(d_in, d_out, tokens, bytes_each):
    return 2 * tokens * d_in * d_out / (bytes_each * (tokens * (d_in + d_out) + d_in * d_out))


def fill(width, bytes_each, rate, bandwidth):
    slope = 2 * width**2 * bandwidth - 2 * width * bytes_each * rate
    return None if slope <= 0 else max(1, math.ceil(bytes_each * width**2 * rate / slope))


def fill_by_search(width, bytes_each, rate, bandwidth):
    ridge = rate / bandwidth
    if width / bytes_each <= ridge:
        return None
    tokens = 1
    while 2 * tokens * width * width < ridge * bytes_each * (2 * tokens * width + width * width):
        tokens += 1
    return tokens


def gain(width, heads, length):
    return (2 - 2 / heads) * width + 2 * (length + 1) - 15 * math.log2(2 * length) - 6


def good(width, heads):
    return max((length for length in range(1, 500) if gain(width, heads, length) <= 0), default=0) + 1, 500


def first(width, heads):
    return next(length for length in range(1, 500) if gain(width, heads, length) > 0), 500


def good_from_below(width, heads):
    length = 11
    while gain(width, heads, length) <= 0:
        length += 1
    return (length if length > 11 else good(width, heads)[0]), length


def length_of(change):
    """An answer with another length, and the proof of `good`."""
    return lambda width, heads: (change(width, heads), 500)


def outweigh(weights, width, fourier, windows, full, window, texts):
    need = weights / (texts * 2 * width)                # vectors of a text
    if need <= (fourier + full + windows) * window:
        return math.ceil(need / (fourier + full + windows))
    return math.ceil((need - windows * window) / (fourier + full)) if fourier + full else None


def variant(both=2, cut=True, shared=True, windows_=True, longest=math.inf):
    def count(weights, width, fourier, windows, full, window, texts):
        for context in itertools.count(1):
            vectors = (fourier + full) * context
            vectors += windows * (min(window, context) if cut else context) if windows_ else 0
            if (texts if shared else 1) * both * width * vectors >= weights:
                return context
            if context >= longest or context >= window and not fourier + full and (cut or not windows_):
                return None

    return count


def giving_up(width, bytes_each, rate, bandwidth):
    tokens = fill(width, bytes_each, rate, bandwidth)
    return tokens if tokens and tokens < 10**6 else None


RIGHT = {
    check.product_intensity: [intensity, lambda *a: np.float64(intensity(*a)), lambda *a: np.float32(intensity(*a)),
                              lambda *a: torch.tensor(intensity(*a))],
    check.tokens_to_fill: [fill, fill_by_search, lambda *a: fill(*a) and float(fill(*a))],
    check.cheaper_for_good: [good, good_from_below, lambda *a: [np.int64(x) for x in good(*a)],
                             lambda w, h: (good(w, h)[0], 11 if gain(w, h, 11) > 0 else 10**18)],
    check.caches_outweigh: [outweigh, variant()],
}
WRONG = {
    check.product_intensity: {
        "forgets the weights": lambda i, o, t, b: 2 * i * o / (b * (i + o)),
        "weights for every token": lambda i, o, t, b: 2 * i * o / (b * (i + o + i * o)),
        "one operation a weight": lambda *a: intensity(*a) / 2,
        "forgets the bytes": lambda i, o, t, b: intensity(i, o, t, 1),
        "forgets what is written": lambda i, o, t, b: 2 * t * i * o / (b * (t * i + i * o)),
        "the other way up": lambda *a: 1 / intensity(*a),
        "a text": lambda *a: str(intensity(*a)),
        "forgets to return": lambda *a: None,
    },
    check.tokens_to_fill: {
        "as if activations were free": lambda w, b, rate, bw: math.ceil(b * rate / (2 * bw)),
        "never says none": lambda *a: fill(*a) or 0,
        "infinity for none": lambda *a: fill(*a) or math.inf,
        "one too many": lambda *a: fill(*a) and fill(*a) + 1,
        "a strict bound": lambda w, b, rate, bw: fill(w, b, rate, bw) and int(
            b * w * w * rate // (2 * w * w * bw - 2 * w * b * rate)) + 1,
        "not rounded up": lambda *a: fill(*a) and fill(*a) - 1,
        "between two batches": lambda *a: fill(*a) and fill(*a) - 0.5,
        "two bytes": lambda w, b, rate, bw: fill(w, 2, rate, bw),
        "one bandwidth": lambda w, b, rate, bw: fill(w, b, rate, 1e12),
        "reads no results": lambda w, b, rate, bw: None if 2 * w * bw <= b * rate else max(
            1, math.ceil(b * w * w * rate / (2 * w * w * bw - w * b * rate))),
        "a search that gives up": giving_up,
        "forgets to return": lambda *a: None,
    },
    check.cheaper_for_good: {
        "the first crossing": first,
        "the mix alone": length_of(lambda w, h: good(0, 1)[0]),
        "without the heads": length_of(lambda w, h: good(w, 10**9)[0]),
        "a width like any other": length_of(lambda w, h: good(512, h)[0]),
        "one too small": length_of(lambda w, h: good(w, h)[0] - 1),
        "an average length": length_of(lambda w, h: max(1, 54 - w)),
        "no proof": lambda w, h: good(w, h)[0],
        "its own length as proof": lambda w, h: good(w, h)[:1] * 2,
        "ten lengths": lambda w, h: (good(w, h)[0], 10),
        "a dear length as proof": lambda w, h: (good(w, h)[0], max(11, good(w, h)[0] - 1)),
        "infinitely far": lambda w, h: (good(w, h)[0], math.inf),
        "farther than floats": lambda w, h: (good(w, h)[0], 10**400),
        "a yes as proof": lambda w, h: (good(w, h)[0], True),
        "forgets to return": lambda *a: None,
    },
    check.caches_outweigh: {
        "one stream": variant(both=1),
        "windows without an end": variant(cut=False),
        "no windows": variant(windows_=False),
        "texts share a cache": variant(shared=False),
        "fills the windows first": lambda weights, width, fourier, windows, full, window, texts: math.ceil(
            (weights / (texts * 2 * width) - windows * window) / (fourier + full)) if fourier + full else None,
        "not rounded up": lambda *a: outweigh(*a) and outweigh(*a) - 1,
        "zero for none": lambda *a: outweigh(*a) or 0,
        "a search that gives up": variant(longest=10**6),
        "forgets to return": lambda *a: None,
    },
}
REASONS = [
    (check.product_intensity, "forgets the weights", "512 x 512 weights, 1 tokens, 2 bytes each: expected 0.996"),
    (check.product_intensity, "forgets the weights", "given 256.0; the weights are read too, once for the batch"),
    (check.product_intensity, "one operation a weight", "two operations a weight and token, a multiplication and"),
    (check.product_intensity, "forgets what is written", "the results are written, and count like what is read"),
    (check.product_intensity, "forgets the bytes", "and every number that is read or written counts its bytes"),
    (check.product_intensity, "weights for every token", "the weights are read once for the batch, not once for each"),
    (check.product_intensity, "the other way up", "operations divided by bytes, not the other way round"),
    (check.tokens_to_fill, "reads no results", "your number fits a count without the results"),
    (check.tokens_to_fill, "as if activations were free", "your number fits a count without the tokens"),
    (check.tokens_to_fill, "between two batches", "return a whole number, the first batch that computes"),
    (check.tokens_to_fill, "as if activations were free", "width 64, 2 bytes each, ridge at 1: expected 2, given 1; a"),
    (check.tokens_to_fill, "a search that gives up", "ridge at 2047: expected 4192256, given None; both counts"),
    (check.tokens_to_fill, "a strict bound", "ridge at 16: expected 32, given 33; where both take equally long, the"),
    (check.tokens_to_fill, "one too many", "ridge at 1: expected 2, given 3; a token is read and written"),
    (check.tokens_to_fill, "never says none", "expected None, given 0; both counts are lines"),
    (check.cheaper_for_good, "the first crossing", "given 1; the difference falls at first"),
    (check.cheaper_for_good, "no proof", "width 4 and 1 heads: expected two lengths, given 53; return both"),
    (check.cheaper_for_good, "farther than floats", "should be at most 10^18, and has about 400 digits"),
    (check.cheaper_for_good, "ten lengths", "the second length, 10, to the next one the difference should be rising"),
    (check.cheaper_for_good, "ten lengths", "and falls (compare 2 with 15 log2(1 + 1/L)); it may yet"),
    (check.cheaper_for_good, "a dear length as proof", "the second length, 52, the difference should be positive, and"),
    (check.caches_outweigh, "windows without an end", "8 Fourier, 4 window and 0 full layers, window 256, 1 texts: "),
    (check.caches_outweigh, "a search that gives up", "given None; a window stops growing, the other layers do not"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
