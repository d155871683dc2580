"""Texts to token shards: written once, for many runs; a call that is killed goes on where it was."""

import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from ..files import file_sha256, writing
from .documents import SOURCES, count_documents, documents, text_files
from .shards import DTYPE, MANIFEST, Manifest, ShardSettings, check_sizes
from .tokenizers import Tokenizer, make_tokenizer

__all__ = ["TokenizeConfig", "tokenize"]

_CHUNK = 256  # documents that are encoded at once
_MOST_IDS = np.iinfo(DTYPE).max + 1


@dataclass(frozen=True)
class TokenizeConfig:
    """Write a corpus as token shards; after a kill, the same command goes on.

    Raises:
        ValueError: a number below 1, in one line.
    """

    source: str
    """fineweb, embedded, or a parquet / jsonl / jsonl.xz / jsonl.gz file with a text column, or a folder of them."""
    out: Path
    """Folder of the shards."""
    tokenizer: str = "gpt2"
    """gpt2 or byte."""
    shard_tokens: int = 100_000_000
    """Tokens per shard, 2 bytes each; one shard is held in memory."""
    threads: int | None = None
    """Threads that encode; None takes one per core.  The files do not depend on it."""
    limit_documents: int | None = None
    """Stop after this many documents."""
    limit_tokens: int | None = None
    """Stop after the document that reaches this many tokens."""
    progress: bool = True
    """Show a bar with tokens per second, and with the time left unless all of a stream is read."""

    def __post_init__(self):
        for name in ("shard_tokens", "threads", "limit_documents", "limit_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}; give a number >= 1")


def tokenize(source: str | Path, out: str | Path, *options: Any, **named_options: Any) -> Manifest:
    """Write a source as shards into the folder `out` and return the manifest; after a kill, the same call goes on.

    The options are the further fields of `TokenizeConfig`, in their order or by name.

    Raises FileNotFoundError, ValueError, ImportError: as `data.documents`; more than 65,536 ids; a number below 1; a
    damaged folder, or one made with other settings.
    """
    config = TokenizeConfig(str(source), Path(out), *options, **named_options)
    source, folder, size = config.source, config.out, config.shard_tokens
    encoder = make_tokenizer(config.tokenizer)
    if encoder.vocab_size > _MOST_IDS:
        raise ValueError(f"tokenizer {encoder.name!r} has {encoder.vocab_size:,} ids; a shard holds {_MOST_IDS:,} at "
                         "most")
    name, digest = _identity(source)
    wanted = ShardSettings(source=name, source_sha256=digest, tokenizer=encoder.name, vocab_size=encoder.vocab_size,
                           end_of_text=encoder.end_of_text, shard_tokens=size,
                           limit_documents=config.limit_documents, limit_tokens=config.limit_tokens)
    manifest = check_sizes(folder, finished=False) if (folder / MANIFEST).exists() else Manifest(wanted)
    manifest.settings.require(wanted, folder)
    if manifest.complete:
        print(f"{folder} is complete, {manifest.documents:,} documents, {manifest.tokens:,} tokens: nothing to do")
        return manifest
    texts = islice(documents(source), config.limit_documents)
    before = sum(1 for _ in islice(texts, manifest.documents))
    if before < manifest.documents:
        raise ValueError(f"{source} has {before} documents, {folder} already {manifest.documents}; give another folder")
    at = manifest.shards[-1]["offset"] if manifest.shards else 0
    buffer, filled, read = np.empty(size, DTYPE), 0, manifest.tokens - at  # read: in whole documents
    with closing(_Bar(config, before, read)) as bar:
        encoded = _encoded(texts, encoder, config.threads or os.cpu_count() or 1)
        for ids, lengths in encoded if config.limit_tokens is None else _up_to(config.limit_tokens - read, encoded):
            ends = np.cumsum([0, *lengths])
            while at < len(ids):
                piece = ids[at:at + size - filled]
                buffer[filled:filled + len(piece)] = piece
                at, filled = at + len(piece), filled + len(piece)
                if filled == size:
                    whole = int(np.searchsorted(ends, at, side="right")) - 1
                    manifest, filled = _add(folder, manifest, buffer, before + whole, at - int(ends[whole])), 0
            before, at = before + len(lengths), 0
            bar.advance(len(lengths), len(ids))
    if before == 0:
        raise ValueError(f"{source} gave no documents; give a source with at least one")
    if filled:
        manifest = _add(folder, manifest, buffer[:filled], before, 0)
    manifest = replace(manifest, complete=True)
    manifest.save(folder)
    return manifest


def _up_to(tokens: int, encoded: Iterator[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pass chunks on, up to and with the document that reaches this many tokens."""
    while tokens > 0:
        try:
            ids, lengths = next(encoded)
        except StopIteration:
            return
        ends = np.cumsum(lengths)
        count = int(np.searchsorted(ends, tokens)) + 1  # documents that are kept
        yield ids[:ends[min(count, len(ends)) - 1]], lengths[:count]
        tokens -= len(ids)


class _Bar:
    """A bar of tokens, or of documents with tokens/s beside it, for a call that begins after some of both."""

    def __init__(self, config: TokenizeConfig, documents: int, tokens: int):
        from tqdm import tqdm

        self.in_tokens, self.tokens = config.limit_tokens is not None and config.limit_documents is None, 0
        if self.in_tokens:
            counted = dict(total=config.limit_tokens, initial=tokens, unit=" tokens")
        else:
            ends = (count_documents(config.source) if config.progress else None, config.limit_documents)
            counted = dict(total=min((n for n in ends if n is not None), default=None), initial=documents, unit="doc")
        self.bar = tqdm(unit_scale=True, desc=f"tokenizing {config.source}", disable=not config.progress, **counted)

    def advance(self, documents: int, tokens: int) -> None:
        self.tokens += tokens
        self.bar.update(tokens if self.in_tokens else documents)
        if not self.in_tokens:
            rate = self.tokens / (self.bar.format_dict["elapsed"] or 1)
            self.bar.set_postfix_str(f"{self.bar.format_sizeof(rate)} tokens/s", refresh=False)

    def close(self) -> None:
        self.bar.close()


def _add(folder: Path, manifest: Manifest, ids: np.ndarray, whole: int, offset: int) -> Manifest:
    """Write one more shard, then the manifest that lists it."""
    shard = {"name": f"shard_{len(manifest.shards):05d}.bin", "tokens": len(ids), "documents": whole, "offset": offset,
             "sha256": hashlib.sha256(ids).hexdigest()}
    with writing(folder / shard["name"]) as partial:
        partial.write_bytes(ids)
    manifest = replace(manifest, documents=whole, tokens=manifest.tokens + len(ids), shards=(*manifest.shards, shard))
    manifest.save(folder)
    return manifest


def _identity(source: str) -> tuple[str, str | None]:
    """Return a name of the source and the hash of its files: a moved file is the same source, a changed one is not."""
    if source in SOURCES:
        return f"documentation of Python {platform.python_version()}" if source == "embedded" else source, None
    path = Path(source)
    if not path.exists():
        next(documents(source))  # says what is wrong with it
    files = text_files(path) if path.is_dir() else [path]
    for file in files:
        if not file.stat().st_size:
            raise ValueError(f"{file} is empty; give a file with at least one document")
    hashes = [file_sha256(file) for file in files]
    return path.name, hashes[0] if path.is_file() else hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def _encoded(texts: Iterator[str], encoder: Tokenizer, threads: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the ids (uint16) and the tokens per document of one chunk after the other, in the order of the texts."""
    while chunk := list(islice(texts, _CHUNK)):
        rows = [[*ids, encoder.end_of_text] for ids in encoder.encode_batch(chunk, threads)]
        lengths = np.array([len(row) for row in rows])
        yield np.fromiter(chain.from_iterable(rows), DTYPE, int(lengths.sum())), lengths
