"""Files that are written whole or not at all."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["file_sha256", "writing"]


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which takes that name if the body ends without an
    error.

    So a kill or an error leaves the old file or the new one, never half of one.  Folders above are
    made if absent.

    Example:
        >>> with writing(Path("numbers.txt")) as partial:
        ...     size = partial.write_text("1 2 3")
        >>> Path("numbers.txt").read_text()
        '1 2 3'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# The two below go when `weights`, `hf`, `export`, `zoo` and `data` no longer import them.
@contextmanager
def writing_folder(folder: Path, last: str, replaced: Callable[[set[str]], Iterable[str]]
                   = lambda written: ()) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as partial:
        yield Path(partial)
        written = sorted(Path(partial).iterdir(), key=lambda path: path.name == last)
        names = {path.name for path in written}
        for path in written:
            os.chmod(path, 0o644)
            os.replace(path, folder / path.name)
        if last in names:
            for old in (path for pattern in replaced(names) for path in folder.glob(pattern)):
                if old.name not in names:
                    old.unlink()


@contextmanager
def reading_folder(folder: Path, last: str, hashes: str) -> Iterator[None]:
    yield
