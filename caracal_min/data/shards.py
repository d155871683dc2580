"""A corpus too large for memory, tokenized once into a folder and memory-mapped from there::

    train.bin, held_out.bin    the ids of both splits, without a header
    shards.json                what they were made from, how many they are, and their hash

The index is written after the ids that it counts, so a kill loses the last documents alone.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from ..files import writing
from ..tokenizer import Tokenizer, make_tokenizer, tokenizer_sha256
from .sources import ALL, FINEWEB_REVISION, HELD_OUT, RULE, TRAIN, documents, is_held_out

__all__ = ["INDEX", "encode", "id_type", "is_shards", "open_shards", "sha256_of", "tokenize"]

INDEX = "shards.json"
"""The file that makes a folder one of shards."""
BATCH = 256  # documents encoded at once
SAVED_EVERY = 1000  # documents, after which a kill loses nothing that came before


def id_type(tokenizer: Tokenizer) -> np.dtype:
    """Return the type of its ids, in memory and on disk: 2 bytes, or 4 if these are too few."""
    return np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")


def encode(
    texts: Iterable[str],
    tokenizer: Tokenizer,
    max_tokens: int | None = None,
    counted: str = TRAIN,
    title: str | bool = False,
) -> Iterator[tuple[bool, np.ndarray]]:
    """Yield of each document whether it is held out, and its ids with the end of text, `[T]`.

    Args:
        max_tokens: stop after the document that reaches this many tokens; None reads all.
        counted: the split whose tokens are counted: train, or all.
        title: of a progress bar, which a terminal or notebook shows and a log file does not;
            False: no bar.
    """
    # The package `tokenizers` shares a batch of documents among its threads.
    texts, dtype = iter(texts), id_type(tokenizer)
    left = inf if max_tokens is None else max_tokens
    hidden = None if title else True
    with tqdm(desc=title, total=max_tokens, disable=hidden, unit=" tokens", unit_scale=True) as bar:
        while left > 0 and (batch := list(islice(texts, BATCH))):
            for text, ids in zip(batch, tokenizer.encode_batch(batch), strict=True):
                held_out = is_held_out(text)
                yield held_out, np.array([*ids, tokenizer.end_of_text], dtype)
                # Held-out documents come on top: a budget limits what is trained on.
                if counted == ALL or not held_out:
                    left -= len(ids) + 1
                    bar.update(len(ids) + 1)
                if left <= 0:
                    break


def tokenize(
    source: str | Path,
    out: str | Path,
    tokenizer: str | Path | Tokenizer = "gpt2",
    limit_tokens: int | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Write a source as a folder of shards; after a kill, the same call goes on.

    Args:
        source: as `data.documents` takes it.
        out: the folder, made if absent.  One that is complete is left as it is.
        tokenizer: as `make_tokenizer` takes it.
        limit_tokens: stop after the document that reaches this many tokens to train on.
        progress: show a bar in a terminal or notebook.

    Returns:
        the content of `shards.json`: among others the numbers of `documents`, and of `train` and
        `held_out` tokens.

    Raises:
        ValueError: the folder was made from another source, or with another tokenizer.
        FileNotFoundError, ImportError: as `data.documents`.
    """
    folder, encoder = Path(out), make_tokenizer(tokenizer)
    made_from = {
        "source": Path(source).name,
        "revision": FINEWEB_REVISION if source == "fineweb" else None,
        "tokenizer": encoder.name,
        "tokenizer_sha256": tokenizer_sha256(encoder),
        "rule": RULE,
    }
    index = made_from | {"documents": 0, TRAIN: 0, HELD_OUT: 0, "complete": False}
    if is_shards(folder):  # begun or finished by an earlier call
        index = _read(folder, made_from)
    if index["complete"]:
        return index
    folder.mkdir(parents=True, exist_ok=True)
    files = {split: folder / f"{split}.bin" for split in (TRAIN, HELD_OUT)}
    for split, path in files.items():
        with open(path, "ab") as file:  # behind what the index counts lies what a kill left
            file.truncate(index[split] * id_type(encoder).itemsize)
    left = None if limit_tokens is None else limit_tokens - index[TRAIN]
    texts = islice(documents(source), index["documents"], None)
    encoded = encode(texts, encoder, left, title=progress and f"tokenizing {source}")
    # The index is written after the ids that it counts, so it never counts what a kill has lost.
    while part := list(islice(encoded, SAVED_EVERY)):
        for split, path in files.items():
            rows = [ids for held_out, ids in part if held_out == (split == HELD_OUT)]
            with open(path, "ab") as file:
                file.write(b"".join(rows))
            index[split] += sum(map(len, rows))
        index["documents"] += len(part)
        _write(folder, index)
    index["complete"] = True
    index["digest"] = sha256_of(*_mapped(folder, encoder))
    _write(folder, index)
    return index


def open_shards(folder: str | Path, tokenizer: Tokenizer) -> list[np.ndarray]:
    """Return the ids to train on, `[T]`, and the held-out ones, `[T']`, both memory-mapped.

    Raises ValueError if they are not complete, or were made with another tokenizer.
    """
    folder = Path(folder)
    index = _read(folder, {"tokenizer_sha256": tokenizer_sha256(tokenizer)})
    if not index["complete"]:
        raise ValueError(f"{folder} is not complete; the same call of tokenize goes on with it")
    return _mapped(folder, tokenizer)


def is_shards(source: str | Path) -> bool:
    """Whether a source is a folder that `tokenize` wrote."""
    return (Path(source) / INDEX).is_file()


def sha256_of(train: np.ndarray, held_out: np.ndarray) -> str:
    """Return a hash of two splits: the same ids, split alike, have the same one."""
    # The bytes are hashed where they lie, so that those of a mapped file pass through memory once.
    found = hashlib.sha256(np.ascontiguousarray(train))
    found.update(b"|")
    found.update(np.ascontiguousarray(held_out))
    return found.hexdigest()


def _read(folder: Path, made_from: dict[str, str]) -> dict[str, Any]:
    """Return the index of a folder; ValueError if it says that the ids were made otherwise."""
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    for name, value in made_from.items():
        if index[name] != value:
            raise ValueError(f"{folder} was made with {name}={index[name]!r}, and now it is "
                             f"{value!r}; give the same, or another folder")
    return index


def _write(folder: Path, index: dict[str, Any]) -> None:
    with writing(folder / INDEX) as partial:
        partial.write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def _mapped(folder: Path, tokenizer: Tokenizer) -> list[np.ndarray]:
    kind, found = id_type(tokenizer), []
    for split in (TRAIN, HELD_OUT):
        path = folder / f"{split}.bin"
        empty = not path.stat().st_size  # which cannot be mapped
        found.append(np.empty(0, kind) if empty else np.memmap(path, kind, "r"))
    return found
