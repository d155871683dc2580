"""Texts to token shards: in parallel over cores, and a run that is killed goes on where it was."""

import hashlib
import os
import platform
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from pathlib import Path

import numpy as np

from ..files import file_sha256, writing
from .documents import count_documents, documents, text_files
from .shards import DTYPE, MANIFEST, Manifest, ShardSettings, check_sizes
from .tokenizers import make_tokenizer

__all__ = ["TokenizeConfig", "tokenize"]

_tokenizer = cache(make_tokenizer)  # one per worker


@dataclass(frozen=True)
class TokenizeConfig:
    """Write a corpus as token shards; after a kill, the same command goes on."""

    source: str
    """fineweb, embedded, or a parquet / jsonl / jsonl.xz / jsonl.gz file with a text column, or a folder of them."""
    out: Path
    """Folder of the shards."""
    tokenizer: str = "gpt2"
    """gpt2 or byte."""
    shard_tokens: int = 100_000_000
    """Tokens per shard, 2 bytes each; one shard is held in memory."""
    workers: int | None = None
    """Processes that encode; None takes one per core."""
    limit_documents: int | None = None
    """Stop after this many documents."""
    limit_tokens: int | None = None
    """Stop after the document that reaches this many tokens."""
    progress: bool = True
    """Show a progress bar."""


def tokenize(source: str | Path, out: str | Path, tokenizer: str = "gpt2", shard_tokens: int = 100_000_000,
             workers: int | None = None, limit_documents: int | None = None, limit_tokens: int | None = None,
             progress: bool = True) -> Manifest:
    """Write a source as shards into the folder `out` and return the manifest; after a kill, the same call goes on.

    Args:
        source: as in `data.documents`: "fineweb", "embedded", a file or a folder of files.
        tokenizer: "gpt2" or "byte".
        shard_tokens: tokens per shard, 2 bytes each; one shard is held in memory.
        workers: processes that encode; None takes one per core, 1 starts none.  The files do not depend on it.
            A script that uses more than one must call under `if __name__ == "__main__":`.
        limit_documents: stop after this many; None reads all.
        limit_tokens: stop after the document that reaches this many tokens; None reads all.
        progress: show a bar with tokens/s, and with the time left unless all of a stream is read.

    Raises FileNotFoundError, ValueError, ImportError: as `data.documents`; more than 65,536 ids; a number below 1; a
    damaged folder, or one made with other settings.
    """
    folder, source = Path(out), str(source)
    for name, value in (("shard_tokens", shard_tokens), ("workers", workers), ("limit_documents", limit_documents),
                        ("limit_tokens", limit_tokens)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}; give a number >= 1")
    encoder = make_tokenizer(tokenizer)
    if encoder.vocab_size > 65_536:
        raise ValueError(f"tokenizer {tokenizer!r} has {encoder.vocab_size:,} ids; a shard holds 65,536 at most")
    name, digest = _identity(source)
    wanted = ShardSettings(source=name, source_sha256=digest, tokenizer=encoder.name, vocab_size=encoder.vocab_size,
                           end_of_text=encoder.end_of_text, shard_tokens=shard_tokens,
                           limit_documents=limit_documents, limit_tokens=limit_tokens)
    manifest = check_sizes(folder, finished=False) if (folder / MANIFEST).exists() else Manifest(wanted)
    manifest.settings.require(wanted, folder)
    if manifest.complete:
        print(f"{folder} is complete, {manifest.documents:,} documents, {manifest.tokens:,} tokens: nothing to do")
        return manifest
    texts = islice(documents(source), limit_documents)
    before = sum(1 for _ in islice(texts, manifest.documents))
    if before < manifest.documents:
        raise ValueError(f"{source} has {before} documents, {folder} already {manifest.documents}; give another folder")
    at = manifest.shards[-1]["offset"] if manifest.shards else 0
    buffer, filled, read = np.empty(shard_tokens, DTYPE), 0, manifest.tokens - at  # read: in whole documents
    bar = _bar(source, before, read, limit_documents, limit_tokens, progress)
    with closing(bar), closing(_encoded(texts, tokenizer, workers or os.cpu_count() or 1)) as encoded:
        for ids, lengths in encoded if limit_tokens is None else _up_to(limit_tokens - read, encoded):
            ends = np.cumsum([0, *lengths])
            while at < len(ids):
                piece = ids[at:at + shard_tokens - filled]
                buffer[filled:filled + len(piece)] = piece
                at, filled = at + len(piece), filled + len(piece)
                if filled == shard_tokens:
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
    """A bar of tokens, or of documents with tokens/s beside it."""

    def __init__(self, in_tokens: bool, **options):
        from tqdm import tqdm

        self.bar, self.in_tokens, self.tokens = tqdm(**options), in_tokens, 0

    def advance(self, documents: int, tokens: int) -> None:
        self.tokens += tokens
        self.bar.update(tokens if self.in_tokens else documents)
        if not self.in_tokens:
            rate = self.tokens / (self.bar.format_dict["elapsed"] or 1)
            self.bar.set_postfix_str(f"{self.bar.format_sizeof(rate)} tokens/s", refresh=False)

    def close(self) -> None:
        self.bar.close()


def _bar(source: str, documents: int, tokens: int, limit_documents: int | None, limit_tokens: int | None,
         progress: bool) -> _Bar:
    options = dict(unit_scale=True, desc=f"tokenizing {source}", disable=not progress)
    if limit_tokens is not None and limit_documents is None:
        return _Bar(True, total=limit_tokens, initial=tokens, unit=" tokens", **options)
    total = count_documents(source) if progress else None
    total = min((n for n in (total, limit_documents) if n is not None), default=None)
    return _Bar(False, total=total, initial=documents, unit="doc", **options)


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
    if source in ("fineweb", "embedded"):
        return source if source == "fineweb" else f"documentation of Python {platform.python_version()}", None
    path = Path(source)
    if not path.exists():
        next(documents(source))  # says what is wrong with it
    files = text_files(path) if path.is_dir() else [path]
    for file in files:
        if not file.stat().st_size:
            raise ValueError(f"{file} is empty; give a file with at least one document")
    hashes = [file_sha256(file) for file in files]
    return path.name, hashes[0] if path.is_file() else hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def _encoded(texts: Iterator[str], tokenizer: str, workers: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the ids (uint16) and the tokens per document of one chunk after the other, in the order of the texts."""
    chunks = iter(lambda: list(islice(texts, 64)), [])  # what a worker takes at once
    if workers == 1:
        yield from (_encode(chunk, tokenizer) for chunk in chunks)
        return
    pending = deque()  # bounded, so that the source is not read ahead; unlike Pool.imap, a dead worker is an error
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker) as pool:
        for chunk in chunks:
            pending.append(pool.submit(_encode, chunk, tokenizer))
            if len(pending) > 4 * workers:
                yield pending.popleft().result()
        yield from (part.result() for part in pending)


def _encode(texts: list[str], tokenizer: str) -> tuple[np.ndarray, np.ndarray]:
    encoder = _tokenizer(tokenizer)
    rows = [[*encoder.encode(text), encoder.end_of_text] for text in texts]
    lengths = np.array([len(row) for row in rows])
    return np.fromiter(chain.from_iterable(rows), DTYPE, int(lengths.sum())), lengths


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it even when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=lambda: (parent_process().join(), os._exit(1)), daemon=True).start()
