"""Tokens on disk: a corpus too large for memory is a folder of shards, which `write_shards.tokenize` writes::

    verify(folder)                     every byte against the manifest
    ShardedTokens(folder, "train")     a split of it as one memory-mapped sequence of tokens, for `data.Batches`

Glossary.  Shard: little-endian uint16 ids, `shard_00000.bin`, ..., each of `shard_tokens` tokens but for the last.
Manifest: what the shards were made from and, for each, its hash, what of it is held out and where the next goes on
(`manifest.Manifest`).  Document: a text and the end-of-text id after it.  Offset: tokens of the next document that are
already written.
"""

import hashlib
from pathlib import Path

import numpy as np

from ..files import file_sha256
from .chunks import DTYPE
from .manifest import MANIFEST, MEND, Manifest, ranges
from .split import ALL, HELD_OUT, TRAIN

__all__ = ["ShardedTokens", "check_sizes", "verify"]

_whole: set[tuple] = set()  # the files that this process has found to be as their manifests say


def verify(folder: str | Path) -> None:
    """Compare every byte of a folder with its manifest; return if all is well.

    Raises FileNotFoundError or ValueError, naming the file that is missing, unfinished, edited, damaged or foreign.
    """
    hashes = {shard["name"]: shard["sha256"] for shard in check_sizes(Path(folder)).shards}
    for path in sorted(Path(folder).iterdir()):
        if path.name in hashes and file_sha256(path) != hashes[path.name]:
            raise ValueError(f"{path} has another hash than the manifest says; {MEND}")
        if path.name not in hashes and path.name != MANIFEST:
            raise ValueError(f"{path} is not listed in the manifest; move it elsewhere")


def check_sizes(folder: Path, finished: bool = True) -> Manifest:
    """Return the manifest of a folder whose shards are there with the right sizes; raises as `verify`.

    With `finished`, a folder that `tokenize` has not completed is an error too.
    """
    manifest = Manifest.load(folder)
    if finished and not manifest.complete:
        raise ValueError(f"{folder} is not finished; run the same tokenize call again, and it goes on")
    for shard in manifest.shards:
        path, size = folder / shard["name"], shard["tokens"] * DTYPE.itemsize
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing; {MEND}")
        if path.stat().st_size != size:
            raise ValueError(f"{path} has {path.stat().st_size:,} bytes, the manifest says {size:,}; {MEND}")
    return manifest


class ShardedTokens:
    """A split of a finished folder as one sequence, memory-mapped: only what is read is loaded.

    `tokens[a:b]` is int64 `[b - a]`, clipped like a slice of an array, so `data.sequential_windows` takes it too.
    Sizes are checked at once.  The bytes of a shard are checked against their hash when one of them is read for the
    first time in this process.  A pickle holds the path of the folder, not the tokens.

    Args:
        folder: of the shards.
        split: "train" or "held_out", whose documents follow each other as if the others were not there; or "all".

    Attributes:
        manifest: what the folder holds.

    Raises:
        FileNotFoundError, ValueError: as `verify`.
    """

    def __init__(self, folder: str | Path, split: str = ALL):
        if split not in (TRAIN, HELD_OUT, ALL):
            raise ValueError(f"split={split!r}; accepted: {TRAIN}, {HELD_OUT}, {ALL}")
        self.folder = Path(folder).absolute()  # a change of the working directory moves no shard
        self.manifest, self.split = check_sizes(self.folder), split
        self._shards = [np.memmap(self.folder / s["name"], DTYPE, "r") for s in self.manifest.shards]
        self._starts, stops = _intervals(self.manifest, split)
        self._ends = np.cumsum(stops - self._starts)  # of each interval, in tokens of the split
        self._length = int(self._ends[-1]) if len(self._ends) else 0
        self._seen: set[int] = set()  # shards whose bytes were checked; what `head` returns shares it

    def __reduce__(self) -> tuple:
        return _reopened, (str(self.folder), self.split, len(self), self.digest)

    def __len__(self) -> int:
        return self._length

    @property
    def digest(self) -> str:
        """A text that two sequences share only if they are the same tokens."""
        return f"{self.manifest.content} {len(self)}" + ("" if self.split == ALL else f" {self.split}")

    def head(self, count: int) -> "ShardedTokens":
        """Return the first `count` tokens as a sequence of the same kind."""
        if not 0 <= count <= len(self):
            raise IndexError(f"count={count}; {self.folder} has {len(self):,} tokens")
        first = object.__new__(ShardedTokens)
        vars(first).update(vars(self) | {"_length": count})
        return first

    def __getitem__(self, where: slice) -> np.ndarray:
        start, stop, step = where.indices(len(self))
        if step != 1:
            raise ValueError(f"a slice with step {step}; only consecutive tokens can be read")
        return self.read(start, max(0, stop - start))

    def read(self, start: int, count: int) -> np.ndarray:
        """Return `count` tokens from `start` on, int64 `[count]`.

        Raises:
            IndexError: some lie outside the folder.
            ValueError: a shard has another hash than the manifest says.
        """
        if start < 0 or count < 0 or start + count > len(self):
            raise IndexError(f"start={start}, count={count} leaves the {len(self):,} tokens of {self.folder}")
        found, stop = [np.empty(0, np.int64)], start + count
        i = int(np.searchsorted(self._ends, start, side="right"))
        while start < stop:
            end = int(self._ends[i])
            before = int(self._ends[i - 1]) if i else 0
            found += self._stored(int(self._starts[i]) + start - before, min(end, stop) - start)
            start, i = min(end, stop), i + 1
        return np.concatenate(found)

    def _stored(self, start: int, count: int) -> list[np.ndarray]:
        """Return tokens of the whole folder, an array for each shard that has some of them."""
        size, stop = self.manifest.settings.shard_tokens, start + count
        return [self._checked(i)[max(0, start - i * size):stop - i * size]
                for i in range(start // size, -(-stop // size))]

    def _checked(self, i: int) -> np.memmap:
        """Return a shard; the first time, after a check of its hash: once in a process, until it is written again."""
        if i not in self._seen:
            stored = self.manifest.shards[i]
            path, sha256 = self.folder / stored["name"], stored["sha256"]
            stat = path.stat()
            known = (path.resolve(), stat.st_ino, stat.st_size, stat.st_mtime_ns, sha256)
            if known not in _whole:
                if hashlib.sha256(self._shards[i]).hexdigest() != sha256:
                    raise ValueError(f"{path} has another hash than the manifest says; {MEND}")
                _whole.add(known)
            self._seen.add(i)
        return self._shards[i]


def _reopened(folder: str, split: str, length: int, digest: str) -> ShardedTokens:
    """Return what a pickle stands for.  Raises ValueError if the folder holds other tokens by now."""
    tokens = ShardedTokens(folder, split)
    if length > len(tokens) or (tokens := tokens.head(length)).digest != digest:
        raise ValueError(f"{folder} holds other tokens than when this was pickled; {MEND}")
    return tokens


def _intervals(manifest: Manifest, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return where the intervals of a split begin and end, int64 each, in tokens of the whole folder."""
    whole = np.array([[0, manifest.tokens]])
    if split != ALL:
        size = manifest.settings.shard_tokens
        held = [ranges(shard["held_out"]).ravel() + i * size for i, shard in enumerate(manifest.shards)]
        boundaries = np.concatenate([np.empty(0, np.int64), *held])
        ends = [] if split == HELD_OUT else [0, manifest.tokens]
        whole = np.array([*ends[:1], *boundaries, *ends[1:]], np.int64).reshape(-1, 2)
    whole = whole[whole[:, 0] < whole[:, 1]]
    return whole[:, 0], whole[:, 1]
