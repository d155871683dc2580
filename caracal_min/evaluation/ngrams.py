"""What counting alone predicts: unigram and bigram models of the training tokens, to stand beside a model's loss.

A language model that has learnt no more than which token follows which is as good as the bigram.  Both are smoothed as
well as such models can be: the bigram by interpolated Kneser-Ney, whose lower order asks after how many *different*
tokens a token is found, and not how often.

Source: Kneser and Ney 1995; Chen and Goodman 1999, Section 2.7, for the interpolated form and its discount.
"""

import numpy as np

__all__ = ["Bigram", "Unigram", "ngram_losses"]


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


class Bigram:
    """Interpolated Kneser-Ney smoothing of the counts of neighbours; takes about 24 bytes for each token of the text.

    Args:
        tokens: ids, one dimension, at least 2.
        vocab_size: number of ids V.
    """

    def __init__(self, tokens: np.ndarray, vocab_size: int):
        tokens = np.asarray(tokens, dtype=np.int64)
        self.vocab_size = vocab_size
        self.pairs, counts = np.unique(tokens[:-1] * vocab_size + tokens[1:], return_counts=True)
        first, second = np.divmod(self.pairs, vocab_size)
        self.discount = _discount(counts)
        self.seen = np.bincount(tokens[:-1], minlength=vocab_size)  # how often a token has a successor
        followers = np.bincount(first, minlength=vocab_size)  # and how many different ones
        self.left_over = np.where(self.seen, self.discount * followers / np.maximum(self.seen, 1), 1.0)
        self.kept = counts - self.discount
        preceded = np.bincount(second, minlength=vocab_size)  # after how many different tokens a token is found
        discount = _discount(preceded[preceded > 0])
        spread = discount * np.count_nonzero(preceded) / vocab_size
        self.continuation = (np.maximum(preceded - discount, 0) + spread) / len(self.pairs)

    def losses(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the loss of each target in nats, given the input before it: float64, shaped as the targets."""
        inputs, targets = (np.asarray(x, dtype=np.int64) for x in (inputs, targets))
        wanted = inputs * self.vocab_size + targets
        place = np.minimum(np.searchsorted(self.pairs, wanted), len(self.pairs) - 1)
        kept = np.where(self.pairs[place] == wanted, self.kept[place], 0.0)
        probability = kept / np.maximum(self.seen[inputs], 1) + self.left_over[inputs] * self.continuation[targets]
        return -np.log(probability)


def ngram_losses(train: np.ndarray, windows: np.ndarray, vocab_size: int) -> dict[str, float]:
    """Return the mean loss in nats per token of both models on the targets of some windows.

    Args:
        train: ids that are counted, one dimension.
        windows: ids, `[W, L + 1]`: L inputs and, shifted by one, L targets (`data.sequential_windows`).
        vocab_size: number of ids.

    Raises:
        ValueError: fewer than 2 tokens to count, or an id that is none.
    """
    train, windows = np.asarray(train), np.asarray(windows)
    if len(train) < 2:
        raise ValueError(f"{len(train)} tokens to count; give at least 2")
    if max(train.max(), windows.max()) >= vocab_size:
        raise ValueError(f"id {max(train.max(), windows.max())} with {vocab_size} ids; "
                         "was the text encoded with another tokenizer?")
    inputs, targets = windows[:, :-1], windows[:, 1:]
    return {name: kind(train, vocab_size).losses(inputs, targets).mean()
            for name, kind in (("unigram", Unigram), ("bigram", Bigram))}


def _discount(counts: np.ndarray) -> float:
    """Return what is taken off every count: n1 / (n1 + 2 n2), of what was counted once and twice."""
    once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    return once / (once + 2 * twice) if once else 0.5
