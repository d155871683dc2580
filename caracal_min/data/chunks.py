"""Texts to ids, some documents at a time, by several threads."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from .split import is_held_out, text_digest
from .tokenizers import Tokenizer

__all__ = ["DTYPE", "Chunk", "encode_in_chunks", "require_small_ids"]

DTYPE = np.dtype("<u2")
"""Type of the ids of a corpus, in memory and on disk."""
_DOCUMENTS, _CHARACTERS = 256, 1 << 22  # of a chunk: at most so many, and none is added after so many


@dataclass(frozen=True)
class Chunk:
    """Some consecutive documents, encoded, each with the end-of-text id after it."""

    ids: np.ndarray
    """The ids, uint16 `[tokens]`."""
    ends: np.ndarray
    """Where each document begins in `ids` and the last one ends, int64 `[documents + 1]`."""
    digests: list[bytes]
    """The `split.text_digest` of each document."""

    def __len__(self) -> int:
        return len(self.digests)

    @property
    def held_out(self) -> np.ndarray:
        """Whether each document is held out, bool `[documents]`."""
        return np.array([is_held_out(digest) for digest in self.digests], bool)

    def head(self, documents: int) -> "Chunk":
        """Return the first documents alone."""
        return Chunk(self.ids[:self.ends[documents]], self.ends[:documents + 1], self.digests[:documents])


def encode_in_chunks(texts: Iterator[str], encoder: Tokenizer, threads: int,
                     limit_tokens: int | None = None) -> Iterator[Chunk]:
    """Yield the documents in chunks of bounded length, in the order of the texts.

    Args:
        texts: the documents.
        encoder: their tokenizer; of at most 65,536 ids (`require_small_ids`).
        threads: of the tokenizer.  What is yielded does not depend on it.
        limit_tokens: the document that reaches so many tokens is the last one; None takes all.
    """
    while (limit_tokens is None or limit_tokens > 0) and (chunk := _next(texts)):
        rows = [[*ids, encoder.end_of_text] for ids in encoder.encode_batch(chunk, threads)]
        ends = np.cumsum([0, *map(len, rows)])
        encoded = Chunk(np.fromiter(chain.from_iterable(rows), DTYPE, int(ends[-1])), ends,
                        [text_digest(text) for text in chunk])
        if limit_tokens is not None:
            encoded = encoded.head(min(int(np.searchsorted(ends[1:], limit_tokens)) + 1, len(encoded)))
            limit_tokens -= len(encoded.ids)
        yield encoded


def require_small_ids(encoder: Tokenizer) -> None:
    """Raise ValueError if a tokenizer has more ids than two bytes can tell apart."""
    most = np.iinfo(DTYPE).max + 1
    if encoder.vocab_size > most:
        raise ValueError(f"tokenizer {encoder.name!r} has {encoder.vocab_size:,} ids; a corpus holds {most:,} at most")


def _next(texts: Iterator[str]) -> list[str]:
    """Take the next documents: at most `_DOCUMENTS`, and none after `_CHARACTERS` characters."""
    chunk, length = [], 0
    while len(chunk) < _DOCUMENTS and length < _CHARACTERS and (text := next(texts, None)) is not None:
        chunk.append(text)
        length += len(text)
    return chunk
