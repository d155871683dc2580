# goes when training and commands no longer import it
"""What a loss is measured on: a part of a source, by the rule of splitting, and how a record names it."""

import hashlib
import math
from pathlib import Path

import numpy as np

from ..data.corpus import tokens_of
from ..data.split import ALL, RULE, TRAIN
from ..data.tokenizers import Tokenizer
from ..data.write_shards import fingerprint
from ..record import is_of_training, read_record

__all__ = ["bits_per_byte", "bytes_of_targets", "gives_texts_back", "rule_of_training", "sha256_of_tokens",
           "text_to_count", "text_to_measure"]

# What tokenizers change: spaces at both ends and in a row, line ends, capitals, quotes, and characters with like ones.
_SAMPLE = ("  Two  spaces,\r\nCAPITALS don't \N{LEFT DOUBLE QUOTATION MARK}vanish\N{RIGHT DOUBLE QUOTATION MARK}\t"
           "\N{EM DASH} don\N{RIGHT SINGLE QUOTATION MARK}t: e\N{COMBINING ACUTE ACCENT} \N{LATIN SMALL LIGATURE FI} "
           "x\N{SUPERSCRIPT TWO} \N{CAT} \n")


def text_to_measure(source: str, tokenizer: Tokenizer, split: str, count: int) -> tuple[np.ndarray, dict]:
    """Return the first tokens of a part of a source, at most `count`, `[T]`, and what a record says of them.

    Args:
        source: as `data.tokens_of`.
        tokenizer: its tokenizer.
        split: held_out, the documents that no run trains on, or all.
        count: T at most.

    Raises:
        ValueError, FileNotFoundError, ImportError: as `data.tokens_of`.
    """
    files = fingerprint(source)
    tokens = tokens_of(source, tokenizer, split, count)[:count]
    return tokens, {"source": source, "files": files, "split": split, "rule": None if split == ALL else RULE,
                    "tokenizer": tokenizer.name, "tokens": len(tokens), "sha256": sha256_of_tokens(tokens)}


def text_to_count(source: str, tokenizer: Tokenizer, split: str = TRAIN,
                  count: int | None = None) -> tuple[np.ndarray, dict]:
    """Return the first tokens of a source that was trained on, `[T]`, and what a record says of them.

    Args:
        source: as `data.tokens_of`.
        tokenizer: its tokenizer.
        split: train, what `split.RULE` does not hold out, or all.
        count: T at most; None: all.

    Raises:
        ValueError, FileNotFoundError, ImportError: as `data.tokens_of`.
    """
    files = fingerprint(source)
    tokens = tokens_of(source, tokenizer, split, count)[:count]
    return tokens, {"source": source, "files": files, "split": split, "tokens": len(tokens),
                    "sha256": sha256_of_tokens(tokens)}


def bytes_of_targets(windows: np.ndarray, tokenizer: Tokenizer) -> int:
    """Return how many bytes of text, in UTF-8, the targets of some windows stand for; an end of text stands for none.

    A character that begins or ends outside the windows counts as the three bytes of U+FFFD.

    Args:
        windows: ids, `[W, L + 1]`: L inputs and, shifted by one, L targets (`data.sequential_windows`).
        tokenizer: theirs.

    Raises:
        ValueError: they are ends of texts alone, or what the tokenizer gives back is not the text that it read.
    """
    if not gives_texts_back(tokenizer):
        raise ValueError(f"the tokenizer {tokenizer.name} does not give a text back as it was, so its ids do not say "
                         "how many bytes the text has")
    targets = np.asarray(windows)[:, 1:].ravel()
    text = tokenizer.decode(targets[targets != tokenizer.end_of_text].tolist())
    if not text:
        raise ValueError(f"the {targets.size} tokens to measure on hold no text, only ends of texts; give more text")
    return len(text.encode())


def gives_texts_back(tokenizer: Tokenizer) -> bool:
    """Say whether a tokenizer gives texts back as they were, one after the other."""
    return tokenizer.decode([*tokenizer.encode(_SAMPLE), *tokenizer.encode("Two")]) == _SAMPLE + "Two"


def bits_per_byte(loss: float, tokens: int, text_bytes: int) -> float:
    """Return a mean loss of some tokens, in nats per token, as bits per byte of their text, which tokenizers share.

    Example:
        >>> round(bits_per_byte(math.log(256), 100, 100), 9)
        8.0
    """
    return loss * tokens / (math.log(2) * text_bytes)


def rule_of_training(model: str, run: Path | None, weights: str) -> str | None:
    """Return by which rule the model's training held documents out; None if no record beside the model says so.

    Args:
        model: what the user calls it.
        run: folder that holds the record if it is one of a run; None: nobody knows the run.
        weights: SHA-256 of the file of its weights.

    Raises ValueError if there is one, and it names another rule than that of today, or none.
    """
    record = None if run is None else run / "record.json"
    if record is not None and record.is_file():
        trained = read_record(record, require_commit=False)
        if is_of_training(trained, weights):
            if (rule := trained["data"].get("rule")) != RULE:
                raise ValueError(f"{record} says that the training held out {rule or 'nothing that it names'}, not "
                                 f"{RULE!r}: what is held out today may have been trained on; measure all of a text "
                                 "that was not (split=all)")
            return rule
    print(f"no record of the training of {model} lies beside it: whether it was trained on what is held out is not "
          "known")
    return None


def sha256_of_tokens(tokens: np.ndarray) -> str:
    """Return SHA-256 of ids, `[T]`, as little-endian 16-bit numbers, in hexadecimal."""
    return hashlib.sha256(np.asarray(tokens, "<u2").tobytes()).hexdigest()
