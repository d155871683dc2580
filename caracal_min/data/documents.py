"""The texts of a source, one at a time: the only module that reads corpora, from this machine or from the network.

Sources: "embedded" is the documentation of one Python, which the package carries (no network, and the same text under
every Python; `tools/freeze_documentation.py` wrote it); "fineweb" streams the sample-10BT of FineWeb; anything else is
a parquet, jsonl, jsonl.xz or jsonl.gz file with a `text` column, or a folder of those; or a txt file in UTF-8, which is
cut into documents of some kilobytes (`local_files`), or a folder with no files but those.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ..extras import missing
from .local_files import FORMATS, LONGEST_DOCUMENT, PLAIN, count_rows, file_texts, too_long

__all__ = ["DOCUMENTED", "EMBEDDED", "SOURCES", "count_documents", "documents", "require_source", "text_files"]

SOURCES = ("embedded", "fineweb")
"""Names of the sources that are no files of the caller's."""
DOCUMENTED = "3.11.7"
"""The Python whose documentation "embedded" is."""
EMBEDDED = Path(__file__).with_name(f"python_{DOCUMENTED}.jsonl.xz")
"""The topics of its language reference, and the docstrings of each module of its library."""


def documents(source: str) -> Iterator[str]:
    """Yield the texts of a source, in a fixed order; only for "fineweb" is the network asked.

    Args:
        source: one of `SOURCES`, or the path of a file, or of a folder of files, which are read in the order of their
            names.

    Raises:
        FileNotFoundError, ValueError: no such file, an unknown format, an unreadable file, no `text` column; a text
            longer than `local_files.LONGEST_DOCUMENT`, or one with half of a surrogate pair in it, which has no UTF-8.
        ImportError: the source needs `datasets` or pyarrow, and it is not installed.
    """
    for name, texts in _parts(source):
        for number, text in enumerate(texts, 1):
            try:
                size = len(text.encode())
            except UnicodeEncodeError:
                raise ValueError(f"{name}, document {number}, holds half of a surrogate pair, which is no character; "
                                 "mend it, or leave it out") from None
            if size > LONGEST_DOCUMENT:
                raise too_long(f"{name}, document {number},")
            yield text


def count_documents(source: str) -> int | None:
    """Return how many documents a readable file or folder has, without parsing them; None for any other source."""
    if source in SOURCES:
        return None
    return sum(count_rows(file) for file in _files(source))


def require_source(source: str) -> None:
    """Find out, before much is read, whether a source can be: whether each of its files begins with a document.

    Raises:
        FileNotFoundError, ValueError, ImportError: as `documents`; or OSError, there is no permission.
    """
    if source == "fineweb":
        _datasets()
    elif source not in SOURCES:
        for file in _files(source):
            with closing(file_texts(file)) as texts:
                next(texts)


def text_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold text, in the order of their names.

    Text files count where there are no others, since beside others they tell what these are, as README.txt does.

    Raises:
        ValueError: there is none.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file())
    for endings in (FORMATS, PLAIN):
        if found := [path for path in files if path.name.endswith(endings)]:
            return found
    raise ValueError(f"{folder} has no file that ends in {', '.join((*FORMATS, PLAIN))}, and it is no folder of shards")


def _parts(source: str) -> Iterator[tuple[object, Iterator[str]]]:
    """Yield the parts of a source, each with the name under which errors know it."""
    if source == "embedded":
        yield EMBEDDED, file_texts(EMBEDDED)
    elif source == "fineweb":
        yield source, _fineweb()
    else:
        for file in _files(source):
            yield file, file_texts(file)


def _files(source: str) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        return text_files(path)
    if not path.name.endswith((*FORMATS, PLAIN)):
        raise ValueError(f"unknown source {source!r}; accepted: {', '.join(SOURCES)}, a folder, or a "
                         f"file ending in {', '.join((*FORMATS, PLAIN))}")
    return [path]


def _datasets():
    try:
        import datasets
    except ImportError:
        raise missing("reading fineweb", "datasets", "train") from None
    return datasets


def _fineweb() -> Iterator[str]:
    rows = _datasets().load_dataset("HuggingFaceFW/fineweb", name="sample-10BT", split="train", streaming=True)
    try:
        for row in rows:
            yield row["text"]
    except (RuntimeError, ValueError, EOFError) as error:  # what its readers raise when the stream breaks off
        raise ValueError(f"fineweb cannot be read ({' '.join(str(error).split()) or type(error).__name__})") from None
