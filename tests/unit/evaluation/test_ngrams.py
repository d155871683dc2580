"""Unigram and bigram models: probabilities that sum to one, by hand, and on real text better than add-one."""

import numpy as np
import pytest

from caracal_min.data import documents, make_tokenizer, sequential_windows
from caracal_min.evaluation import ngram_losses
from caracal_min.evaluation.ngrams import Bigram, Unigram

TEXT = np.random.default_rng(0).choice(12, size=400, p=np.arange(1, 13) / 78)


@pytest.mark.parametrize("kind", [Unigram, Bigram])
@pytest.mark.parametrize("text", [TEXT, TEXT[:5], np.array([3, 3])], ids=["long", "short", "two"])
def test_the_probabilities_after_every_token_sum_to_one(kind, text):
    model = kind(text, 15)
    inputs, targets = np.divmod(np.arange(15 * 15), 15)
    sums = np.exp(-model.losses(inputs, targets)).reshape(15, 15).sum(1)
    np.testing.assert_allclose(sums, 1, rtol=1e-12)


def test_a_bigram_by_hand():
    """a b a c a b: ab twice, ba once, ac once, ca once.  d = 3/(3+2); after a: 3, of 2 kinds; b and c follow one
    kind, a two, so that a second discount of 2/(2+2) spreads 1.5 of 4 over the 4 ids."""
    model = Bigram(np.array([0, 1, 0, 2, 0, 1]), 4)
    d, spread = 3 / 5, 0.5 * 3 / 4
    lower = {0: (2 - 0.5 + spread) / 4, 1: (1 - 0.5 + spread) / 4, 3: spread / 4}
    expected = {(0, 1): (2 - d) / 3 + d * 2 / 3 * lower[1], (0, 3): d * 2 / 3 * lower[3],
                (1, 0): 1 - d + d * lower[0], (3, 1): lower[1]}
    for (first, second), probability in expected.items():
        assert np.exp(-model.losses(np.array(first), np.array(second))) == pytest.approx(probability)


def test_on_real_text_it_beats_add_one_and_the_unigram():
    tokenizer = make_tokenizer("byte")
    ids = np.array(tokenizer.encode("\n".join(text for text, _ in zip(documents("embedded"), range(60), strict=False))))
    train, windows = ids[:-20_000], np.asarray(sequential_windows(ids[-20_000:], 50))
    found = ngram_losses(train, windows, 256)
    counts = np.ones((256, 256))
    np.add.at(counts, (train[:-1], train[1:]), 1)
    add_one = -np.log(counts / counts.sum(1, keepdims=True))[windows[:, :-1], windows[:, 1:]].mean()
    assert found["bigram"] < add_one < found["unigram"] < np.log(256)
    small = ngram_losses(train[:3000], windows, 256)
    assert found["bigram"] < small["bigram"] < small["unigram"]


def test_bad_input_gets_one_line():
    windows = np.zeros((1, 3), dtype=int)
    with pytest.raises(ValueError, match="^1 tokens to count; give at least 2$"):
        ngram_losses(np.array([1]), windows, 4)
    with pytest.raises(ValueError, match="^id 9 with 4 ids; was the text encoded with another tokenizer[?]$"):
        ngram_losses(np.array([1, 9]), windows, 4)
