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
    # Little-endian everywhere, so that a folder can move to another machine.
    if tokenizer.vocab_size <= 1 << 16:
        return np.dtype("<u2")
    return np.dtype("<u4")


def encode(
        texts: Iterable[str], tokenizer: Tokenizer, max_tokens: int | None = None, counted: str =
        TRAIN, title: str | bool = False
) -> Iterator[tuple[bool, np.ndarray]]:
    """Yield of each document whether it is held out, and its ids with the end of text, `[T]`.

    Args:
        max_tokens: stop after the document that reaches this many tokens; None reads all.
        counted: the split whose tokens are counted: train, or all.
        title: of a progress bar, which a terminal or notebook shows and a log file does not;
            False: no bar.
    """
    texts = iter(texts)
    dtype = id_type(tokenizer)
    left = inf if max_tokens is None else max_tokens
    # For tqdm None means: a bar in a terminal, none in a log file.
    hidden = None if title else True
    with tqdm(desc=title, total=max_tokens, disable=hidden, unit=" tokens", unit_scale=True) as bar:
        # The package `tokenizers` shares a batch of documents among its threads.
        while left > 0 and (batch := list(islice(texts, BATCH))):
            encoded = tokenizer.encode_batch(batch)
            for text, ids in zip(batch, encoded, strict=True):
                ids = np.array([*ids, tokenizer.end_of_text], dtype)
                held_out = is_held_out(text)
                yield held_out, ids
                # Held-out documents come on top: a budget limits what is trained on.
                if counted == ALL or not held_out:
                    left -= len(ids)
                    bar.update(len(ids))
                if left <= 0:
                    break


def tokenize(
        source: str | Path, out: str | Path, tokenizer: str | Path | Tokenizer = "gpt2",
        limit_tokens: int | None = None, progress: bool = True
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
    folder = Path(out)
    encoder = make_tokenizer(tokenizer)
    # The name of the source without its folder, so that the data can move between machines.
    made_from = {
        "source": Path(source).name,
        "revision": FINEWEB_REVISION if source == "fineweb" else None,
        "tokenizer": encoder.name,
        "tokenizer_sha256": tokenizer_sha256(encoder),
        "rule": RULE,
    }
    # Of a text that changed, the old ids would be read; a complete folder outlives its source.
    if Path(source).is_file():
        made_from["source_bytes"] = Path(source).stat().st_size
    index = {**made_from, "documents": 0, TRAIN: 0, HELD_OUT: 0, "complete": False}
    if is_shards(folder):  # begun or finished by an earlier call
        index = _read(folder, made_from)
    if index["complete"]:
        return index
    folder.mkdir(parents=True, exist_ok=True)
    files = {split: folder / f"{split}.bin" for split in (TRAIN, HELD_OUT)}
    # A kill may have left ids that the index does not count: those documents are read again.
    for split, path in files.items():
        with open(path, "ab") as file:
            file.truncate(index[split] * id_type(encoder).itemsize)
    left = None
    if limit_tokens is not None:
        left = limit_tokens - index[TRAIN]
    texts = islice(documents(source), index["documents"], None)
    title = progress and f"tokenizing {source}"
    encoded = encode(texts, encoder, left, title=title)
    while part := list(islice(encoded, SAVED_EVERY)):
        for split, path in files.items():
            rows = [ids for held_out, ids in part if held_out == (split == HELD_OUT)]
            with open(path, "ab") as file:
                file.write(b"".join(rows))
            index[split] += sum(map(len, rows))
        index["documents"] += len(part)
        _write(folder, index)
    # By this hash two machines can tell whether their folders hold the same ids.
    train, held_out = _mapped(folder, encoder)
    index["complete"] = True
    index["digest"] = sha256_of(train, held_out)
    _write(folder, index)
    return index


def open_shards(folder: str | Path, tokenizer: Tokenizer) -> list[np.ndarray]:
    """Return the ids to train on, `[T]`, and the held-out ones, `[T']`, both memory-mapped.

    Raises ValueError if they are not complete, or were made with another tokenizer.
    """
    folder = Path(folder)
    made_from = {"tokenizer_sha256": tokenizer_sha256(tokenizer)}
    index = _read(folder, made_from)
    if not index["complete"]:
        raise ValueError(f"{folder} is not complete; the same call of tokenize goes on with it")
    return _mapped(folder, tokenizer)


def is_shards(source: str | Path) -> bool:
    """Whether a source is a folder that `tokenize` wrote."""
    return (Path(source) / INDEX).is_file()


def sha256_of(train: np.ndarray, held_out: np.ndarray) -> str:
    """Return a hash of two splits: the same ids, split alike, have the same one."""
    # The bytes are hashed where they lie, so that those of a mapped file pass through memory once.
    digest = hashlib.sha256(np.ascontiguousarray(train))
    # Without a mark between the splits, the same ids split elsewhere would have this hash too.
    digest.update(b"|")
    digest.update(np.ascontiguousarray(held_out))
    return digest.hexdigest()


def _read(folder: Path, made_from: dict[str, str]) -> dict[str, Any]:
    """Return the index of a folder; ValueError if it says that the ids were made otherwise."""
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    # Going on with another source or tokenizer would mix two corpora in one folder.
    for name, value in made_from.items():
        if index.get(name) != value:
            raise ValueError(f"{folder} was made with {name}={index.get(name)!r}, and now it is "
                             f"{value!r}; give the same, or another folder")
    return index


def _write(folder: Path, index: dict[str, Any]) -> None:
    text = json.dumps(index, indent=1) + "\n"
    with writing(folder / INDEX) as partial:
        partial.write_text(text, encoding="utf-8")


def _mapped(folder: Path, tokenizer: Tokenizer) -> list[np.ndarray]:
    dtype = id_type(tokenizer)
    splits = []
    for split in (TRAIN, HELD_OUT):
        path = folder / f"{split}.bin"
        # An empty file cannot be mapped, and a small text may have nothing held out.
        if path.stat().st_size:
            ids = np.memmap(path, dtype, "r")
        else:
            ids = np.empty(0, dtype)
        splits.append(ids)
    return splits
