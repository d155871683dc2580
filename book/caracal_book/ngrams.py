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
class _Counts:
    """How often the n-grams of one length occur, given their contexts, the tokens before the last."""

    counts: np.ndarray
    """By n-gram, uint32."""
    totals: np.ndarray
    """By context: the sum of the counts of its n-grams, uint32."""
    followers: np.ndarray
    """By context: how many different tokens follow it, uint32."""
    discount: float
    """What is subtracted from every count."""

    @classmethod
    def of(cls, contexts: np.ndarray, counts: np.ndarray, number: int) -> "_Counts":
        """Count by context, given the number of the context of each n-gram, of `number` contexts."""
        totals = np.bincount(contexts, counts, minlength=number).astype(np.uint32)
        followers = np.bincount(contexts[counts > 0], minlength=number).astype(np.uint32)
        return cls(counts.astype(np.uint32), totals, followers, _discount(counts))

    def interpolated(self, context: np.ndarray, gram: np.ndarray, lower: np.ndarray) -> np.ndarray:
        """Return the probability of n-grams, given the numbers of their contexts and their own, -1 where there is none,
        and the probabilities `lower` of the shorter ones: the discounts are shared out by these."""
        total = np.where(context < 0, 0, self.totals[context])
        own = np.where(gram < 0, 0.0, np.maximum(self.counts[gram] - self.discount, 0))
        seen = np.maximum(total, 1)
        return own / seen + np.where(total > 0, self.discount * self.followers[context] / seen, 1.0) * lower


class KneserNey:
    """Bigram, trigram, ... models; each takes up to 40 bytes of memory for each token of the text, and in a real text
    half as many.

    Args:
        tokens: ids, one dimension, at least 2.
        vocab_size: number of ids V.
        longest: n of the longest n-grams, from 2 to the number of tokens.
    """

    def __init__(self, tokens: np.ndarray, vocab_size: int, longest: int = 2):
        tokens = np.asarray(tokens)
        self.vocab_size = vocab_size
        self.grams: list[np.ndarray] = []  # of 2, 3, ... tokens: number of the context * V + last token, sorted
        self.counted: list[_Counts] = []  # how often an n-gram occurs
        self.varied: list[_Counts] = []  # after how many different tokens; not for the longest
        known = tokens  # the number of the n-gram that begins at each token
        for length in range(2, longest + 1):
            contexts = vocab_size if length == 2 else len(self.grams[-1])
            grams, counts, first, numbers = _distinct(
                known[:-1].astype(np.int64) * vocab_size + tokens[length - 1:], length < longest)
            without_first = np.bincount(known[1:][first], minlength=contexts)  # different tokens before shorter ones
            known = numbers
            if length == 2:
                self.preceded = without_first
            else:
                self.varied.append(_Counts.of(self.grams[-1] // vocab_size, without_first,
                                              vocab_size if length == 3 else len(self.grams[-2])))
            self.grams.append(grams)
            self.counted.append(_Counts.of(grams // vocab_size, counts, contexts))
        discount = _discount(self.preceded)
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
            whole = counted.interpolated(context, gram, lower)
            if number:  # the first targets of a row have fewer tokens before them: they take the shorter n-gram
                whole[..., :number] = found[-1][..., :number]
            found.append(whole)
            if number + 1 < len(self.grams):
                lower = self.varied[number].interpolated(context, gram, lower)
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
        ValueError: an id that is not below vocab_size.
    """
    train, windows = np.asarray(train), np.asarray(windows)
    largest = max(train.max(), windows.max())
    if largest >= vocab_size:
        raise ValueError(f"id {largest} with {vocab_size} ids; was the text encoded with another tokenizer?")
    inputs, targets = windows[:, :-1], windows[:, 1:]
    losses = [Unigram(train, vocab_size).losses(inputs, targets),
              *KneserNey(train, vocab_size, longest).losses(inputs, targets)]
    return {_NAMES[n] if n < len(_NAMES) else f"{n + 1}-gram": of_all.mean() for n, of_all in enumerate(losses)}


def _distinct(found: np.ndarray, numbered: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct numbers of `found`, `[T]`, sorted; how often each occurs, and where once; and, if `numbered`,
    which of them stands at each place, `[T]`."""
    order = np.argsort(found)
    found = found[order]
    starts = np.flatnonzero(np.concatenate(([True], found[1:] != found[:-1])))
    counts, numbers = np.diff(starts, append=len(found)), np.empty(len(found) if numbered else 0, np.int32)
    if numbered:
        numbers[order] = np.repeat(np.arange(len(starts), dtype=np.int32), counts)
    return found[starts], counts, order[starts], numbers


def _discount(counts: np.ndarray) -> float:
    """Return the discount n1 / (n1 + 2 n2), from the numbers of n-grams that occur once and twice."""
    once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    return once / (once + 2 * twice) if once else 0.5


def _find(grams: np.ndarray, context: np.ndarray, last: np.ndarray, vocab_size: int) -> np.ndarray:
    """Return the number of each n-gram, given that of its context and its last token; -1 where it never occurred."""
    wanted = np.where(context < 0, -1, context * vocab_size + last)
    place = np.minimum(np.searchsorted(grams, wanted), len(grams) - 1)
    return np.where(grams[place] == wanted, place, -1)
