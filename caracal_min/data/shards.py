"""Tokens on disk: a corpus too large for memory is a folder of shards, which `write_shards.tokenize` writes.

    Manifest.load(folder)              what it holds
    verify(folder)                     every byte against the manifest
    ShardedTokens(folder, "train")     a part of it as one memory-mapped sequence of tokens, for `data.Batches`

Glossary.  Shard: little-endian uint16 ids, `shard_00000.bin`, ..., each of `shard_tokens` tokens but for the last.
Manifest: `manifest.json`, what the shards were made from and, for each, its hash, what of it is held out and where the
next goes on.  Document: a text and the end-of-text id after it.  Offset: tokens of the next document that are already
written.
"""

import hashlib
import json
from copy import copy
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from ..files import file_sha256, writing
from .manifest_form import form_fault, ranges
from .split import ALL, HELD_OUT, TRAIN

__all__ = ["DTYPE", "MANIFEST", "Manifest", "ShardSettings", "ShardedTokens", "check_sizes", "verify"]

MANIFEST, DTYPE = "manifest.json", np.dtype("<u2")
"""Name of the file that lists the shards; what they hold."""
_MEND = "restore it, or delete the folder and run tokenize again"


@dataclass(frozen=True)
class ShardSettings:
    """What shards are made from, and how: a call with equal settings goes on with a folder, another is refused."""

    source: str
    """Name of the source, without its folder."""
    source_sha256: str | None
    """Hash of its files; None: it is no file."""
    tokenizer: str
    """Name of the tokenizer."""
    vocab_size: int
    """Number of its ids."""
    end_of_text: int
    """Its id after each document."""
    shard_tokens: int
    """Tokens per shard."""
    limit_documents: int | None
    """Most documents that are read."""
    limit_tokens: int | None
    """Tokens after whose document reading stops."""
    rule: str | None = None
    """By which rule documents are held out (`split.RULE`); None: an earlier version made them and marked none."""

    def require(self, wanted: "ShardSettings", folder: Path) -> None:
        """Raise ValueError, naming the first setting of the folder that is not as wanted."""
        for name, old in vars(self).items():
            if old != getattr(wanted, name):
                raise ValueError(f"{folder} was made with {name}={old!r}, now it is {getattr(wanted, name)!r}; "
                                 "give another folder")


@dataclass(frozen=True)
class Manifest:
    """What a folder of shards holds; equal manifests mean equal tokens."""

    settings: ShardSettings
    complete: bool = False
    documents: int = 0
    tokens: int = 0
    shards: tuple[dict, ...] = ()  # of each: name, tokens, documents (whole up to its end), offset, sha256, held_out
    dtype: str = DTYPE.str

    @property
    def digest(self) -> str:
        """SHA-256 over all fields, the hashes of the shards among them; the file holds it too."""
        return _sealed(self._flat())

    def save(self, folder: Path) -> None:
        """Write `manifest.json` atomically."""
        text = json.dumps(self._flat() | {"digest": self.digest}, indent=1)
        with writing(folder / MANIFEST) as partial:
            partial.write_text(f"{text}\n")

    def _flat(self) -> dict:
        """Return what the file holds: the settings and the rest, side by side; of earlier versions without a rule."""
        rest = asdict(self)
        settings = rest.pop("settings")
        if self.settings.rule is None:
            del settings["rule"]
        return settings | rest

    @classmethod
    def load(cls, folder: str | Path) -> "Manifest":
        """Read a folder's manifest.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it is no manifest, was edited, or says what cannot be (`manifest_form.form_fault`).
        """
        path = Path(folder) / MANIFEST
        if not path.is_file():
            raise FileNotFoundError(f"no {path}; make the folder with python -m caracal_min tokenize")
        try:
            stored = json.loads(path.read_bytes())
            digest, sealed = stored.pop("digest"), _sealed(stored)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} is not a readable manifest of shards ({error}); {_MEND}") from None
        if digest != sealed:
            raise ValueError(f"{path} was edited, it does not match its own digest; {_MEND}")
        if wrong := form_fault(stored):
            raise ValueError(f"{path} is not a readable manifest of shards ({wrong}); {_MEND}")
        known = {field.name for field in fields(ShardSettings)} & stored.keys()
        settings = ShardSettings(**{name: stored.pop(name) for name in known})
        return cls(settings, **stored | {"shards": tuple(stored["shards"])})


def _sealed(flat: dict) -> str:
    return hashlib.sha256(json.dumps(flat, sort_keys=True).encode()).hexdigest()


def verify(folder: str | Path) -> None:
    """Compare every byte of a folder with its manifest; return if all is well.

    Raises FileNotFoundError or ValueError, naming the file that is missing, unfinished, edited, damaged or foreign.
    """
    hashes = {shard["name"]: shard["sha256"] for shard in check_sizes(Path(folder)).shards}
    for path in sorted(Path(folder).iterdir()):
        if path.name in hashes and file_sha256(path) != hashes[path.name]:
            raise ValueError(f"{path} has another hash than the manifest says; {_MEND}")
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
            raise FileNotFoundError(f"{path} is missing; {_MEND}")
        if path.stat().st_size != size:
            raise ValueError(f"{path} has {path.stat().st_size:,} bytes, the manifest says {size:,}; {_MEND}")
    return manifest


class ShardedTokens:
    """A part of a finished folder as one sequence, memory-mapped: only what is read is loaded.

    `tokens[a:b]` is int64 `[b - a]`, clipped like a slice of an array, so `data.sequential_windows` takes it too.
    Sizes are checked at once.  The bytes of a shard are checked against their hash when one of them is read for the
    first time in this process; with `check_hashes` all of them are at once.

    Args:
        folder: of the shards.
        part: "train" or "held_out", whose documents follow each other as if the others were not there; or "all".

    Attributes:
        manifest: what the folder holds.

    Raises:
        FileNotFoundError, ValueError: as `verify`; or a part of a folder whose documents have no mark.
    """

    def __init__(self, folder: str | Path, part: str = ALL, check_hashes: bool = False):
        if part not in (TRAIN, HELD_OUT, ALL):
            raise ValueError(f"part={part!r}; accepted: {TRAIN}, {HELD_OUT}, {ALL}")
        self.folder = Path(folder)
        if check_hashes:
            verify(self.folder)
        self.manifest, self.part = check_sizes(self.folder), part
        if part != ALL and self.manifest.settings.rule is None:
            raise ValueError(f"{folder} does not say which of its documents are held out, an earlier version made it; "
                             "tokenize again into another folder")
        self._shards = [np.memmap(self.folder / s["name"], DTYPE, "r") for s in self.manifest.shards]
        self._starts, stops = _stretches(self.manifest, part)
        self._ends = np.cumsum(stops - self._starts)  # of each stretch, in tokens of the part
        self._length = int(self._ends[-1]) if len(self._ends) else 0
        self._seen: set[int] = set()  # shards whose bytes were looked at; copies share it

    def __len__(self) -> int:
        return self._length

    @property
    def digest(self) -> str:
        """A text that two sequences share only if they are the same tokens."""
        return f"{self.manifest.digest} {len(self)}" + ("" if self.part == ALL else f" {self.part}")

    def head(self, count: int) -> "ShardedTokens":
        """Return the first `count` tokens as a sequence of the same kind."""
        if not 0 <= count <= len(self):
            raise IndexError(f"count={count}; {self.folder} has {len(self):,} tokens")
        part = copy(self)
        part._length = count
        return part

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
        parts, stop = [np.empty(0, np.int64)], start + count
        stretch = int(np.searchsorted(self._ends, start, side="right"))
        while start < stop:
            end = int(self._ends[stretch])
            before = int(self._ends[stretch - 1]) if stretch else 0
            parts += self._stored(int(self._starts[stretch]) + start - before, min(end, stop) - start)
            start, stretch = min(end, stop), stretch + 1
        return np.concatenate(parts)

    def _stored(self, start: int, count: int) -> list[np.ndarray]:
        """Return tokens of the whole folder, in the pieces that its shards cut them into."""
        size, stop = self.manifest.settings.shard_tokens, start + count
        return [self._checked(i)[max(0, start - i * size):stop - i * size]
                for i in range(start // size, -(-stop // size))]

    def _checked(self, i: int) -> np.memmap:
        """Return a shard; the first time in this process, after a look at every byte of it."""
        if i not in self._seen:
            stored = self.manifest.shards[i]
            _require_hash(self.folder / stored["name"], stored["sha256"], self._shards[i])
            self._seen.add(i)
        return self._shards[i]


def _stretches(manifest: Manifest, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Return where the stretches of a part begin and end, int64 each, in tokens of the whole folder."""
    whole = np.array([[0, manifest.tokens]])
    if part != ALL:
        size = manifest.settings.shard_tokens
        held = [ranges(shard["held_out"]) + i * size for i, shard in enumerate(manifest.shards)]
        borders = np.concatenate([np.empty(0, np.int64), *(pairs.ravel() for pairs in held)])
        whole = borders.reshape(-1, 2) if part == HELD_OUT else np.array([0, *borders, manifest.tokens]).reshape(-1, 2)
    whole = whole[whole[:, 0] < whole[:, 1]]
    return whole[:, 0], whole[:, 1]


_whole: set[tuple] = set()  # the files that this process has found to be as their manifests say


def _require_hash(path: Path, sha256: str, content: np.ndarray) -> None:
    """Raise ValueError unless a shard has this hash; a file is read for it once, until it is written again."""
    stat = path.stat()
    known = (path.resolve(), stat.st_ino, stat.st_size, stat.st_mtime_ns, sha256)
    if known not in _whole:
        if hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError(f"{path} has another hash than the manifest says; {_MEND}")
        _whole.add(known)
