"""Files that are written whole or not at all."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["file_sha256", "writing"]


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which takes that name unless the body raises.

    So a kill or an error leaves the old file or the new one, never half of one.  Folders above are
    made if absent.

    Example:
        >>> with writing(Path("numbers.txt")) as partial:
        ...     size = partial.write_text("1 2 3")
        >>> Path("numbers.txt").read_text()
        '1 2 3'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside the file, because a rename is atomic only within one file system.
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        # After an error the half-written file goes; after the rename there is none.
        partial.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    # Read in pieces, so that weights larger than memory have a hash too.
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
