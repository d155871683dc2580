"""A corpus to train on: tokens for training, and held-out tokens that no document shares with them.

Small ones are read into memory, large ones memory-mapped from shards; `split` says what is held out of either.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..progress import progress_bar
from .chunks import encode_in_chunks, require_small_ids
from .documents import checked_texts, documents, require_source
from .manifest import MANIFEST, Manifest, is_complete
from .shards import ShardedTokens, check_sizes
from .split import ALL, HELD_OUT, RULE, TRAIN, is_held_out
from .tokenizers import Tokenizer, make_tokenizer, tokenizer_sha256
from .write_shards import tokenize

__all__ = ["Corpus", "load_corpus", "require_readable", "tokens_of"]


@dataclass(frozen=True)
class Corpus:
    """Tokens of a corpus, split so that no held-out document was trained on.

    `train` and `validation` are ids: uint16 arrays `[tokens]`, or `ShardedTokens`.  `rule` says what was held out of
    the source: `split.RULE`, or None where the caller split it.  A tokenizer may be given by its name, as
    `make_tokenizer` takes it.
    """

    source: str
    tokenizer: Tokenizer
    train: np.ndarray | ShardedTokens
    validation: np.ndarray | ShardedTokens
    rule: str | None = None

    def __post_init__(self):
        object.__setattr__(self, "tokenizer", make_tokenizer(self.tokenizer))

    @classmethod
    def from_texts(cls, texts: Iterable[str], tokenizer: str | Path | Tokenizer = "byte",
                   validation: Iterable[str] | None = None, source: str = "texts") -> "Corpus":
        """Return the corpus of some documents.

        Args:
            texts: the documents; those that `split.RULE` holds out are not trained on.
            tokenizer: as `make_tokenizer` takes it.
            validation: documents to measure on, of which `texts` has none; None takes what is held out of `texts`.
            source: what the corpus is called in records.

        Raises:
            TypeError: one text, where documents are wanted.
            ValueError: a document that is no text, nothing to train on, or nothing that is held out.

        Example:
            >>> corpus = Corpus.from_texts([f"document {i}" for i in range(100)])
            >>> len(corpus.train), len(corpus.validation)
            (1166, 24)
        """
        for name, given in (("texts", texts), ("validation", validation)):
            if isinstance(given, str):
                raise TypeError(f"{name} is one text; give a list of texts, one for each document")
        encoder, held_out = make_tokenizer(tokenizer), None
        if validation is not None:
            found = [ids for _, ids in _encoded(checked_texts(validation, "validation"), encoder)]
            if not found:
                raise ValueError("validation has no documents; give at least one, or None to hold some of texts out")
            held_out = np.concatenate(found)
        return _in_memory(source, encoder, _encoded(checked_texts(texts, "texts"), encoder), held_out)

    @property
    def vocab_size(self) -> int:
        """Number of ids of the tokenizer."""
        return self.tokenizer.vocab_size

    @property
    def digest(self) -> str:
        """SHA-256 over both splits: two corpora with one digest are the same tokens, split in the same way."""
        return hashlib.sha256(_digest(self.train) + b"|" + _digest(self.validation)).hexdigest()


def load_corpus(source: str | Path = "embedded", tokenizer: str | Path | Tokenizer = "byte",
                max_tokens: int | None = None, progress: bool = True, validation: str | Path | None = None,
                shards: str | Path | None = None) -> Corpus:
    """Read and tokenize a corpus.

    Args:
        source: as in `documents.documents`, or a folder of shards (`write_shards.tokenize`).
        tokenizer: as `make_tokenizer` takes it; shards must have been made with the same.
        max_tokens: stop after the document that reaches this many tokens, held-out ones included; of shards, train on
            this many.  None reads everything.
        progress: show a bar of tokens read.
        validation: another source, of which all is held out, and which the caller knows to share no document with the
            first; None takes what `split.RULE` holds out of `source`.  Either way that is not trained on.
        shards: a folder into which the source is tokenized first, to be read from there; None reads into memory.  Once
            it is complete, the source may be gone.

    Returns:
        A `Corpus`; every document is followed by the tokenizer's end-of-text id.

    Raises:
        FileNotFoundError, ValueError: no such file, an unknown format, no `text` column, an empty corpus, nothing that
            is held out; shards of another tokenizer, damaged or unfinished ones.
        ConnectionError: the network failed.
        ImportError: the source needs `datasets`, or the tokenizer `tiktoken`, and it is not installed.
    """
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens={max_tokens}; give a number >= 1, or None for everything")
    source, encoder = str(source), make_tokenizer(tokenizer)
    require_readable(encoder, source, *([] if validation is None else [str(validation)]), shards=shards)
    held_out = None if validation is None else tokens_of(str(validation), encoder, progress=progress)
    if shards is not None and not _is_shards(source):
        tokenize(source, shards, encoder, limit_tokens=max_tokens, progress=progress)
        source, max_tokens = str(shards), None
    if _is_shards(source):
        return _from_shards(source, encoder, max_tokens, held_out)
    return _in_memory(source, encoder, _read(source, encoder, max_tokens, progress), held_out)


def tokens_of(source: str, tokenizer: str | Path | Tokenizer, split: str = ALL, max_tokens: int | None = None,
              progress: bool = True) -> np.ndarray | ShardedTokens:
    """Return the tokens of a split of a source.

    Args:
        source, tokenizer, progress: as in `load_corpus`.
        split: "train", "held_out" or "all", by `split.RULE`.
        max_tokens: stop after the document that reaches this many tokens of the split; of shards, all come.

    Returns:
        ids: a uint16 array `[tokens]`, or `ShardedTokens`.

    Raises:
        FileNotFoundError, ValueError, ConnectionError, ImportError: as `load_corpus`.
    """
    encoder = make_tokenizer(tokenizer)
    if _is_shards(source):
        return _opened(source, encoder, split)
    found = [ids for _, ids in _read(source, encoder, max_tokens, progress, split)]
    if not found:
        of = "gave no documents" if split == ALL else f"has no document of the split {split!r} ({RULE})"
        raise ValueError(f"{source} {of}; give more text")
    return np.concatenate(found)


def require_readable(tokenizer: str | Path | Tokenizer, *sources: str, shards: str | Path | None = None) -> None:
    """Find out, before much is read, whether a tokenizer is there and some sources can be read, shards with it.

    Args:
        tokenizer: as `make_tokenizer` takes it.
        sources: as in `load_corpus`.
        shards: folder into which the first source is tokenized; if it is complete, the source is not needed.

    Raises:
        FileNotFoundError, ValueError, ImportError, OSError: as `load_corpus`, as far as the beginning of each file, or
            the sizes of the shards, show it.
    """
    encoder = make_tokenizer(tokenizer)
    for source in sources[1:] if shards is not None and is_complete(shards) else sources:
        if _is_shards(source):
            _require_tokenizer(source, check_sizes(Path(source)), encoder)
        else:
            require_source(source)


def _read(source: str, encoder: Tokenizer, max_tokens: int | None, progress: bool,
          split: str = ALL) -> Iterator[tuple[bool, np.ndarray]]:
    """Yield the documents of a split as `_encoded`, and show how far it is."""
    texts = (text for text in documents(source) if split == ALL or is_held_out(text) == (split == HELD_OUT))
    with progress_bar(show=progress, total=max_tokens, unit="tok", unit_scale=True, desc=f"reading {source}") as bar:
        for held, ids in _encoded(texts, encoder, max_tokens):
            yield held, ids
            bar.update(len(ids))


def _encoded(texts: Iterator[str], encoder: Tokenizer,
             max_tokens: int | None = None) -> Iterator[tuple[bool, np.ndarray]]:
    """Yield of each document whether it is held out, and its ids, uint16, the end-of-text id included."""
    require_small_ids(encoder)
    for chunk in encode_in_chunks(texts, encoder, os.cpu_count() or 1, max_tokens):
        yield from zip(chunk.held_out.tolist(), np.split(chunk.ids, chunk.ends[1:-1]), strict=True)


def _in_memory(source: str, encoder: Tokenizer, encoded: Iterator[tuple[bool, np.ndarray]],
               held_out: np.ndarray | ShardedTokens | None) -> Corpus:
    """Return the corpus of some documents; `held_out`, where given, is measured in place of what the rule holds out."""
    splits: tuple[list, list] = ([], [])
    for held, ids in encoded:
        splits[held].append(ids)
    train, measured = splits
    if not train or not measured and held_out is None:
        raise _nothing(source, len(train) + len(measured), bool(train))
    return Corpus(source, encoder, np.concatenate(train), np.concatenate(measured) if held_out is None else held_out,
                  RULE)


def _nothing(source: str, documents: int, to_measure: bool) -> ValueError:
    what = "hold out" if to_measure else "train on"
    return ValueError(f"{source} gave {documents} documents, and none to {what} (held out: {RULE}); "
                      f"give more text{', or a validation text' if to_measure else ''}")


def _is_shards(source: str) -> bool:
    return (Path(source) / MANIFEST).is_file()


def _opened(folder: str, encoder: Tokenizer, split: str) -> ShardedTokens:
    tokens = ShardedTokens(folder, split)
    _require_tokenizer(folder, tokens.manifest, encoder)
    return tokens


def _require_tokenizer(folder: str, manifest: Manifest, encoder: Tokenizer) -> None:
    settings = manifest.settings
    settings.require(replace(settings, tokenizer=encoder.name, tokenizer_sha256=tokenizer_sha256(encoder)),
                     Path(folder))


def _from_shards(folder: str, encoder: Tokenizer, max_tokens: int | None,
                 held_out: np.ndarray | ShardedTokens | None) -> Corpus:
    """Return the corpus of a folder of shards."""
    train, measured = (_opened(folder, encoder, split) for split in (TRAIN, HELD_OUT))
    if not len(train) or not len(measured) and held_out is None:
        raise _nothing(folder, train.manifest.documents, bool(len(train)))
    return Corpus(folder, encoder, train if max_tokens is None else train.head(min(max_tokens, len(train))),
                  measured if held_out is None else held_out, RULE)


def _digest(tokens: np.ndarray | ShardedTokens) -> bytes:
    return tokens.digest.encode() if isinstance(tokens, ShardedTokens) else tokens.tobytes()
