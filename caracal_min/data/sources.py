"""The documents of a source, one at a time, and which of them are held out.

A source is "embedded", text that the package carries; "fineweb", which is streamed; or the path of
a file or folder: json lines or parquet with a column `text`, or plain text.
"""

import gzip
import hashlib
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub

__all__ = ["ALL", "DOCUMENTED", "EMBEDDED", "FORMATS", "HELD_OUT", "RULE", "SOURCES", "TRAIN",
           "documents", "file_texts", "fineweb_revision", "is_held_out", "text_digest"]

SOURCES = ("embedded", "fineweb")
"""Names of the sources that are no paths."""
DOCUMENTED = "3.11.7"
"""The Python whose documentation is embedded, the same text under every Python that reads it."""
EMBEDDED = Path(__file__).with_name(f"python_{DOCUMENTED}.jsonl.xz")
"""The topics of its language reference, and the docstrings of each module of its library."""

FINEWEB = "HuggingFaceFW/fineweb"
SAMPLE = "sample-10BT"
# Version 1.4.0 of the data set: the same documents in the same order on any day.
FINEWEB_REVISION = "9bb295ddab0e05d785b879661af7260fed5140fc"

FORMATS = (".parquet", ".jsonl", ".jsonl.xz", ".jsonl.gz", ".txt")
"""Endings of files: a row is a document, or plain text is cut into documents."""
PIECE = 1 << 12  # characters, after which the next end of a line ends a document

TRAIN = "train"
HELD_OUT = "held_out"
ALL = "all"
"""The splits of a source: what is trained on, what is not, and both."""
RULE = "sha256 of the text, one document in 20"
"""What is held out, in words, for records."""


def is_held_out(text: str) -> bool:
    """Whether a document is held out: whether the SHA-256 of its text is a multiple of 20.

    So it is on the same side wherever and however it is stored, and so are its copies.
    """
    # A hash needs no list of documents, and no seed that must travel with the data.
    return int.from_bytes(text_digest(text)) % 20 == 0


def text_digest(text: str) -> bytes:
    """Return the SHA-256 of the UTF-8 of a document, 32 bytes."""
    return hashlib.sha256(text.encode()).digest()


def documents(source: str | Path) -> Iterator[str]:
    """Yield the texts of a source in a fixed order; only "fineweb" asks the network.

    Args:
        source: one of `SOURCES`, or the path of a file, or of a folder, read in order of its names.

    Raises:
        FileNotFoundError: no such file.
        ValueError: an unknown format, or a row without `text`.
        ImportError: parquet needs the package pyarrow, and fineweb datasets.

    Example:
        >>> len(list(documents("embedded")))
        505
    """
    if source == "embedded":
        yield from file_texts(EMBEDDED)
    elif source == "fineweb":
        # Imported where it is needed: it is not installed with the package, and slow.
        from datasets import load_dataset

        options = {"name": SAMPLE, "revision": FINEWEB_REVISION, "split": "train"}
        for row in load_dataset(FINEWEB, streaming=True, **options):
            yield row["text"]
    else:
        for file in _files(Path(source)):
            yield from file_texts(file)


def file_texts(path: Path) -> Iterator[str]:
    """Yield the texts of one file; plain text is cut at ends of lines, some 4 KiB a document."""
    if path.suffix == ".txt":
        # One document of a whole book could only be trained on or held out.
        with open(path, encoding="utf-8-sig") as file:
            while lines := file.readlines(PIECE):
                yield "".join(lines)
    elif path.suffix == ".parquet":
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as file:
            for rows in file.iter_batches(1024):  # the file may be larger than memory
                for row in rows.to_pylist():
                    yield _text(row, path)
    else:
        # Compressed files are read as they are: unpacked, they may not fit on the disk.
        openers = {".xz": lzma.open, ".gz": gzip.open}
        open_text = openers.get(path.suffix, open)
        with open_text(path, "rt", encoding="utf-8") as file:
            for line in file:
                yield _text(json.loads(line), path)


def fineweb_revision() -> str:
    """Return the commit of FineWeb that is read; raises ConnectionError if the hub is not reached.

    Example:
        >>> fineweb_revision()    # doctest: +SKIP
        '9bb295ddab0e05d785b879661af7260fed5140fc'
    """
    hub = huggingface_hub.HfApi()
    try:
        return hub.dataset_info(FINEWEB, revision=FINEWEB_REVISION).sha
    except Exception as error:  # a dozen classes of several libraries
        raise ConnectionError(f"fineweb cannot be reached: {error}") from error


def _files(path: Path) -> list[Path]:
    """Return the files that a path names: itself, or those of a folder that hold text."""
    paths = [path]
    # Sorted, because each file system lists a folder in an order of its own.
    if path.is_dir():
        paths = sorted(path.iterdir())
    files = [file for file in paths if file.name.endswith(FORMATS)]
    if not files:
        raise ValueError(f"unknown source '{path}'; accepted: {', '.join(SOURCES)}, or the path of "
                         f"a file or folder of {', '.join(FORMATS)}")
    return files


def _text(row: dict[str, Any], name: str | Path) -> str:
    # Data sets call their column by many names, so this is a likely mistake.
    if "text" not in row:
        raise ValueError(f"{name} has columns {', '.join(row)}; a column `text` is needed")
    return row["text"]
