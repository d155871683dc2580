"""Tokens on disk: a corpus too large for memory is a folder of shards, which `write_shards.tokenize` writes.

    Manifest.load(folder)        what it holds
    verify(folder)               every byte against the manifest
    ShardedTokens(folder)        all shards as one memory-mapped sequence of tokens, for `data.Batches`

Glossary.  Shard: little-endian uint16 ids, `shard_00000.bin`, ..., each of `shard_tokens` tokens but for the last.
Manifest: `manifest.json`, what the shards were made from and, for each, its hash and where the next goes on.  Document:
a text and the end-of-text id after it.  Offset: tokens of the next document that are already written.
"""

import hashlib
import json
from copy import copy
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from ..files import file_sha256, writing

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
    shards: tuple[dict, ...] = ()  # of each: name, tokens, documents (whole up to its end), offset, sha256
    dtype: str = DTYPE.str

    @property
    def digest(self) -> str:
        """SHA-256 over all fields, the hashes of the shards among them; the file holds it too."""
        return hashlib.sha256(json.dumps(self._flat(), sort_keys=True).encode()).hexdigest()

    def save(self, folder: Path) -> None:
        """Write `manifest.json` atomically."""
        text = json.dumps(self._flat() | {"digest": self.digest}, indent=1)
        with writing(folder / MANIFEST) as partial:
            partial.write_text(f"{text}\n")

    def _flat(self) -> dict:
        """Return what the file holds: the settings and the rest, side by side."""
        rest = asdict(self)
        return rest.pop("settings") | rest

    @classmethod
    def load(cls, folder: str | Path) -> "Manifest":
        """Read a folder's manifest.  FileNotFoundError: there is none; ValueError: it is no manifest, or was edited."""
        path = Path(folder) / MANIFEST
        if not path.is_file():
            raise FileNotFoundError(f"no {path}; make the folder with python -m caracal_min tokenize")
        try:
            stored = json.loads(path.read_bytes())
            digest = stored.pop("digest")
            settings = ShardSettings(**{field.name: stored.pop(field.name) for field in fields(ShardSettings)})
            manifest = cls(settings, **stored | {"shards": tuple(stored["shards"])})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} is not a readable manifest of shards ({error}); {_MEND}") from None
        if digest != manifest.digest:
            raise ValueError(f"{path} was edited, it does not match its own digest; {_MEND}")
        return manifest


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
    """All shards of a finished folder as one sequence, memory-mapped: only what is read is loaded.

    `tokens[a:b]` is int64 `[b - a]`, clipped like a slice of an array, so `data.sequential_windows` takes it too.
    `manifest` says what they hold.  Sizes are checked at once, with `check_hashes` everything; raises as `verify`.
    """

    def __init__(self, folder: str | Path, check_hashes: bool = False):
        self.folder = Path(folder)
        if check_hashes:
            verify(self.folder)
        self.manifest = check_sizes(self.folder)
        self._length = self.manifest.tokens
        self._shards = [np.memmap(self.folder / s["name"], DTYPE, "r") for s in self.manifest.shards]

    def __len__(self) -> int:
        return self._length

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
        """Return `count` tokens from `start` on, int64 `[count]`.  IndexError: some lie outside the folder."""
        if start < 0 or count < 0 or start + count > len(self):
            raise IndexError(f"start={start}, count={count} leaves the {len(self):,} tokens of {self.folder}")
        size, stop = self.manifest.settings.shard_tokens, start + count
        shards = range(start // size, -(-stop // size))  # those that hold a part of it
        parts = [self._shards[i][max(0, start - i * size):stop - i * size] for i in shards]
        return np.concatenate([np.empty(0, np.int64), *parts])
