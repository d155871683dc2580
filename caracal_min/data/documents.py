"""The texts of a source, one at a time: the only module that reads corpora, from this machine or from the network.

Sources: "embedded" is the documentation that every Python carries (no network); "fineweb" streams the sample-10BT of
FineWeb; anything else is a parquet, jsonl, jsonl.xz or jsonl.gz file with a `text` column, or a folder of those.
"""

import ast
import gzip
import importlib.util
import lzma
import pydoc_data.topics
import sys
import sysconfig
import zlib
from collections.abc import Iterator
from pathlib import Path

from ..extras import missing

__all__ = ["FORMATS", "SOURCES", "count_documents", "documents", "text_files"]

SOURCES = ("embedded", "fineweb")
"""Names of the sources that are no files."""
FORMATS = {".parquet": "parquet", ".jsonl": "json", ".jsonl.xz": "json", ".jsonl.gz": "json"}
"""Endings of the files that are read, and the reader in `datasets`."""


def documents(source: str) -> Iterator[str]:
    """Yield the texts of a source, in a fixed order.

    Args:
        source: one of `SOURCES`, or the path of a file, or of a folder of files, which are read in the order of their
            names.

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
        raise missing(f"reading {source}", "datasets", "train")
    for row in _rows(source, options):
        if not isinstance(row.get("text"), str):
            raise ValueError(f"{source} has columns {', '.join(row)}; a column `text` of strings is needed")
        yield row["text"]


def count_documents(source: str) -> int | None:
    """Return how many documents a readable file or folder has, without parsing them; None for any other source."""
    if source in SOURCES:
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
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name.endswith(tuple(FORMATS)))
    if not files:
        raise ValueError(f"{folder} has no file that ends in {', '.join(FORMATS)}, and it is no folder of shards")
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
    kind = next((k for ending, k in FORMATS.items() if path.name.endswith(ending)), None)
    if kind is None:
        raise ValueError(f"unknown source {str(path)!r}; accepted: {', '.join(SOURCES)}, a folder, or a "
                         f"file ending in {', '.join(FORMATS)}")
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
