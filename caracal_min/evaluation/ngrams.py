"""What counting alone predicts: tables of n tokens in a row, counted in a text, to stand beside a model's loss.

A language model that has learnt no more than which token follows which is as good as the bigram.  The unigram is
smoothed by one more of each token, longer tables by interpolated Kneser-Ney: a constant is taken off every count, and
what it sets aside goes to the table of one token less, which asks after how many *different* tokens something is found,
and not how often.

Source: Kneser and Ney 1995; Chen and Goodman 1999, Section 2.7, for the interpolated form and its discount.
"""

from dataclasses import dataclass

import numpy as np

__all__ = ["KneserNey", "Unigram", "ngram_losses"]

_NAMES = ("unigram", "bigram", "trigram")


class Unigram:
    """The share of each token in a text, with one more of each added.

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
class _Shares:
    """Discounted counts of the grams of one length, as shares of those with the same context."""

    kept: np.ndarray
    """By gram: its count less the discount, over that of all grams with its context."""
    left_over: np.ndarray
    """By context: what the discounts set aside; 1 where nothing follows it."""


class KneserNey:
    """Tables of 2, 3, ... tokens in a row; they take up to 50 bytes each for each token of the text.

    Args:
        tokens: ids, one dimension, at least 2.
        vocab_size: number of ids V.
        longest: tokens in a row of the longest table, at least 2.

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
        self.counted: list[_Shares] = []  # of how often a gram is found
        self.varied: list[_Shares] = []  # of after how many different tokens it is found; not for the longest
        known = tokens  # the number of the gram that begins at each token
        for length in range(2, longest + 1):
            contexts = vocab_size if length == 2 else len(self.grams[-1])
            found = known[:-1] * vocab_size + tokens[length - 1:]
            grams, first, counts = np.unique(found, return_index=True, return_counts=True)
            without_first = np.bincount(known[1:][first], minlength=contexts)  # different tokens before shorter ones
            if length == 2:
                self.preceded = without_first
            else:
                self.varied.append(_shares(self.grams[-1] // vocab_size, without_first,
                                           vocab_size if length == 3 else len(self.grams[-2])))
            self.grams.append(grams)
            self.counted.append(_shares(grams // vocab_size, counts, contexts))
            known = np.searchsorted(grams, found) if length < longest else found
        discount = _discount(self.preceded[self.preceded > 0])
        spread = discount * np.count_nonzero(self.preceded) / vocab_size
        self.continuation = (np.maximum(self.preceded - discount, 0) + spread) / self.preceded.sum()

    def losses(self, inputs: np.ndarray, targets: np.ndarray) -> list[np.ndarray]:
        """Return the loss of each target in nats by every table, from that of pairs on: float64, shaped as the targets.

        Args:
            inputs: ids, `[..., L]`: a table of n sees up to n - 1 of them, the last being that before the target.
            targets: ids, `[..., L]`.
        """
        inputs, targets = (np.asarray(x, dtype=np.int64) for x in (inputs, targets))
        context, lower, found = inputs, self.continuation[targets], []
        for number, (grams, counted) in enumerate(zip(self.grams, self.counted, strict=True)):
            gram = _find(grams, context, targets, self.vocab_size)
            whole = _mixed(counted, context, gram, lower)
            if number:  # the first targets of a row have fewer tokens before them: they take the shorter table
                whole[..., :number] = found[-1][..., :number]
            found.append(whole)
            if number + 1 < len(self.grams):
                lower = _mixed(self.varied[number], context, gram, lower)
                context = _find(grams, np.roll(context, 1, -1), inputs, self.vocab_size)
                context[..., :number + 1] = -1
        return [-np.log(probability) for probability in found]


def ngram_losses(train: np.ndarray, windows: np.ndarray, vocab_size: int, longest: int = 2) -> dict[str, float]:
    """Return the mean losses in nats per token on the targets of some windows, of the unigram, bigram, trigram, ...

    Args:
        train: ids that are counted, one dimension.
        windows: ids, `[W, L + 1]`: L inputs and, shifted by one, L targets (`data.sequential_windows`).
        vocab_size: number of ids.
        longest: tokens in a row of the longest table.

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
    """Return what is taken off every count: n1 / (n1 + 2 n2), of what was counted once and twice."""
    once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    return once / (once + 2 * twice) if once else 0.5


def _shares(contexts: np.ndarray, counts: np.ndarray, number: int) -> _Shares:
    """Discount the counts of grams, given the number of each one's context, of `number` contexts."""
    discount = _discount(counts[counts > 0])
    total = np.bincount(contexts, counts, minlength=number)
    followers = np.bincount(contexts[counts > 0], minlength=number)
    left_over = np.where(total > 0, discount * followers / np.maximum(total, 1), 1.0)
    return _Shares(np.maximum(counts - discount, 0) / np.maximum(total[contexts], 1), left_over)


def _find(grams: np.ndarray, context: np.ndarray, last: np.ndarray, vocab_size: int) -> np.ndarray:
    """Return the number of each gram, given that of its context and its last token; -1 where it was never found."""
    wanted = np.where(context < 0, -1, context * vocab_size + last)
    place = np.minimum(np.searchsorted(grams, wanted), len(grams) - 1)
    return np.where(grams[place] == wanted, place, -1)


def _mixed(shares: _Shares, context: np.ndarray, gram: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """Return the probability of each gram: its own share, and of what is left over that of the shorter table."""
    return (np.where(gram < 0, 0.0, shares.kept[gram])
            + np.where(context < 0, 1.0, shares.left_over[context]) * lower)
