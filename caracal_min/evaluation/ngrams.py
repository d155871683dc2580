"""N-gram models: baselines for the loss of a language model.

A model that has learnt no more than which token follows which is as good as the bigram.  The unigram adds one to each
count.  Longer n-grams are smoothed by interpolated Kneser-Ney: a discount is subtracted from every count, and its
probability goes to the (n-1)-gram model, whose counts are the numbers of *different* tokens before a gram.

Source: Kneser and Ney 1995; Chen and Goodman 1999, Section 2.7, for the interpolated form and its discount.
"""

from dataclasses import dataclass

import numpy as np

__all__ = ["KneserNey", "Unigram", "ngram_losses"]

_NAMES = ("unigram", "bigram", "trigram")


class Unigram:
    """The relative frequency of each token in a text, with add-one smoothing.

    Args:
        tokens: ids, one dimension.
        vocab_size: number of ids V.
    """

    def __init__(self, tokens: np.ndarray, vocab_size: int):
        self.probability = (np.bincount(tokens, minlength=vocab_size) + 1) / (len(tokens) + vocab_size)

    def losses(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the loss of each target in nats, whatever the inputs: float64, shaped as the targets."""
        return -np.log(self.probability[targets])


@dataclass(frozen=True)
class _Probabilities:
    """Discounted relative frequencies of the n-grams of one length, given their context, the tokens before the last."""

    discounted: np.ndarray
    """By n-gram: its count minus the discount, divided by the count of its context."""
    backoff: np.ndarray
    """By context: the probability that the discounts leave for shorter n-grams; 1 where nothing follows it."""


class KneserNey:
    """Bigram, trigram, ... models; they take up to 50 bytes each for each token of the text.

    Args:
        tokens: ids, one dimension, at least 2.
        vocab_size: number of ids V.
        longest: n of the longest n-grams, at least 2.

    Raises:
        ValueError: fewer tokens than `longest`, or that is less than 2.
    """

    def __init__(self, tokens: np.ndarray, vocab_size: int, longest: int = 2):
        tokens = np.asarray(tokens, dtype=np.int64)
        if longest < 2:
            raise ValueError(f"longest={longest}; give at least 2")
        if len(tokens) < longest:
            raise ValueError(f"{len(tokens)} tokens to count; give at least {longest}")
        self.vocab_size = vocab_size
        self.grams: list[np.ndarray] = []  # of 2, 3, ... tokens: number of the context * V + last token, sorted
        self.counted: list[_Probabilities] = []  # from how often an n-gram occurs
        self.varied: list[_Probabilities] = []  # from after how many different tokens; not for the longest
        known = tokens  # the number of the n-gram that begins at each token
        for length in range(2, longest + 1):
            contexts = vocab_size if length == 2 else len(self.grams[-1])
            found = known[:-1] * vocab_size + tokens[length - 1:]
            grams, first, counts = np.unique(found, return_index=True, return_counts=True)
            without_first = np.bincount(known[1:][first], minlength=contexts)  # different tokens before shorter ones
            if length == 2:
                self.preceded = without_first
            else:
                self.varied.append(_probabilities(self.grams[-1] // vocab_size, without_first,
                                                  vocab_size if length == 3 else len(self.grams[-2])))
            self.grams.append(grams)
            self.counted.append(_probabilities(grams // vocab_size, counts, contexts))
            known = np.searchsorted(grams, found) if length < longest else found
        discount = _discount(self.preceded[self.preceded > 0])
        spread = discount * np.count_nonzero(self.preceded) / vocab_size
        self.continuation = (np.maximum(self.preceded - discount, 0) + spread) / self.preceded.sum()

    def losses(self, inputs: np.ndarray, targets: np.ndarray) -> list[np.ndarray]:
        """Return the loss of each target in nats by every model, from the bigram on: float64, shaped as the targets.

        Args:
            inputs: ids, `[..., L]`: an n-gram sees up to n - 1 of them, the last being that before the target.
            targets: ids, `[..., L]`.
        """
        inputs, targets = (np.asarray(x, dtype=np.int64) for x in (inputs, targets))
        context, lower, found = inputs, self.continuation[targets], []
        for number, (grams, counted) in enumerate(zip(self.grams, self.counted, strict=True)):
            gram = _find(grams, context, targets, self.vocab_size)
            whole = _interpolated(counted, context, gram, lower)
            if number:  # the first targets of a row have fewer tokens before them: they take the shorter n-gram
                whole[..., :number] = found[-1][..., :number]
            found.append(whole)
            if number + 1 < len(self.grams):
                lower = _interpolated(self.varied[number], context, gram, lower)
                context = _find(grams, np.roll(context, 1, -1), inputs, self.vocab_size)
                context[..., :number + 1] = -1
        return [-np.log(probability) for probability in found]


def ngram_losses(train: np.ndarray, windows: np.ndarray, vocab_size: int, longest: int = 2) -> dict[str, float]:
    """Return the mean losses in nats per token on the targets of some windows, of the unigram, bigram, trigram, ...

    Args:
        train: ids that are counted, one dimension.
        windows: ids, `[W, L + 1]`: L inputs and, shifted by one, L targets (`data.sequential_windows`).
        vocab_size: number of ids.
        longest: n of the longest n-grams.

    Raises:
        ValueError: fewer tokens to count than `longest`, no windows, or an id that is none; longest < 2.
    """
    train, windows = np.asarray(train), np.asarray(windows)
    if not windows.size:
        raise ValueError("no windows to measure on; give at least one")
    for wrong in (min(train.min(initial=0), windows.min()), max(train.max(initial=0), windows.max())):
        if not 0 <= wrong < vocab_size:
            raise ValueError(f"id {wrong} with {vocab_size} ids; was the text encoded with another tokenizer?")
    inputs, targets = windows[:, :-1], windows[:, 1:]
    losses = [Unigram(train, vocab_size).losses(inputs, targets),
              *KneserNey(train, vocab_size, longest).losses(inputs, targets)]
    return {_NAMES[n] if n < len(_NAMES) else f"{n + 1}-gram": of_all.mean() for n, of_all in enumerate(losses)}


def _discount(counts: np.ndarray) -> float:
    """Return the discount n1 / (n1 + 2 n2), from the numbers of n-grams that occur once and twice."""
    once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    return once / (once + 2 * twice) if once else 0.5


def _probabilities(contexts: np.ndarray, counts: np.ndarray, number: int) -> _Probabilities:
    """Discount the counts of n-grams, given the number of each one's context, of `number` contexts."""
    discount = _discount(counts[counts > 0])
    total = np.bincount(contexts, counts, minlength=number)
    followers = np.bincount(contexts[counts > 0], minlength=number)
    backoff = np.where(total > 0, discount * followers / np.maximum(total, 1), 1.0)
    return _Probabilities(np.maximum(counts - discount, 0) / np.maximum(total[contexts], 1), backoff)


def _find(grams: np.ndarray, context: np.ndarray, last: np.ndarray, vocab_size: int) -> np.ndarray:
    """Return the number of each n-gram, given that of its context and its last token; -1 where it never occurred."""
    wanted = np.where(context < 0, -1, context * vocab_size + last)
    place = np.minimum(np.searchsorted(grams, wanted), len(grams) - 1)
    return np.where(grams[place] == wanted, place, -1)


def _interpolated(of: _Probabilities, context: np.ndarray, gram: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """Return the probability of each n-gram, given the numbers of its context and of itself, and the shorter one's."""
    return (np.where(gram < 0, 0.0, of.discounted[gram])
            + np.where(context < 0, 1.0, of.backoff[context]) * lower)
