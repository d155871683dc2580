"""The texts of a source, one at a time: the only module that reads corpora, from this machine or from the network.

Sources: "embedded" is the documentation of one Python, which the package carries (no network, and the same text under
every Python; `tools/freeze_documentation.py` wrote it); "fineweb" streams the sample-10BT of FineWeb; anything else is
a parquet, jsonl, jsonl.xz or jsonl.gz file with a `text` column, or a folder of those; or a txt file in UTF-8, which is
cut into documents of some kilobytes (`local_files`), or a folder with no files but those.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ..extras import missing
from .local_files import FORMATS, PLAIN, file_texts

__all__ = ["DOCUMENTED", "EMBEDDED", "SOURCES", "checked_texts", "documents", "fineweb_revision", "require_source",
           "text_files"]

SOURCES = ("embedded", "fineweb")
"""Names of the sources that are no files of the caller's."""
DOCUMENTED = "3.11.7"
"""The Python whose documentation "embedded" is."""
EMBEDDED = Path(__file__).with_name(f"python_{DOCUMENTED}.jsonl.xz")
"""The topics of its language reference, and the docstrings of each module of its library."""
_FINEWEB, _SAMPLE = "HuggingFaceFW/fineweb", "sample-10BT"


def documents(source: str, revision: str | None = None) -> Iterator[str]:
    """Yield the texts of a source, in a fixed order; only for "fineweb" is the network asked.

    Args:
        source: one of `SOURCES`, or the path of a file, or of a folder of files, which are read in the order of their
            names.
        revision: commit of "fineweb" that is read; None: the newest.

    Raises:
        FileNotFoundError, ValueError: no such file, an unknown format, an unreadable file, a row without a `text`; a
            text with half of a surrogate pair in it, which has no UTF-8.
        ConnectionError: "fineweb" cannot be read, or no longer.
        ImportError: the source needs `datasets` or pyarrow, and it is not installed.
    """
    for name, texts in _named_texts(source, revision):
        yield from checked_texts(texts, name)


def checked_texts(texts: Iterable[str], name: object) -> Iterator[str]:
    """Yield some texts; ValueError, naming the document, at the first that is none, or that has no UTF-8."""
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise ValueError(f"{name}, document {number}, is of type {type(text).__name__}, and no text; leave it out")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{name}, document {number}, holds half of a surrogate pair, which is no character; "
                             "mend it, or leave it out") from None
        yield text


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

    Text files count where there are no others, since beside others they tell what these are, as README.txt does.  A
    warning names what is left out, but for hidden files and those in Markdown.

    Raises:
        ValueError: there is none.
    """
    files = sorted(path for path in folder.iterdir() if not path.is_dir())  # a link to nothing is refused later
    rows, plain = ([path for path in files if path.name.endswith(endings)] for endings in (FORMATS, PLAIN))
    if found := rows or plain:
        other = [path.name for path in files if path not in found and not path.name.startswith(".")
                 and path.suffix != ".md"]
        if other:
            warnings.warn(f"{folder}: {len(other)} of its files, such as {other[0]}, are left out beside "
                          f"{found[0].name}; read are {', '.join(FORMATS)}, and {PLAIN} in a folder without these",
                          stacklevel=2)
        return found
    raise ValueError(f"{folder} has no file that ends in {', '.join((*FORMATS, PLAIN))}, and it is no folder of shards")


def fineweb_revision() -> str:
    """Return the commit that is the newest of FineWeb now.

    Raises ConnectionError if the hub does not say.
    """
    from huggingface_hub import HfApi

    with _from_the_network():
        return HfApi().dataset_info(_FINEWEB).sha


def _named_texts(source: str, revision: str | None) -> Iterator[tuple[object, Iterator[str]]]:
    """Yield the texts of each file of a source, with the name that errors give it."""
    if source == "embedded":
        yield EMBEDDED, file_texts(EMBEDDED)
    elif source == "fineweb":
        yield source, _fineweb(revision)
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


def _fineweb(revision: str | None) -> Iterator[str]:
    load, revision = _datasets().load_dataset, revision or fineweb_revision()
    with _from_the_network():
        for row in load(_FINEWEB, name=_SAMPLE, split="train", streaming=True, revision=revision):
            yield row["text"]


@contextmanager
def _from_the_network() -> Iterator[None]:
    """Turn what the libraries raise when a connection fails, of a dozen classes, into one line."""
    try:
        yield
    except Exception as error:
        words = " ".join(str(error).split())
        raise ConnectionError(f"fineweb cannot be read from the network ({type(error).__name__}"
                              f"{words and f': {words}'})") from error
