"""Tokens on disk: a corpus too large for memory becomes a folder of shards, and batches are read out of it.

    tokenize(source, out)        texts to shards: parallel over cores, can be killed and run again
    verify(folder)               every byte against the manifest
    ShardedTokens(folder)        all shards as one memory-mapped sequence of tokens
    ShardBatches(tokens, ...)    `data.Batches` for shards and for several processes

Glossary.  Shard: little-endian uint16 ids, `shard_00000.bin`, ..., each of `shard_tokens` tokens but for the last.
Manifest: `manifest.json`, what the shards were made from and, for each, its hash and where the next goes on.  Document:
a text and the end-of-text id after it.  Offset: tokens of the next document that are already written.  Window:
`context` + 1 consecutive tokens.  Rank: number of a process among `world_size` that train together.

Read next: `training`.
"""

import hashlib
import json
import os
import platform
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from .data import Batches, documents, make_tokenizer

__all__ = ["Manifest", "ShardBatches", "ShardedTokens", "tokenize", "verify"]

_FILE, _DTYPE = "manifest.json", np.dtype("<u2")
_coder = cache(make_tokenizer)  # one per worker
_MEND = "restore it, or delete the folder and run tokenize again"


@dataclass(frozen=True)
class Manifest:
    """What a folder of shards holds; equal manifests mean equal tokens."""

    source: str
    source_sha256: str | None
    tokenizer: str
    vocab_size: int
    end_of_text: int
    shard_tokens: int
    limit_documents: int | None
    complete: bool = False
    documents: int = 0
    tokens: int = 0
    shards: tuple[dict, ...] = ()  # of each: name, tokens, documents (whole up to its end), offset, sha256
    dtype: str = _DTYPE.str

    @property
    def digest(self) -> str:
        """SHA-256 over all fields, the hashes of the shards among them; the file holds it too."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def save(self, folder: Path) -> None:
        """Write `manifest.json` atomically."""
        _write(folder / _FILE, (json.dumps(asdict(self) | {"digest": self.digest}, indent=1) + "\n").encode())

    @classmethod
    def load(cls, folder: str | Path) -> "Manifest":
        """Read a folder's manifest.  FileNotFoundError: there is none; ValueError: it is no manifest, or was edited."""
        path = Path(folder) / _FILE
        if not path.is_file():
            raise FileNotFoundError(f"no {path}; make the folder with caracal_min.shards.tokenize")
        try:
            stored = json.loads(path.read_bytes())
            digest = stored.pop("digest")
            manifest = cls(**stored | {"shards": tuple(stored["shards"])})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} is not a readable manifest of shards ({error}); {_MEND}") from None
        if digest != manifest.digest:
            raise ValueError(f"{path} was edited, it does not match its own digest; {_MEND}")
        return manifest


def tokenize(source: str | Path, out: str | Path, tokenizer: str = "gpt2", shard_tokens: int = 100_000_000,
             workers: int | None = None, limit_documents: int | None = None, progress: bool = True) -> Manifest:
    """Write a source as shards into the folder `out` and return the manifest; after a kill, the same call goes on.

    Args:
        source, tokenizer: as in `load_corpus`: "fineweb", "embedded" or a file; "gpt2" or "byte".
        shard_tokens: tokens per shard, 2 bytes each; one shard is held in memory.
        workers: processes that encode; None takes one per core, 1 starts none.  The files do not depend on it.
            A script that uses more than one must call under `if __name__ == "__main__":`.
        limit_documents: stop after this many; None reads all.
        progress: show a bar of documents with tokens/s and, under `limit_documents`, the time left.

    Raises FileNotFoundError, ValueError, ImportError: as `load_corpus`; more than 65,536 ids; a number below 1; a
    damaged folder, or one made with other settings.
    """
    folder, source = Path(out), str(source)
    for name, value in (("shard_tokens", shard_tokens), ("workers", workers), ("limit_documents", limit_documents)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}; give a number >= 1")
    coder = make_tokenizer(tokenizer)
    if coder.vocab_size > 65_536:
        raise ValueError(f"tokenizer {coder.name!r} has {coder.vocab_size:,} ids; a shard holds uint16, 65,536 at most")
    wanted = (*_identity(source), coder.name, coder.vocab_size, coder.end_of_text, shard_tokens, limit_documents)
    manifest = _check_sizes(folder, finished=False) if (folder / _FILE).exists() else Manifest(*wanted)
    for (name, old), value in zip(vars(manifest).items(), wanted, strict=False):  # settings are its first fields
        if old != value:
            raise ValueError(f"{folder} was made with {name}={old!r}, now it is {value!r}; give another folder")
    if manifest.complete:
        print(f"{folder} is complete, {manifest.documents:,} documents, {manifest.tokens:,} tokens: nothing to do")
        return manifest
    texts = islice(documents(source), limit_documents)
    before = sum(1 for _ in islice(texts, manifest.documents))
    if before < manifest.documents:
        raise ValueError(f"{source} has {before} documents, {folder} already {manifest.documents}; give another folder")
    at = manifest.shards[-1]["offset"] if manifest.shards else 0
    buffer, filled, earlier = np.empty(shard_tokens, _DTYPE), 0, manifest.tokens
    with tqdm(total=limit_documents, initial=before, unit="doc", unit_scale=True,
              desc=f"tokenizing {source}", disable=not progress) as bar:
        for ids, lengths in _encoded(texts, tokenizer, workers or os.cpu_count() or 1):
            ends = np.cumsum([0, *lengths])
            while at < len(ids):
                piece = ids[at:at + shard_tokens - filled]
                buffer[filled:filled + len(piece)] = piece
                at, filled = at + len(piece), filled + len(piece)
                if filled == shard_tokens:
                    whole = int(np.searchsorted(ends, at, side="right")) - 1
                    manifest, filled = _add(folder, manifest, buffer, before + whole, at - int(ends[whole])), 0
            before, at = before + len(lengths), 0
            bar.update(len(lengths))
            rate = (manifest.tokens + filled - earlier) / (bar.format_dict["elapsed"] or 1)
            bar.set_postfix_str(f"{tqdm.format_sizeof(rate)} tokens/s", refresh=False)
    if before == 0:
        raise ValueError(f"{source} gave no documents; give a source with at least one")
    if filled:
        manifest = _add(folder, manifest, buffer[:filled], before, 0)
    manifest = replace(manifest, complete=True)
    manifest.save(folder)
    return manifest


def verify(folder: str | Path) -> None:
    """Compare every byte of a folder with its manifest; return if all is well.

    Raises FileNotFoundError or ValueError, naming the file that is missing, unfinished, edited, damaged or foreign.
    """
    hashes = {shard["name"]: shard["sha256"] for shard in _check_sizes(Path(folder)).shards}
    for path in sorted(Path(folder).iterdir()):
        if path.name in hashes and _sha256(path) != hashes[path.name]:
            raise ValueError(f"{path} has another hash than the manifest says; {_MEND}")
        if path.name not in hashes and path.name != _FILE:
            raise ValueError(f"{path} is not listed in the manifest; move it elsewhere")


class ShardedTokens:
    """All shards of a finished folder as one sequence, memory-mapped: only what is read is loaded.

    `tokens[a:b]` is int64 `[b - a]`, clipped like a slice of an array, so `data.sequential_windows` takes it too.
    `manifest` says what they hold.  Sizes are checked at once, with `check_hashes` everything; raises as `verify`.
    """

    def __init__(self, folder: str | Path, check_hashes: bool = False):
        self.folder = Path(folder)
        if check_hashes:
            verify(self.folder)
        self.manifest = _check_sizes(self.folder)
        self._shards = [np.memmap(self.folder / s["name"], _DTYPE, "r") for s in self.manifest.shards]

    def __len__(self) -> int:
        return self.manifest.tokens

    def __getitem__(self, where: slice) -> np.ndarray:
        start, stop, step = where.indices(len(self))
        if step != 1:
            raise ValueError(f"a slice with step {step}; only consecutive tokens can be read")
        return self.read(start, max(0, stop - start))

    def read(self, start: int, count: int) -> np.ndarray:
        """Return `count` tokens from `start` on, int64 `[count]`.  IndexError: some lie outside the folder."""
        if start < 0 or count < 0 or start + count > len(self):
            raise IndexError(f"start={start}, count={count} leaves the {len(self):,} tokens of {self.folder}")
        size, stop = self.manifest.shard_tokens, start + count
        shards = range(start // size, -(-stop // size))  # those that hold a part of it
        parts = [self._shards[i][max(0, start - i * size):stop - i * size] for i in shards]
        return np.concatenate([np.empty(0, np.int64), *parts])


class ShardBatches(Batches):
    """`Batches` over shards, shared by several processes: `batch(i)`, or `batches[i]`, depends on nothing but i.

    The order is that of `Batches`, so moving from memory to shards changes no batch.  The permutation of an epoch is
    numpy's, in 4 bytes a window: 10B tokens at context 512 are 19.5M windows, 78 MB, drawn once per epoch.  Process
    `rank` of `world_size` takes rows rank * batch_size and on of what one process would read with all their rows.
    `tokens` is a folder, a `ShardedTokens` or an array of ids.  Arguments and errors are otherwise those of `Batches`.
    """

    def __init__(self, tokens: str | Path | ShardedTokens | np.ndarray, context: int, batch_size: int, seed: int = 0,
                 rank: int = 0, world_size: int = 1):
        if not 0 <= rank < world_size:
            raise ValueError(f"rank={rank}, world_size={world_size}; give a rank from 0 to world_size - 1")
        super().__init__(ShardedTokens(tokens) if isinstance(tokens, str | Path) else tokens, context,
                         batch_size * world_size, seed)
        self.batch_size, self.rank, self.world_size = batch_size, rank, world_size

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets of step 0, 1, ... for this rank: int64 `[B, L]` each."""
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            draw = np.random.default_rng([self.seed, epoch])
            self._epoch, self._offset = epoch, int(draw.integers(self.context))
            self._order = np.arange(self.windows, dtype=np.min_scalar_type(self.windows))
            draw.shuffle(self._order)
        first = (place * self.world_size + self.rank) * self.batch_size
        starts = self._offset + self.context * self._order[first:first + self.batch_size].astype(np.int64)
        rows = torch.from_numpy(np.stack([self.tokens[s:s + self.context + 1] for s in starts]).astype(np.int64))
        return rows[:, :-1], rows[:, 1:]
    __getitem__ = batch


def _write(path: Path, data: bytes | np.ndarray) -> None:
    """Write a file under a temporary name, bring it to the disk, name it: a kill leaves the old file or the new."""
    partial = path.with_name(path.name + ".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def _add(folder: Path, manifest: Manifest, ids: np.ndarray, whole: int, offset: int) -> Manifest:
    """Write one more shard, then the manifest that lists it."""
    shard = {"name": f"shard_{len(manifest.shards):05d}.bin", "tokens": len(ids), "documents": whole, "offset": offset,
             "sha256": hashlib.sha256(ids).hexdigest()}
    _write(folder / shard["name"], ids)
    manifest = replace(manifest, documents=whole, tokens=manifest.tokens + len(ids), shards=(*manifest.shards, shard))
    manifest.save(folder)
    return manifest


def _check_sizes(folder: Path, finished: bool = True) -> Manifest:
    manifest = Manifest.load(folder)
    if finished and not manifest.complete:
        raise ValueError(f"{folder} is not finished; run the same tokenize call again, and it goes on")
    for shard in manifest.shards:
        path, size = folder / shard["name"], shard["tokens"] * _DTYPE.itemsize
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing; {_MEND}")
        if path.stat().st_size != size:
            raise ValueError(f"{path} has {path.stat().st_size:,} bytes, the manifest says {size:,}; {_MEND}")
    return manifest


def _sha256(path: Path) -> str:
    return hashlib.sha256(np.memmap(path, np.uint8, "r")).hexdigest()


def _identity(source: str) -> tuple[str, str | None]:
    """Return a name of the source and, for a file, its hash: a moved file is the same source, a changed one is not."""
    if source in ("fineweb", "embedded"):
        return source if source == "fineweb" else f"documentation of Python {platform.python_version()}", None
    if not Path(source).is_file():
        next(documents(source))  # says what is wrong with it
    if not Path(source).stat().st_size:
        raise ValueError(f"{source} is empty; give a file with at least one document")
    return Path(source).name, _sha256(Path(source))


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
    coder = _coder(tokenizer)
    rows = [[*coder.encode(text), coder.end_of_text] for text in texts]
    lengths = np.array([len(row) for row in rows])
    return np.fromiter(chain.from_iterable(rows), _DTYPE, int(lengths.sum())), lengths


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it even when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=lambda: (parent_process().join(), os._exit(1)), daemon=True).start()
