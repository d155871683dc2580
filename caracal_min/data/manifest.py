"""What a folder of shards holds, and what it was made from: `manifest.json`.

The file holds the hash of what is in it, so an accident to it is found; and it names no file outside of its folder.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..files import writing
from .chunks import DTYPE
from .split import RULE

__all__ = ["MANIFEST", "MEND", "Manifest", "ShardSettings", "is_complete", "ranges", "ranges_text", "shard_name"]

MANIFEST = "manifest.json"
"""Name of the file that lists the shards."""
MEND = "restore it, or delete the folder and run tokenize again"
"""What to do about a damaged folder."""


@dataclass(frozen=True)
class ShardSettings:
    """What shards are made from, and how: a call with equal settings goes on with a folder, another is refused."""

    source: str
    """Name of the source, without its folder."""
    source_sha256: str | None
    """Hash of its files; None: it is no file."""
    revision: str | None
    """Commit of the repository on the hub that it is read from; None: it is on this machine."""
    tokenizer: str
    """Name of the tokenizer."""
    tokenizer_sha256: str
    """Hash of its `tokenizer.json`."""
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
    rule: str = RULE
    """By which rule documents are held out."""

    def require(self, wanted: "ShardSettings", folder: Path) -> None:
        """Raise ValueError, naming the first setting of the folder that is not as wanted.

        Where there is a hash it decides, and not the name: a file that was moved is the same, a changed one is not.
        """
        for name in vars(self):
            (old, made_with), (new, given) = self._identity(name), wanted._identity(name)
            if old != new:
                raise ValueError(f"{folder} was made with {name}={made_with}, now it is {given}; give the same, or "
                                 "another folder")

    def _identity(self, name: str) -> tuple[Any, str]:
        """Return what decides whether a setting is the same, and how it is shown."""
        value, sha256 = vars(self)[name], vars(self).get(f"{name}_sha256")
        return sha256 or value, repr(value) + (f" (sha256 {sha256[:8]}...)" if sha256 else "")


@dataclass(frozen=True)
class Manifest:
    """What a folder of shards holds; equal manifests mean equal tokens."""

    settings: ShardSettings
    complete: bool = False
    documents: int = 0
    tokens: int = 0
    shards: tuple[dict, ...] = ()
    """Of each: name, tokens, documents (whole ones up to its end), offset, sha256, held_out (ranges of its tokens), and
    texts_sha256, over the `split.text_digest` of each document up to its end, that which goes on behind it included."""
    dtype: str = DTYPE.str

    @property
    def digest(self) -> str:
        """SHA-256 over all fields; the file holds it too."""
        return _sealed(self._flat())

    @property
    def content(self) -> str:
        """SHA-256 over the tokens and what is held out of them, wherever they came from."""
        return _sealed({"shards": [[shard["sha256"], shard["held_out"]] for shard in self.shards]})

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
        """Read a folder's manifest.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it is no manifest, was edited, or its fields contradict each other.
        """
        path = Path(folder) / MANIFEST
        if not path.is_file():
            raise FileNotFoundError(f"no {path}; make the folder with python -m caracal_min tokenize")
        try:
            stored = json.loads(path.read_bytes())
            if stored.pop("digest") != _sealed(stored):
                raise ValueError("it was edited: it does not match its own digest")
            settings = ShardSettings(**{field.name: stored.pop(field.name) for field in fields(ShardSettings)})
            manifest = cls(settings, **stored | {"shards": tuple(stored["shards"])})
            manifest._require_consistent()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} is not a readable manifest of shards ({error}); {MEND}") from None
        return manifest

    def _require_consistent(self) -> None:
        """Raise ValueError if fields contradict each other, or a name leads out of the folder."""
        size, last = self.settings.shard_tokens, len(self.shards) - 1
        if self.dtype != DTYPE.str or self.settings.rule != RULE:
            raise ValueError(f"dtype={self.dtype!r}, rule={self.settings.rule!r}")
        for i, shard in enumerate(self.shards):
            if shard["name"] != shard_name(i) or not 0 < shard["tokens"] <= size or shard["tokens"] < size and i < last:
                raise ValueError(f"shard {i} is {shard['name']} with {shard['tokens']} tokens")
            boundaries = [-1, *ranges(shard["held_out"]).ravel(), shard["tokens"] + 1]
            if (np.diff(boundaries) <= 0).any():
                raise ValueError(f"held_out of shard {i} is not in order, or leaves its {shard['tokens']} tokens")
        if self.tokens != sum(shard["tokens"] for shard in self.shards):
            raise ValueError(f"tokens={self.tokens}, and the shards have others")


def shard_name(i: int) -> str:
    """Return the name of shard i."""
    return f"shard_{i:05d}.bin"


def ranges_text(pairs: list[tuple[int, int]]) -> str:
    """Return ranges of tokens, each from a start to before an end, as a text: "3-20 71-80"."""
    return " ".join(f"{start}-{stop}" for start, stop in pairs)


def ranges(text: str) -> np.ndarray:
    """Return what `ranges_text` wrote, int64 `[n, 2]`."""
    return np.array(text.replace("-", " ").split(), np.int64).reshape(-1, 2)


def _sealed(flat: dict) -> str:
    return hashlib.sha256(json.dumps(flat, sort_keys=True).encode()).hexdigest()


def is_complete(folder: str | Path) -> bool:
    """Whether a folder holds shards that `tokenize` has completed.  Raises ValueError if its manifest is damaged."""
    return (Path(folder) / MANIFEST).is_file() and Manifest.load(folder).complete
