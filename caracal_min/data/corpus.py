"""A corpus to train on: tokens for training, and held-out tokens that no document shares with them.

Small ones are read into memory, large ones memory-mapped from shards.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .documents import documents
from .shards import MANIFEST, ShardedTokens
from .tokenizers import make_tokenizer
from .write_shards import tokenize

__all__ = ["Corpus", "all_tokens", "load_corpus"]

_HELD_OUT = 100  # one token in this many, of shards that bring no validation text of their own


@dataclass(frozen=True)
class Corpus:
    """Tokens of a corpus, split so that no held-out document was trained on.

    `train` and `validation` are ids: uint16 arrays `[tokens]`, or `ShardedTokens`.
    """

    source: str
    tokenizer: str
    train: np.ndarray | ShardedTokens
    validation: np.ndarray | ShardedTokens

    @property
    def vocab_size(self) -> int:
        """Number of ids of the tokenizer."""
        return make_tokenizer(self.tokenizer).vocab_size

    @property
    def digest(self) -> str:
        """SHA-256 over both splits: two corpora with one digest are the same tokens, split in the same way."""
        return hashlib.sha256(_digest(self.train) + b"|" + _digest(self.validation)).hexdigest()


def load_corpus(source: str = "embedded", tokenizer: str = "byte", max_tokens: int | None = None,
                held_out_every: int = 10, progress: bool = True, validation: str | None = None,
                shards: str | Path | None = None) -> Corpus:
    """Read and tokenize a corpus.

    Args:
        source: "embedded", "fineweb", the path of a parquet, jsonl, jsonl.xz or jsonl.gz file, a folder of such files,
            or a folder of shards (`write_shards.tokenize`).
        tokenizer: "byte" or "gpt2"; shards must have been made with the same.
        max_tokens: stop after the document that reaches this many tokens; None reads everything.
        held_out_every: one document in this many (the last of each group) is held out, at least 2.
        progress: show a bar of tokens read.
        validation: another source, of which all is held out; None takes it from `source`: every
            `held_out_every`-th document, and of shards the documents in the last hundredth.
        shards: a folder into which the source is tokenized first, to be read from there; None reads into memory.

    Returns:
        A `Corpus`; every document is followed by the tokenizer's end-of-text id.

    Raises:
        FileNotFoundError, ValueError: no such file, an unknown format, no `text` column, an empty corpus; shards of
            another tokenizer, damaged or unfinished ones.
        ImportError: the source needs `datasets` or the tokenizer `tiktoken`, and it is not installed.
    """
    if held_out_every < 2:
        raise ValueError(f"held_out_every={held_out_every}; give at least 2, or nothing is left to train on")
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens={max_tokens}; give a number >= 1, or None for everything")
    source, held_out = str(source), None
    if validation is not None:
        held_out = all_tokens(str(validation), tokenizer, None, progress)
    if shards is not None and not _is_shards(source):
        tokenize(source, shards, tokenizer, limit_tokens=max_tokens, progress=progress)
        source, max_tokens = str(shards), None
    if _is_shards(source):
        return _from_shards(source, tokenizer, max_tokens, held_out)
    if held_out is not None:
        return Corpus(source, tokenizer, _joined(_read(source, tokenizer, max_tokens, progress), source), held_out)
    parts: tuple[list, list] = ([], [])
    for i, ids in enumerate(_read(source, tokenizer, max_tokens, progress)):
        parts[i % held_out_every == held_out_every - 1].append(ids)
    if not parts[0] or not parts[1]:
        raise ValueError(f"{source} gave {len(parts[0]) + len(parts[1])} documents; at least {held_out_every} are "
                         "needed to hold one out: give more text, or a smaller held_out_every")
    return Corpus(source, tokenizer, np.concatenate(parts[0]), np.concatenate(parts[1]))


def _read(source: str, tokenizer: str, max_tokens: int | None, progress: bool):
    """Yield the ids of each document, uint16, its end-of-text id included."""
    from tqdm import tqdm

    encoder, total = make_tokenizer(tokenizer), 0
    with tqdm(total=max_tokens, unit="tok", unit_scale=True, desc=f"reading {source}", disable=not progress) as bar:
        for text in documents(source):
            ids = np.array([*encoder.encode(text), encoder.end_of_text], dtype=np.uint16)
            yield ids
            total += len(ids)
            bar.update(len(ids))
            if max_tokens is not None and total >= max_tokens:
                return


def _joined(parts, source: str) -> np.ndarray:
    parts = list(parts)
    if not parts:
        raise ValueError(f"{source} gave no documents; give a source with at least one")
    return np.concatenate(parts)


def all_tokens(source: str, tokenizer: str, max_tokens: int | None = None,
               progress: bool = True) -> np.ndarray | ShardedTokens:
    """Return the tokens of a source, ids as uint16, with nothing held out.  Arguments and errors as `load_corpus`."""
    if _is_shards(source):
        return _opened(source, tokenizer)
    return _joined(_read(source, tokenizer, max_tokens, progress), source)


def _is_shards(source: str) -> bool:
    return (Path(source) / MANIFEST).is_file()


def _opened(folder: str, tokenizer: str) -> ShardedTokens:
    tokens = ShardedTokens(folder)
    made_with = tokens.manifest.settings.tokenizer
    if made_with != tokenizer:
        raise ValueError(f"{folder} was made with tokenizer={made_with!r}, now it is {tokenizer!r}; "
                         "give the same, or tokenize again into another folder")
    return tokens


def _from_shards(folder: str, tokenizer: str, max_tokens: int | None,
                 held_out: np.ndarray | ShardedTokens | None) -> Corpus:
    tokens = _opened(folder, tokenizer)
    if held_out is None:
        start = len(tokens) - len(tokens) // _HELD_OUT
        ends = np.flatnonzero(tokens[start:] == tokens.manifest.settings.end_of_text)
        if len(ends) < 2:
            raise ValueError(f"the last hundredth of {folder}, {len(tokens) - start:,} tokens, holds no whole "
                             "document; give more text, or a validation text")
        border = start + int(ends[0]) + 1
        tokens, held_out = tokens.head(border), tokens[border:].astype(np.uint16)
    train = tokens if max_tokens is None else tokens.head(min(max_tokens, len(tokens)))
    return Corpus(folder, tokenizer, train, held_out)


def _digest(tokens: np.ndarray | ShardedTokens) -> bytes:
    if isinstance(tokens, ShardedTokens):
        return f"{tokens.manifest.digest} {len(tokens)}".encode()
    return tokens.tobytes()
