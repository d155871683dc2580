"""Files that are written whole or not at all, and their hashes."""

import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

__all__ = ["file_sha256", "writing", "writing_folder"]

_STALE = 86_400  # seconds after which a folder that is still being written is taken for that of a killed call


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Give a temporary path; the file that the body writes there becomes `path` when the body ends without an error.

    For example::

        with writing(folder / "numbers.bin") as partial:
            partial.write_bytes(numbers)

    The new file is on the disk before it takes the name, so a kill or a power cut leaves the old file or the new one.
    An error removes what was written.  Folders above `path` are made if absent.  The file gets the permissions of any
    new file in that folder, whatever the body gave it: safetensors writes files that only their owner can read.

    Raises:
        OSError: the file cannot be written, in one line that names it.
    """
    partial = path.with_name(path.name + ".partial")
    with _named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            mode = _mode_of_new_files(partial)
            yield partial
            os.chmod(partial, mode)
            _sync(partial)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        _sync(path.parent)


@contextmanager
def writing_folder(folder: Path, last: str,
                   replaced: Callable[[set[str]], Iterable[str]] = lambda written: ()) -> Iterator[Path]:
    """Give an empty folder; the files that the body writes there move into `folder` when it ends without an error.

    For files that mean something together only, such as weights and their configuration.  `last` names the one without
    which readers take none of the others: the old one goes first, and the new one comes after all others.  So a kill
    leaves the old files, or the new ones, or, between two renamings, no file `last`, but never an old one beside new
    others.  An error leaves the old files.  Names that the body does not write stay as they are, but for what belongs
    to an old `last`: patterns that `replaced` returns for the names that were written.  These files go with it.
    `folder` is made if absent.  Permissions are those of `writing`.  Several processes may write the same files at
    once, so what a killed call left is removed after a day.

    Raises:
        OSError: a file cannot be written, in one line that names the folder.
    """
    with _named(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(".partial-*"):
            with suppress(FileNotFoundError):  # of a call that ends just now
                if time.time() - left.stat().st_mtime > _STALE:
                    shutil.rmtree(left, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
        try:
            mode = _mode_of_new_files(partial / "new")
            yield partial
            written = sorted(partial.iterdir(), key=lambda file: file.name == last)
            for file in written:
                os.chmod(file, mode)
                _sync(file)
            if written and written[-1].name == last:
                names = {file.name for file in written}
                gone = [file for name in (last, *replaced(names)) for file in folder.glob(name)
                        if name == last or file.name not in names]
                for file in gone:
                    file.unlink(missing_ok=True)
                if gone:
                    _sync(folder)
            for file in written:
                os.replace(file, folder / file.name)
                _sync(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn what the disk and safetensors report into one line that names the file."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise OSError(f"{path} could not be written ({error}); what was there is unchanged: make room, or give "
                      "another place") from error


def _mode_of_new_files(path: Path) -> int:
    """Return the permissions that a new file at `path` gets (the umask decides, or the folder's access list)."""
    path.unlink(missing_ok=True)
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    path.unlink()
    return mode


def _sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    folder = path.is_dir()
    if folder and os.name == "nt":  # Windows opens no folders
        return
    opened = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
