"""Each checker of chapter 12 accepts a right answer, reports a missing one and rejects named wrong ones."""

import math

import numpy as np
import pytest
import torch

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


RIGHT = {"bits_per_byte": right_bits, "nucleus": right_nucleus, "trigram_model": right_trigram,
         "accumulated_gradients": right_gradients}
WRONG = [
    ("bits_per_byte", bits_forgets_the_base), ("bits_per_byte", bits_turns_the_ratio_around),
    ("nucleus", nucleus_drops_the_token_that_crosses), ("nucleus", nucleus_does_not_rescale),
    ("nucleus", nucleus_starts_with_the_least_likely), ("nucleus", nucleus_is_a_threshold),
    ("trigram_model", trigram_without_smoothing), ("trigram_model", trigram_that_does_not_sum_to_one),
    ("trigram_model", trigram_that_looks_at_one_token), ("trigram_model", trigram_smoothed_away),
    ("accumulated_gradients", gradients_mean_of_means), ("accumulated_gradients", gradients_summed),
    ("accumulated_gradients", gradients_of_the_last_part),
]


def test_every_checker_is_covered():
    assert set(RIGHT) == set(check.__all__)
    assert all(sum(name == n for n, _ in WRONG) >= 2 for name in RIGHT)


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_pass(name, capsys):
    getattr(check, name)(RIGHT[name])
    assert capsys.readouterr().out.startswith(f"{name}: correct for ")


@pytest.mark.parametrize("name, answer", WRONG, ids=[answer.__name__ for _, answer in WRONG])
def test_wrong_answers_are_rejected(name, answer):
    with pytest.raises(AssertionError) as caught:
        getattr(check, name)(answer)
    assert str(caught.value)


@pytest.mark.parametrize("name", RIGHT)
def test_missing_answers_are_reported(name, capsys):
    def unanswered(*_):
        raise NotImplementedError

    getattr(check, name)(unanswered)
    assert capsys.readouterr().out == f"{name}: not answered yet\n"
