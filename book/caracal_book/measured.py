"""The text that a loss is measured on: a part of a source, and how a record names it."""

import hashlib

import numpy as np

from caracal_min.data.batches import Corpus, tokens_of
from caracal_min.data.sources import ALL, RULE, TRAIN
from caracal_min.tokenizer import Tokenizer

__all__ = ["data_of", "sha256_of_tokens", "text_to_count", "text_to_measure"]


def text_to_measure(source: str, tokenizer: Tokenizer, split: str, count: int) -> tuple[np.ndarray, dict]:
    """Return the first tokens of a part of a source, and what a record says of them.

    Args:
        source: as `data.tokens_of`.
        split: "held_out", the documents that no run trains on, or "all".
        count: most tokens.

    Returns:
        ids `[T]`, T <= count, and the entry `data` of a record.
    """
    tokens = tokens_of(source, tokenizer, split, count)[:count]
    rule = None if split == ALL else RULE
    return tokens, _described(source, split, tokens) | {"rule": rule, "tokenizer": tokenizer.name}


def text_to_count(source: str, tokenizer: Tokenizer, split: str = TRAIN,
                  count: int | None = None) -> tuple[np.ndarray, dict]:
    """Return the first tokens of a text that was trained on, `[T]`, and what a record says of them.

    Args:
        split: "train", what `split.RULE` does not hold out, or "all".
        count: most tokens; None: all.
    """
    tokens = tokens_of(source, tokenizer, split, count)[:count]
    return tokens, _described(source, split, tokens)


def data_of(corpus: Corpus, validation: str | None = None) -> dict:
    """Return what the record of a training run says of its text and tokenizer.

    Args:
        validation: source of the held-out text; None: it is a part of the corpus.
    """
    return {"source": corpus.source, "validation": validation, "tokenizer": corpus.tokenizer.name,
            "train_tokens": len(corpus.train), "validation_tokens": len(corpus.validation), "rule": corpus.rule,
            "sha256": corpus.digest}


def sha256_of_tokens(tokens: np.ndarray) -> str:
    """Return the SHA-256 of ids `[T]`, as little-endian 16-bit numbers."""
    return hashlib.sha256(np.asarray(tokens, "<u2").tobytes()).hexdigest()


def _described(source: str, split: str, tokens: np.ndarray) -> dict:
    return {"source": source, "split": split, "tokens": len(tokens), "sha256": sha256_of_tokens(tokens)}
