"""The form of `manifest.json`: what each field may be, and that the fields agree with each other.

A file's digest says that nobody has changed it since it was written; its form says that what is written can be.  The
names of shards are those that `write_shards` gives, so none of them leads out of the folder.
"""

import re
from collections.abc import Mapping

import numpy as np

__all__ = ["form_fault", "ranges", "ranges_text", "shard_name"]

_SHA256 = (lambda v: isinstance(v, str) and re.fullmatch(r"[0-9a-f]{64}", v) is not None, "a SHA-256 in hexadecimal")
_TEXT = (lambda v: isinstance(v, str) and v != "", "a text")
_COUNT = (lambda v: type(v) is int and 0 <= v < 2**63, "a number >= 0")
_SIZE = (lambda v: type(v) is int and 1 <= v < 2**63, "a number >= 1")
_RANGES = re.compile(r"(\d{1,18}-\d{1,18}( \d{1,18}-\d{1,18})*)?")


def _or_null(kind: tuple) -> tuple:
    fits, words = kind
    return (lambda v: v is None or fits(v), f"{words}, or null")


_FOLDER = {"source": _TEXT, "source_sha256": _or_null(_SHA256), "tokenizer": _TEXT,
           "vocab_size": (lambda v: type(v) is int and 1 <= v <= 65_536, "a number from 1 to 65,536"),
           "end_of_text": _COUNT, "shard_tokens": _SIZE, "limit_documents": _or_null(_SIZE),
           "limit_tokens": _or_null(_SIZE), "complete": (lambda v: isinstance(v, bool), "true or false"),
           "documents": _COUNT, "tokens": _COUNT, "shards": (lambda v: isinstance(v, (list, tuple)), "a list"),
           "dtype": (lambda v: v == "<u2", "'<u2'")}
_SHARD = {"name": _TEXT, "tokens": _SIZE, "documents": _COUNT, "offset": _COUNT, "sha256": _SHA256}
_HELD_OUT = (lambda v: isinstance(v, str) and _RANGES.fullmatch(v) is not None, "ranges such as '3-20 71-80'")


def shard_name(i: int) -> str:
    """Return the name of shard i."""
    return f"shard_{i:05d}.bin"


def ranges(text: str) -> np.ndarray:
    """Return ranges of tokens, int64 `[n, 2]` of starts and of the places behind the last, from "3-20 71-80"."""
    return np.array(text.replace("-", " ").split(), np.int64).reshape(-1, 2)


def ranges_text(pairs: list[tuple[int, int]]) -> str:
    """Return ranges of tokens as a text."""
    return " ".join(f"{start}-{stop}" for start, stop in pairs)


def form_fault(manifest: Mapping) -> str | None:
    """Return, in some words, the first thing in a manifest that cannot be; None if all of it can."""
    marked = "rule" in manifest
    if fault := _fields(manifest, _FOLDER | ({"rule": _TEXT} if marked else {}), ""):
        return fault
    if manifest["end_of_text"] >= manifest["vocab_size"]:
        return f"end_of_text={manifest['end_of_text']}, of {manifest['vocab_size']} ids"
    documents = tokens = 0
    last = len(manifest["shards"]) - 1
    for i, shard in enumerate(manifest["shards"]):
        where = f"shards/{i}/"
        if not isinstance(shard, Mapping):
            return f"shards/{i} is no object"
        if fault := _fields(shard, _SHARD | ({"held_out": _HELD_OUT} if marked else {}), where):
            return fault
        if shard["name"] != shard_name(i):
            return f"{where}name={shard['name']!r}, accepted: {shard_name(i)!r}"
        if i < last and shard["tokens"] != manifest["shard_tokens"] or shard["tokens"] > manifest["shard_tokens"]:
            return f"{where}tokens={shard['tokens']}, of shards with {manifest['shard_tokens']}"
        if shard["documents"] < documents:
            return f"{where}documents={shard['documents']}, after {documents}"
        if marked:
            borders = ranges(shard["held_out"]).ravel()
            if len(borders) and not ((np.diff(borders) > 0).all() and borders[-1] <= shard["tokens"]):
                return f"{where}held_out is not in order, or leaves the {shard['tokens']} tokens of the shard"
        documents, tokens = shard["documents"], tokens + shard["tokens"]
    for name, found in (("documents", documents), ("tokens", tokens)):
        if manifest[name] != found:
            return f"{name}={manifest[name]}, the shards have {found}"
    return None


def _fields(given: Mapping, kinds: Mapping[str, tuple], where: str) -> str | None:
    """Return the first field that is missing, not known or not of its kind."""
    for name in kinds:
        if name not in given:
            return f"{where}{name} is missing"
    for name, value in given.items():
        if name not in kinds:
            return f"{where}{name} is not known"
        fits, words = kinds[name]
        if not fits(value):
            return f"{where}{name} is {str(value)[:60]!r}, accepted: {words}"
    return None
