"""Texts to token shards: written once, for many runs; a call that is killed goes on where it was."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from ..files import file_sha256, writing
from .documents import DOCUMENTED, SOURCES, count_documents, documents, text_files
from .manifest_form import ranges_text, shard_name
from .shards import DTYPE, MANIFEST, Manifest, ShardSettings, check_sizes
from .split import RULE, is_held_out
from .tokenizers import Tokenizer, make_tokenizer

__all__ = ["TokenizeConfig", "fingerprint", "tokenize"]

_CHUNK, _CHUNK_TEXT = 256, 1 << 22  # documents that are encoded at once, and characters after which no more are added
_MOST_IDS = np.iinfo(DTYPE).max + 1


@dataclass(frozen=True)
class TokenizeConfig:
    """Write a corpus as token shards; after a kill, the same command goes on.

    Raises:
        ValueError: a number below 1, in one line.
    """

    source: str
    """embedded (Python's documentation), fineweb (streamed from the network), a parquet / jsonl / jsonl.xz /
    jsonl.gz file with column text, a txt file in UTF-8, or a folder of such files.  A document, or a line of JSON with
    one, has at most 16 MiB; a txt file has any size, and is cut into documents of some 4 KiB."""
    out: Path
    """Folder of the shards."""
    tokenizer: str = "gpt2"
    """byte, gpt2, or gpt2:N, GPT-2's first N - 1 ids and an end of text."""
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
    manifest = check_sizes(folder, finished=False) if (folder / MANIFEST).exists() else None
    wanted = ShardSettings(source=name, source_sha256=digest, tokenizer=encoder.name, vocab_size=encoder.vocab_size,
                           end_of_text=encoder.end_of_text, shard_tokens=size, limit_documents=config.limit_documents,
                           limit_tokens=config.limit_tokens, rule=RULE)
    if manifest is None:
        manifest = Manifest(wanted)
    elif manifest.settings.rule is None:  # an earlier version began it, and it ends as it began
        wanted = replace(wanted, rule=None)
    manifest.settings.require(wanted, folder)
    if manifest.complete:
        print(f"{folder} is complete, {manifest.documents:,} documents, {manifest.tokens:,} tokens: nothing to do")
        return manifest
    texts = islice(documents(source), config.limit_documents)
    before = sum(1 for _ in islice(texts, manifest.documents))
    if before < manifest.documents:
        raise ValueError(f"{source} has {before} documents, {folder} already {manifest.documents}; give another folder")
    at = manifest.shards[-1]["offset"] if manifest.shards else 0
    shard, read = _Shard(size), manifest.tokens - at  # read: in whole documents
    with closing(_Bar(config, before, read)) as bar:
        encoded = _encoded(texts, encoder, config.threads or os.cpu_count() or 1)
        for chunk in encoded if config.limit_tokens is None else _up_to(config.limit_tokens - read, encoded):
            while at < len(chunk.ids):
                at = shard.fill(chunk, at)
                if shard.is_full:
                    whole = int(np.searchsorted(chunk.ends, at, side="right")) - 1
                    manifest = _add(folder, manifest, shard, before + whole, at - int(chunk.ends[whole]))
                    shard = _Shard(size, shard.buffer)
            before, at = before + len(chunk.held), 0
            bar.advance(len(chunk.held), len(chunk.ids))
    if before == 0:
        raise ValueError(f"{source} gave no documents; give a source with at least one")
    if shard.filled:
        manifest = _add(folder, manifest, shard, before, 0)
    manifest = replace(manifest, complete=True)
    manifest.save(folder)
    return manifest


@dataclass(frozen=True)
class _Chunk:
    """Documents, encoded: ids (uint16), whether each is held out (bool), where they begin and the last ends (int64)."""

    ids: np.ndarray
    held: np.ndarray
    ends: np.ndarray

    def head(self, documents: int) -> "_Chunk":
        """Return the first documents alone."""
        ends = self.ends[:documents + 1]
        return _Chunk(self.ids[:ends[-1]], self.held[:documents], ends)


class _Shard:
    """A shard in the making: its ids and which of them are held out."""

    def __init__(self, size: int, buffer: np.ndarray | None = None):
        self.buffer = np.empty(size, DTYPE) if buffer is None else buffer
        self.filled = 0
        self.held: list[tuple[int, int]] = []

    @property
    def is_full(self) -> bool:
        """Whether no more fits into it."""
        return self.filled == len(self.buffer)

    def fill(self, chunk: _Chunk, at: int) -> int:
        """Take the ids of a chunk from `at` on, as far as they fit, and return where that ends."""
        stop = min(len(chunk.ids), at + len(self.buffer) - self.filled)
        self.buffer[self.filled:self.filled + stop - at] = chunk.ids[at:stop]
        for i in np.flatnonzero(chunk.held):
            first, last = max(int(chunk.ends[i]), at), min(int(chunk.ends[i + 1]), stop)
            if first < last:
                start, end = first - at + self.filled, last - at + self.filled
                if self.held and self.held[-1][1] == start:
                    start = self.held.pop()[0]
                self.held.append((start, end))
        self.filled += stop - at
        return stop


def _up_to(tokens: int, encoded: Iterator[_Chunk]) -> Iterator[_Chunk]:
    """Pass chunks on, up to and with the document that reaches this many tokens."""
    while tokens > 0:
        try:
            chunk = next(encoded)
        except StopIteration:
            return
        yield chunk.head(min(int(np.searchsorted(chunk.ends[1:], tokens)) + 1, len(chunk.held)))
        tokens -= len(chunk.ids)


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


def _add(folder: Path, manifest: Manifest, shard: _Shard, whole: int, offset: int) -> Manifest:
    """Write one more shard, then the manifest that lists it."""
    ids = shard.buffer[:shard.filled]
    entry = {"name": shard_name(len(manifest.shards)), "tokens": len(ids), "documents": whole, "offset": offset,
             "sha256": hashlib.sha256(ids).hexdigest()}
    if manifest.settings.rule is not None:
        entry["held_out"] = ranges_text(shard.held)
    with writing(folder / entry["name"]) as partial:
        partial.write_bytes(ids)
    manifest = replace(manifest, documents=whole, tokens=manifest.tokens + len(ids), shards=(*manifest.shards, entry))
    manifest.save(folder)
    return manifest


def fingerprint(source: str) -> list[dict]:
    """Return name and sha256 of each file of a source, of shards that of their manifest; nothing for a stream.

    Raises FileNotFoundError, ValueError: as `data.documents`; an empty file.
    """
    if source in SOURCES:
        return []
    path = Path(source)
    if (path / MANIFEST).is_file():
        return [{"name": MANIFEST, "sha256": Manifest.load(path).digest}]
    if not path.exists():
        next(documents(source))  # says what is wrong with it
    files = text_files(path) if path.is_dir() else [path]
    for file in files:
        if not file.stat().st_size:
            raise ValueError(f"{file} is empty; give a file with at least one document")
    return [{"name": file.name, "sha256": file_sha256(file)} for file in files]


def _identity(source: str) -> tuple[str, str | None]:
    """Return a name of the source and the hash of its files: a moved file is the same source, a changed one is not."""
    if source in SOURCES:
        return f"documentation of Python {DOCUMENTED}" if source == "embedded" else source, None
    hashes, path = [file["sha256"] for file in fingerprint(source)], Path(source)
    return path.name, hashes[0] if path.is_file() else hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def _encoded(texts: Iterator[str], encoder: Tokenizer, threads: int) -> Iterator[_Chunk]:
    """Yield the documents in chunks of bounded length, in the order of the texts."""
    while chunk := _some(texts):
        rows = [[*ids, encoder.end_of_text] for ids in encoder.encode_batch(chunk, threads)]
        ends = np.cumsum([0, *map(len, rows)])
        yield _Chunk(np.fromiter(chain.from_iterable(rows), DTYPE, int(ends[-1])),
                     np.array([is_held_out(text) for text in chunk]), ends)


def _some(texts: Iterator[str]) -> list[str]:
    """Take the next documents: at most `_CHUNK`, and none after `_CHUNK_TEXT` characters."""
    chunk, length = [], 0
    while len(chunk) < _CHUNK and length < _CHUNK_TEXT and (text := next(texts, None)) is not None:
        chunk.append(text)
        length += len(text)
    return chunk
