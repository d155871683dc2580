"""Text to tokens to batches.  The only module that reads corpora, from this machine or from the network.

    documents(source)            texts, one at a time
    Batches(tokens, ...)         batch i of a deterministic, endless order; a position is one integer

Sources: "embedded" is the documentation that every Python carries (no network); "fineweb" streams the
sample-10BT of FineWeb; anything else is a parquet, jsonl or jsonl.xz file with a `text` column, or a folder of those.

Read next: `corpus`, and `shards` for what does not fit into memory.
"""

import ast
import gzip
import importlib.util
import lzma
import pydoc_data.topics
import sys
import sysconfig
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

__all__ = ["Batches", "ByteTokenizer", "GPT2Tokenizer", "Tokenizer", "count_documents", "documents",
           "make_tokenizer", "sequential_windows", "text_files", "tokenizer_for"]

_FORMATS = {".parquet": "parquet", ".jsonl": "json", ".jsonl.xz": "json", ".jsonl.gz": "json"}


class Tokenizer(Protocol):
    """What a tokenizer offers: its name, how many ids it has, and the way to ids and back."""

    name: str
    vocab_size: int
    end_of_text: int

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids."""
        ...


class ByteTokenizer:
    """One token per byte of UTF-8; id 0, which no text uses, ends a document."""

    name, vocab_size, end_of_text = "byte", 256, 0

    def encode(self, text: str) -> list[int]:
        """Return the bytes of `text` as ids in 0..255."""
        return list(text.encode("utf-8"))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text; bytes that are not UTF-8 (a character cut in half) become U+FFFD."""
        return bytes(int(i) for i in ids).decode("utf-8", errors="replace")


class GPT2Tokenizer:
    """The byte-pair encoding of GPT-2, 50,257 ids, through tiktoken (which downloads it once).

    Raises:
        ImportError: tiktoken is not installed.

    Source: Caracal, Section 5.1, "the gpt2 tokenizer".
    """

    name = "gpt2"

    def __init__(self):
        try:
            import tiktoken
        except ImportError:
            raise ImportError("the gpt2 tokenizer needs tiktoken: pip install 'caracal-min[train]'") from None
        self._encoding = tiktoken.get_encoding("gpt2")
        self.vocab_size, self.end_of_text = self._encoding.n_vocab, self._encoding.eot_token

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`; the spelling of a special token in it is ordinary text."""
        return self._encoding.encode_ordinary(text)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids."""
        return self._encoding.decode([int(i) for i in ids])


_TOKENIZERS = {"byte": ByteTokenizer, "gpt2": GPT2Tokenizer}


def make_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer called `name`: "byte" or "gpt2".  Raises ValueError on another name."""
    if name not in _TOKENIZERS:
        raise ValueError(f"unknown tokenizer {name!r}; accepted: {', '.join(_TOKENIZERS)}")
    return _TOKENIZERS[name]()


def tokenizer_for(vocab_size: int) -> Tokenizer:
    """Return the tokenizer that has `vocab_size` ids.  Raises ValueError where none of ours has."""
    sizes = {256: "byte", 50_257: "gpt2"}
    if vocab_size not in sizes:
        known = ", ".join(f"{n} ({k})" for n, k in sizes.items())
        raise ValueError(f"no tokenizer with {vocab_size} ids; known are {known}")
    return make_tokenizer(sizes[vocab_size])


def documents(source: str) -> Iterator[str]:
    """Yield the texts of a source, in a fixed order.

    Args:
        source: "embedded", "fineweb", the path of a parquet, jsonl, jsonl.xz or jsonl.gz file, or of a folder of
            such files, which are read in the order of their names.

    Raises:
        FileNotFoundError, ValueError: no such file, an unknown format, an unreadable file, no `text` column.
        ImportError: the source needs `datasets`, and it is not installed.
    """
    if source == "embedded":
        yield from _python_documentation()
        return
    if source == "fineweb":
        options = {"path": "HuggingFaceFW/fineweb", "name": "sample-10BT"}
    elif Path(source).is_dir():
        for file in text_files(Path(source)):
            yield from documents(str(file))
        return
    else:
        options = _local_file(Path(source))
    if importlib.util.find_spec("datasets") is None:
        raise ImportError(f"reading {source} needs datasets: pip install 'caracal-min[train]'")
    for row in _rows(source, options):
        if not isinstance(row.get("text"), str):
            raise ValueError(f"{source} has columns {', '.join(row)}; a column `text` of strings is needed")
        yield row["text"]


def count_documents(source: str) -> int | None:
    """Return how many documents a readable file or folder has, without parsing them; None for any other source."""
    if source in ("embedded", "fineweb"):
        return None
    path = Path(source)
    if path.is_dir():
        return sum(count_documents(str(file)) for file in text_files(path))
    if _local_file(path)["path"] == "parquet":
        import pyarrow.parquet

        return pyarrow.parquet.ParquetFile(path).metadata.num_rows
    with {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)(path, "rb") as file:
        return sum(1 for line in file if line.strip())


def text_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold text, in the order of their names.  Raises ValueError if there is none."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name.endswith(tuple(_FORMATS)))
    if not files:
        raise ValueError(f"{folder} has no file that ends in {', '.join(_FORMATS)}, and it is no folder of shards")
    return files


def _rows(source: str, options: dict) -> Iterator[dict]:
    """Yield the rows of a dataset; what the reader of a damaged or empty file raises becomes one line."""
    import datasets

    try:
        yield from datasets.load_dataset(**options, split="train", streaming=True)
    except (StopIteration, RuntimeError, ValueError, EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{source} cannot be read ({why}): is it empty, cut off, or in another format than "
                         "its name says?") from None


def _local_file(path: Path) -> dict:
    kind = next((k for ending, k in _FORMATS.items() if path.name.endswith(ending)), None)
    if kind is None:
        raise ValueError(f"unknown source {str(path)!r}; accepted: embedded, fineweb, a folder, or a file "
                         "ending in " + ", ".join(_FORMATS))
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; check the path")
    return {"path": kind, "data_files": str(path.resolve())}


def _python_documentation() -> Iterator[str]:
    """Yield the language reference's topics and the documentation of each standard-library module.

    A module's document is its docstrings, in the order of the source; nothing is imported or run.
    """
    yield from (text.strip() for _, text in sorted(pydoc_data.topics.topics.items()))
    root = Path(sysconfig.get_path("stdlib"))
    skipped = {"test", "tests", "idle_test", "site-packages", "__pycache__", "lib2to3", "pydoc_data"}
    for path in sorted(root.rglob("*.py")):
        top = path.relative_to(root).parts[0].removesuffix(".py")
        if top not in sys.stdlib_module_names or skipped.intersection(path.relative_to(root).parts):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):  # a few files are templates or in another encoding
            continue
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
        text = "\n\n".join(d for d in found if d)
        if len(text) >= 200:
            yield text


class Batches:
    """Training batches in a fixed, shuffled, endless order: `batches[i]` depends on nothing but i.

    Each epoch cuts the tokens into windows of `context` + 1 at an offset of its own and permutes them;
    no window repeats within an epoch.  To resume, go on with the next i.

    Args:
        tokens: ids, one dimension: an array, or a `shards.ShardedTokens`.
        context: tokens per sequence, L.
        batch_size: sequences per batch of this process, B.
        seed: of the offsets and permutations.
        rank, world_size: of `world_size` processes that train together, process `rank` takes rows rank * batch_size
            and on of what one process would read with all their rows.

    `batches[i]` is a pair of int64 tensors `[B, L]`: inputs, and the same shifted by one as targets.

    The permutation is numpy's, in 4 bytes a window: 10B tokens at context 512 are 19.5M windows, 78 MB.

    Raises:
        ValueError: fewer than context + 1 tokens per batch row, a size below 1, or a rank that is not one of them.
    """

    def __init__(self, tokens: np.ndarray, context: int, batch_size: int, seed: int = 0,
                 rank: int = 0, world_size: int = 1):
        if context < 1 or batch_size < 1:
            raise ValueError(f"context={context}, batch_size={batch_size}; give numbers >= 1")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank={rank}, world_size={world_size}; give a rank from 0 to world_size - 1")
        rows = batch_size * world_size
        self.windows = (len(tokens) - context) // context  # per epoch, whatever the offset
        self.per_epoch = self.windows // rows
        if self.per_epoch < 1:
            raise ValueError(f"{len(tokens)} tokens hold {max(0, self.windows)} windows of {context}, fewer than "
                             f"batch_size={rows}; give more text, or a smaller context or batch")
        self.tokens, self.context, self.batch_size, self.seed = tokens, context, batch_size, seed
        self.rank, self.world_size = rank, world_size
        self._epoch = -1

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        epoch, place = divmod(i, self.per_epoch)
        if epoch != self._epoch:
            draw = np.random.default_rng([self.seed, epoch])
            self._epoch, self._offset = epoch, int(draw.integers(self.context))
            self._order = np.arange(self.windows, dtype=np.min_scalar_type(self.windows))
            draw.shuffle(self._order)
        first = (place * self.world_size + self.rank) * self.batch_size
        starts = self._offset + self.context * self._order[first:first + self.batch_size].astype(np.int64)
        rows = np.stack([self.tokens[s:s + self.context + 1] for s in starts]).astype(np.int64)
        rows = torch.from_numpy(rows)
        return rows[:, :-1], rows[:, 1:]

    def epochs(self, n: int) -> float:
        """Return how many passes over the tokens n batches are."""
        return n / self.per_epoch


def sequential_windows(tokens: np.ndarray, context: int, limit: int | None = None) -> Tensor:
    """Cut tokens into consecutive windows for evaluation.

    Args:
        tokens: ids, one dimension.
        context: tokens per window, L.
        limit: most windows to return, spread evenly over the text; None returns all.

    Returns:
        int64 `[windows, L + 1]`: L inputs and, shifted by one, L targets; windows overlap by that one token.

    Raises:
        ValueError: fewer than L + 1 tokens.
    """
    count = (len(tokens) - 1) // context
    if count < 1:
        raise ValueError(f"{len(tokens)} tokens are fewer than one window of {context} + 1; give more text")
    chosen = np.arange(count) if limit is None or limit >= count else np.linspace(0, count - 1, limit).astype(int)
    rows = np.stack([tokens[i * context:i * context + context + 1] for i in chosen])
    return torch.from_numpy(rows.astype(np.int64))
