"""The texts of one file on this machine: JSON lines, plain or compressed, parquet, or plain text.

Exactly the named file is opened, whatever signs its name has, and nothing is asked of any network.  What is in memory
at a time is bounded, whatever the file unpacks to: lines and texts longer than `LONGEST_DOCUMENT` are refused.

A row of JSON or parquet is a document.  Plain text has no rows, and the whole of Shakespeare as one document could only
be trained on or held out.  So a text file is cut where a paragraph ends: at the first blank line after `PIECE` bytes,
or, where none comes, after twice as many.  A shorter file is one document.  Where a file is cut depends on it alone.
"""

import codecs
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ..extras import missing

__all__ = ["FORMATS", "LONGEST_DOCUMENT", "PIECE", "PLAIN", "count_rows", "file_texts", "too_long"]

FORMATS, PLAIN = (".parquet", ".jsonl", ".jsonl.xz", ".jsonl.gz"), ".txt"
"""Endings of the files that are read: those with rows, and plain text in UTF-8."""
PIECE = 1 << 12
"""Bytes of a text file after which the next blank line ends a document."""
LONGEST_DOCUMENT = 1 << 24
"""Bytes of UTF-8 that a document may have, and a line of JSON that holds one: 16 MiB, three times the works of
Shakespeare."""
_XZ_MEMORY = 1 << 28  # bytes; `xz -9` asks for a quarter of it
_ROWS = 16  # of parquet, decoded at once
_PACKED = 100  # times that the text of a parquet file may be longer than what it is packed into
_UNREADABLE = (ValueError, EOFError, RecursionError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)


def file_texts(path: Path) -> Iterator[str]:
    """Yield what stands in the column `text` of each row of a file, or the pieces of plain text, in their order.

    Raises:
        FileNotFoundError: no such file.
        ValueError: an unknown format, a file that cannot be read or has no row, no column `text`, or a line longer
            than `LONGEST_DOCUMENT`; in one line.
        ImportError: the file is parquet, and pyarrow is not installed.
    """
    read = {".parquet": _parquet_texts, PLAIN: _plain_texts}.get(_ending(path), _json_texts)
    empty = True
    for text in read(path):
        empty = False
        yield text
    if empty:
        raise _unreadable(path, "no document in it")


def count_rows(path: Path) -> int:
    """Return how many documents a file has, without parsing rows.  Raises as `file_texts`."""
    if (ending := _ending(path)) != ".parquet":
        return sum(1 for _ in (_plain_texts if ending == PLAIN else _lines)(path))
    with open(path, "rb") as opened, _parquet(path, opened) as file:
        return file.metadata.num_rows


def too_long(where: str) -> ValueError:
    """Return the error about a document that is too long."""
    return ValueError(f"{where} has more than {LONGEST_DOCUMENT:,} bytes, the most that a document may have; "
                      "divide it, or leave it out")


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


def _no_text(path: Path, columns: list[str]) -> ValueError:
    return ValueError(f"{path} has columns {', '.join(columns)}; a column `text` of strings is needed")


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
        if not isinstance(row.get("text"), str):
            raise _no_text(path, list(row))
        yield row["text"]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each line that is not empty."""
    with open(path, "rb") as packed, _unpacked(path, packed) as file:
        number = 0
        while True:
            try:
                line = file.readline(LONGEST_DOCUMENT + 1)
            except _UNREADABLE as error:
                raise _unreadable(path, error) from None
            if not line:
                return
            number += 1
            if len(line) > LONGEST_DOCUMENT:
                raise too_long(f"{path}, line {number},")
            if line.strip():
                yield number, line


def _unpacked(path: Path, packed: IO[bytes]) -> IO[bytes]:
    if path.suffix == ".xz":
        return io.BufferedReader(_Xz(packed))
    return gzip.open(packed) if path.suffix == ".gz" else packed


class _Xz(io.RawIOBase):
    """The bytes of an xz file.  `lzma.open` is the same without a limit to the memory that a file may ask for."""

    def __init__(self, packed: IO[bytes]):
        self._packed, self._stream = packed, None

    def readable(self) -> bool:
        """Whether it can be read: it can."""
        return True

    def readinto(self, target: memoryview) -> int:
        """Fill `target` and return the number of bytes, 0 at the end."""
        while True:
            if self._stream is None or self._stream.eof:
                rest = b"" if self._stream is None else self._stream.unused_data.lstrip(b"\0")
                rest = rest or self._packed.read(1 << 16).lstrip(b"\0")  # zeros may stand between streams
                if not rest:
                    return 0
                self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
            else:
                rest = self._packed.read(1 << 16) if self._stream.needs_input else b""
                if self._stream.needs_input and not rest:
                    raise EOFError("it ends in the middle")
            data = self._stream.decompress(rest, len(target))
            if data:
                target[:len(data)] = data
                return len(data)


def _parquet(path: Path, opened: IO[bytes]):
    """Return the open parquet file."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise missing(f"reading {path}", "pyarrow", "train") from None
    try:
        return pyarrow.parquet.ParquetFile(opened)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _parquet_texts(path: Path) -> Iterator[str]:
    with open(path, "rb") as opened, _parquet(path, opened) as file:
        from pyarrow import ArrowException

        columns = file.schema_arrow.names
        if "text" not in columns:
            raise _no_text(path, columns)
        _require_sizes(path, file.metadata)
        batches = file.iter_batches(_ROWS, columns=["text"])
        while True:
            try:
                texts = next(batches).column(0).to_pylist()
            except StopIteration:
                return
            except (*_UNREADABLE, OSError, ArrowException) as error:
                raise _unreadable(path, error) from None
            for text in texts:
                if not isinstance(text, str):
                    raise _no_text(path, columns)
                yield text


def _require_sizes(path: Path, metadata) -> None:
    """Raise ValueError if a column of texts unpacks to far more than the file holds: pyarrow decodes whole pages."""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            packed, size = column.total_compressed_size, column.total_uncompressed_size
            if column.path_in_schema == "text" and size > max(LONGEST_DOCUMENT, _PACKED * packed):
                raise ValueError(f"{path} packs {size:,} bytes of text into {packed:,}, more than {_PACKED} to 1; "
                                 "is it damaged?  Write it anew with less in a row group")
