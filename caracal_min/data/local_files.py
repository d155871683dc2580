"""The texts of one file on this machine: JSON lines, plain or compressed, parquet, or plain text.

Exactly the named file is opened, whatever characters its name has, and nothing is asked of any network.  Files are
read a line or some rows at a time.

A row of JSON or parquet is a document.  Plain text has no rows, and the whole of Shakespeare as one document could only
be trained on or held out.  So a text file is cut where a paragraph ends: at the first blank line after `PIECE` bytes,
or, where none comes, after twice as many.  A shorter file is one document.  Where a file is cut depends on it alone.
"""

import codecs
import gzip
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..extras import missing

__all__ = ["FORMATS", "PIECE", "PLAIN", "file_texts"]

FORMATS, PLAIN = (".parquet", ".jsonl", ".jsonl.xz", ".jsonl.gz"), ".txt"
"""Endings of the files that are read: those with rows, and plain text in UTF-8."""
PIECE = 1 << 12
"""Bytes of a text file after which the next blank line ends a document."""
_ROWS = 16  # of parquet, decoded at once
_UNREADABLE = (ValueError, EOFError, RecursionError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)


def file_texts(path: Path) -> Iterator[str]:
    """Yield what is in the column `text` of each row of a file, or the pieces of plain text, in their order.

    Raises:
        FileNotFoundError: no such file.
        ValueError: an unknown format, a file that cannot be read or has no row, or a row without a `text`; in one line
            that names the row.
        ImportError: the file is parquet, and pyarrow is not installed.
    """
    read = {".parquet": _parquet_texts, PLAIN: _plain_texts}.get(_ending(path), _json_texts)
    empty = True
    for text in read(path):
        empty = False
        yield text
    if empty:
        raise _unreadable(path, "no document in it")


def _ending(path: Path) -> str:
    """Return the last ending of a file that is there and of a format that is read."""
    if not path.name.endswith((*FORMATS, PLAIN)):
        raise ValueError(f"unknown format of {str(path)!r}; accepted: {', '.join((*FORMATS, PLAIN))}")
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; check the path")
    return path.suffix


def _unreadable(path: Path, why: object) -> ValueError:
    words = next(iter(str(why).splitlines()), "") or type(why).__name__
    return ValueError(f"{path} cannot be read ({words}): is it empty, cut off, or in another format than its name "
                      "says?")


def _require_text(row: dict, where: str) -> str:
    """Return the text of a row.  Raises ValueError, naming row and column, if it has none."""
    text = row.get("text")
    if isinstance(text, str):
        return text
    if "text" not in row:
        raise ValueError(f"{where} has columns {', '.join(row)}; a column `text` of strings is needed")
    what = "null" if text is None else f"of type {type(text).__name__}"
    raise ValueError(f"{where}: its column `text` is {what}, and no string; mend that row, or leave it out")


def _plain_texts(path: Path) -> Iterator[str]:
    """Yield a text file in pieces, which one after the other are the file, but for pieces that are blank."""
    decoder, piece, size, number = codecs.getincrementaldecoder("utf-8-sig")(), [], 0, 1
    with open(path, "rb") as file:
        while True:
            line = file.readline(PIECE)
            try:
                piece.append(decoder.decode(line, final=not line))
            except UnicodeDecodeError:
                raise _unreadable(path, f"line {number} is not in UTF-8") from None
            if b"\0" in line:
                raise _unreadable(path, f"line {number} holds the character NUL, as text in UTF-16 does, and what is "
                                        "no text")
            number, size = number + line.endswith(b"\n"), size + len(line)
            if not line or size >= (2 * PIECE if line.strip() else PIECE):
                if (text := "".join(piece)).strip():
                    yield text
                piece, size = [], 0
            if not line:
                return


def _json_texts(path: Path) -> Iterator[str]:
    for number, line in _lines(path):
        try:
            row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            if not isinstance(row, dict):
                raise ValueError("it is no JSON object")
        except (ValueError, RecursionError) as error:
            raise _unreadable(path, f"line {number}: {error}") from None
        yield _require_text(row, f"{path}, line {number}")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each line that is not empty."""
    opened: Callable[..., Any] = {".xz": _open_xz, ".gz": gzip.open}.get(path.suffix, open)
    with opened(path, "rb") as file:
        try:
            yield from ((number, line) for number, line in enumerate(file, 1) if line.strip())
        except _UNREADABLE as error:
            raise _unreadable(path, error) from None


def _open_xz(path: Path, mode: str) -> Any:
    """Open a file whose every stream must be whole: Python takes one that is damaged at its beginning for its end."""
    file: Any = lzma.open(path, mode)
    file._buffer.raw._trailing_error = ()
    return file


def _parquet_texts(path: Path) -> Iterator[str]:
    for number, row in enumerate(_parquet_rows(path), 1):
        yield _require_text(row, f"{path}, row {number}")


def _parquet_rows(path: Path) -> Iterator[dict]:
    """Yield the column `text` of each row, or all columns if there is none of this name."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise missing(f"reading {path}", "pyarrow", "train") from None
    with open(path, "rb") as opened:
        try:
            with pyarrow.parquet.ParquetFile(opened) as file:
                names = file.schema_arrow.names
                for rows in file.iter_batches(_ROWS, columns=["text"] if "text" in names else names):
                    yield from rows.to_pylist()
        except (*_UNREADABLE, OSError, pyarrow.ArrowException) as error:
            raise _unreadable(path, error) from None
