"""Texts to token shards: written once, for many runs; a call that is killed goes on where it was."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from ..files import file_sha256, writing
from ..progress import progress_bar
from .chunks import DTYPE, Chunk, encode_in_chunks, require_small_ids
from .documents import DOCUMENTED, SOURCES, documents, fineweb_revision, text_files
from .manifest import MANIFEST, Manifest, ShardSettings, ranges_text, shard_name
from .shards import check_sizes
from .split import text_digest
from .tokenizers import Tokenizer, make_tokenizer, tokenizer_sha256

__all__ = ["TokenizeConfig", "fingerprint", "tokenize"]


@dataclass(frozen=True)
class TokenizeConfig:
    """Write a corpus as token shards; after a kill, the same command goes on.

    Raises:
        ValueError: a number below 1, in one line.
    """

    source: str
    """embedded (Python's documentation), fineweb (streamed from the network), a parquet / jsonl / jsonl.xz /
    jsonl.gz file with column text, a txt file in UTF-8, or a folder of such files.  A txt file is cut into documents of
    some 4 KiB."""
    out: Path
    """Folder of the shards."""
    tokenizer: str = "gpt2"
    """byte; gpt2; gpt2:N, which has N ids: GPT-2's first N - 1 and an end of text; or the path of a tokenizer.json."""
    shard_tokens: int = 100_000_000
    """Tokens per shard, 2 bytes each; one shard is held in memory."""
    threads: int | None = None
    """Threads that encode; None takes one per core.  The files do not depend on it."""
    limit_documents: int | None = None
    """Stop after this many documents."""
    limit_tokens: int | None = None
    """Stop after the document that reaches this many tokens."""
    progress: bool = True
    """Show a bar in a terminal, with tokens per second and, under limit_tokens, the time left."""

    def __post_init__(self):
        for name in ("shard_tokens", "threads", "limit_documents", "limit_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}; give a number >= 1")


def tokenize(source: str | Path, out: str | Path, *options: Any, **named_options: Any) -> Manifest:
    """Write a source as shards into the folder `out` and return the manifest; after a kill, the same call goes on.

    The options are the further fields of `TokenizeConfig`, in their order or by name.  A folder that is complete does
    not need its source any more.

    Raises:
        FileNotFoundError, ValueError, ImportError: as `data.documents`; more than 65,536 ids; a number below 1; a
            damaged folder, or one made with other settings or from a stream that has changed.
        ConnectionError: the network failed; what was written stays, and the same call goes on from there.
    """
    config = TokenizeConfig(str(source), Path(out), *options, **named_options)
    folder, encoder = config.out, make_tokenizer(config.tokenizer)
    require_small_ids(encoder)
    manifest = check_sizes(folder, finished=False) if (folder / MANIFEST).exists() else None
    wanted = _settings(config, encoder, manifest)
    manifest = manifest or Manifest(wanted)
    manifest.settings.require(wanted, folder)
    if manifest.complete:
        print(f"{folder} is complete, {manifest.documents:,} documents, {manifest.tokens:,} tokens: nothing to do")
        return manifest
    writer = _Writer(folder, manifest)
    try:
        _write(config, encoder, writer)
    except ConnectionError as error:
        raise ConnectionError(f"{error}; {folder} keeps {len(writer.manifest.shards)} shards, and the same command "
                              "goes on from there") from error
    return writer.manifest


def _write(config: TokenizeConfig, encoder: Tokenizer, writer: "_Writer") -> None:
    """Read the source from its beginning, and write what is not yet in the folder."""
    manifest = writer.manifest
    texts = writer.skip(islice(documents(config.source, manifest.settings.revision), config.limit_documents),
                        config.source)
    whole = manifest.tokens - writer.offset  # tokens of the documents that are whole in the folder
    limit = None if config.limit_tokens is None else config.limit_tokens - whole
    with progress_bar(show=config.progress, total=config.limit_tokens, initial=whole, unit=" tokens", unit_scale=True,
                      desc=f"tokenizing {config.source}") as bar:
        for chunk in encode_in_chunks(texts, encoder, config.threads or os.cpu_count() or 1, limit):
            writer.add(chunk)
            bar.update(len(chunk.ids))
    if writer.documents == 0:
        raise ValueError(f"{config.source} gave no documents; give a source with at least one")
    writer.finish()


class _Writer:
    """Puts chunks into shards, and knows where a call that was killed goes on.

    Attributes:
        manifest: what is in the folder.
        documents: how many were read, those of earlier calls included.
        offset: tokens of the next document that an earlier call has written.
    """

    def __init__(self, folder: Path, manifest: Manifest):
        self.folder, self.manifest, self.documents = folder, manifest, 0
        self.offset = manifest.shards[-1]["offset"] if manifest.shards else 0
        self._read = hashlib.sha256()  # over the digests of the documents that were read
        self._ids = np.empty(manifest.settings.shard_tokens, DTYPE)
        self._start_shard()

    def _start_shard(self) -> None:
        self._filled, self._held_out = 0, []

    def skip(self, texts: Iterator[str], source: str) -> Iterator[str]:
        """Pass over the documents that the folder has, and return those that follow.

        Raises ValueError if they are not those that were read for it.
        """
        for text in islice(texts, self.manifest.documents):
            self._read.update(text_digest(text))
            self.documents += 1
        cut = [*islice(texts, 1 if self.offset else 0)]  # its beginning is in the folder
        if self.manifest.shards:
            found = self._read.copy()
            found.update(b"".join(map(text_digest, cut)))
            if found.hexdigest() != self.manifest.shards[-1]["texts_sha256"]:
                raise ValueError(f"{source} has changed: its first {self.manifest.documents + len(cut):,} documents "
                                 f"are not those that {self.folder} was made from; give another folder")
        return chain(cut, texts)

    def add(self, chunk: Chunk) -> None:
        """Take the next documents, but for the first `offset` tokens, and write each shard that is full."""
        at, self.offset, held_out = self.offset, 0, np.flatnonzero(chunk.held_out)
        while at < len(chunk.ids):
            stop = min(len(chunk.ids), at + len(self._ids) - self._filled)
            shift = self._filled - at
            self._ids[self._filled:stop + shift] = chunk.ids[at:stop]
            for i in held_out:
                start, end = max(int(chunk.ends[i]), at), min(int(chunk.ends[i + 1]), stop)
                if start < end:
                    self._hold_out(start + shift, end + shift)
            self._filled, at = stop + shift, stop
            if self._filled == len(self._ids):
                whole = int(np.searchsorted(chunk.ends, at, side="right")) - 1
                self._write_shard(chunk.digests[:whole], chunk.digests[whole:], at - int(chunk.ends[whole]))
        self.documents += len(chunk)
        self._read.update(b"".join(chunk.digests))

    def finish(self) -> None:
        """Write the last shard, and that the folder is complete."""
        if self._filled:
            self._write_shard([], [], 0)
        self.manifest = replace(self.manifest, complete=True)
        self.manifest.save(self.folder)

    def _hold_out(self, start: int, end: int) -> None:
        """Mark tokens of the shard, as one range with those before them if these are held out too."""
        if self._held_out and self._held_out[-1][1] == start:
            start = self._held_out.pop()[0]
        self._held_out.append((start, end))

    def _write_shard(self, whole: list[bytes], later: list[bytes], offset: int) -> None:
        """Write the shard, then the manifest that lists it.

        Args:
            whole: digests of the documents of this chunk that end in the shard.
            later: of those behind them, of the first of which the shard has the first `offset` tokens.
        """
        read = self._read.copy()
        read.update(b"".join(whole + later[:1 if offset else 0]))
        ids, manifest = self._ids[:self._filled], self.manifest
        entry = {"name": shard_name(len(manifest.shards)), "tokens": len(ids),
                 "documents": self.documents + len(whole), "offset": offset, "sha256": hashlib.sha256(ids).hexdigest(),
                 "held_out": ranges_text(self._held_out), "texts_sha256": read.hexdigest()}
        with writing(self.folder / entry["name"]) as partial:
            partial.write_bytes(ids)
        self.manifest = replace(manifest, documents=entry["documents"], tokens=manifest.tokens + len(ids),
                                shards=(*manifest.shards, entry))
        self.manifest.save(self.folder)
        self._start_shard()


def _settings(config: TokenizeConfig, encoder: Tokenizer, stored: Manifest | None) -> ShardSettings:
    """Return the settings of a call; what only the source could say comes from a folder that has been made of it."""
    source, path, revision = config.source, Path(config.source), None
    if source in SOURCES:
        name, digest = f"documentation of Python {DOCUMENTED}" if source == "embedded" else source, None
        if source == "fineweb":
            revision = stored.settings.revision if stored else fineweb_revision()
    elif stored and stored.complete and not path.exists() and path.name == stored.settings.source:
        name, digest = stored.settings.source, stored.settings.source_sha256
    else:  # a file that was moved is the same source, and one that was changed is not
        hashes = [file["sha256"] for file in fingerprint(source)]
        name, digest = path.name, hashes[0] if path.is_file() else hashlib.sha256(" ".join(hashes).encode()).hexdigest()
    return ShardSettings(source=name, source_sha256=digest, revision=revision, tokenizer=encoder.name,
                         tokenizer_sha256=tokenizer_sha256(encoder), vocab_size=encoder.vocab_size,
                         end_of_text=encoder.end_of_text, shard_tokens=config.shard_tokens,
                         limit_documents=config.limit_documents, limit_tokens=config.limit_tokens)


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
