"""Files that are written whole or not at all, and their hashes."""

import errno
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

__all__ = ["file_sha256", "reading_folder", "writing", "writing_folder"]

_LONGEST_WAIT = 60  # seconds for another process that renames its files
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
    now: list[str] = []
    with _named(path, now):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            mode = _mode_of_new_files(partial)
            yield partial
            os.chmod(partial, mode)
            _sync(partial)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        now.append("the new file is in place")
        _sync(path.parent)


@contextmanager
def writing_folder(folder: Path, last: str,
                   replaced: Callable[[set[str]], Iterable[str]] = lambda written: ()) -> Iterator[Path]:
    """Give an empty folder; the files that the body writes there move into `folder` when it ends without an error.

    For files that mean something together only, such as weights and their configuration.  `last` names the one without
    which readers take none of the others: the old one goes first, and the new one comes after all others.  So a kill
    leaves the old files, or the new ones, or, between two renamings, no file `last`, but never an old one beside new
    others.  An error leaves the old files, or, between two renamings, says where the new ones are; Ctrl-C there waits
    for the new ones.  Names that the body does not write stay as they are, but for what belongs to an old `last`:
    patterns that `replaced` returns for the names that were written.  These files go with it.  `folder` is made if
    absent.  Permissions are those of `writing`.  Several processes may write at once, and the files of one of them
    stay (not so on Windows and some network disks, which cannot lock a folder: there they have to write the same
    ones); so what a killed call left is removed after a day.

    Raises:
        OSError: a file cannot be written, or a folder has its name; in one line that names the folder.
    """
    written: list[Path] = []
    gone: list[Path] = []
    now: list[str] = []
    with _named(folder, now):
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(".partial-*") if (folder / last).exists() else ():
            with suppress(FileNotFoundError):  # of a call that ends just now
                if time.time() - left.stat().st_mtime > _STALE:
                    shutil.rmtree(left, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
        try:
            mode = _mode_of_new_files(new / "new")
            yield new
            for file in new.iterdir():
                os.chmod(file, mode)
                _sync(file)
            with _alone(folder):
                written = sorted(new.iterdir(), key=lambda file: file.name == last)
                names = {file.name for file in written}
                if last in names:
                    gone = [file for name in (last, *replaced(names)) for file in folder.glob(name)
                            if name == last or file.name not in names]
                for file in (*gone, *(folder / name for name in names)):
                    if file.is_dir() and not file.is_symlink():
                        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
                try:
                    _move(written, gone, folder)
                except OSError:
                    raise
                except BaseException:
                    _move(written, gone, folder)
                    raise
        finally:
            now += _replaced_so_far(written, gone)
            if not _half_replaced(written, gone):
                shutil.rmtree(new, ignore_errors=True)


@contextmanager
def reading_folder(folder: Path, last: str, hashes: str) -> Iterator[None]:
    """Let the body read files that `writing_folder` has written, and refuse them where they were written meanwhile.

    Args:
        last: as there.
        hashes: the file that has hashes of the others; where it is not, times tell whether `last` was replaced.

    Raises:
        ValueError: one of the two has come, gone, or been replaced, in one line.
    """
    before = _stamp(folder / last, folder / hashes)
    yield
    if _stamp(folder / last, folder / hashes) != before:
        raise ValueError(f"{folder} was saved anew while it was read; read it again")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _named(path: Path, now: Sequence[str] = ()) -> Iterator[None]:
    """Turn what the disk and safetensors report into one line that names the file, and says what is there now."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        state = [*now, "what was there is unchanged: make room, or give another place"][0]
        raise OSError(f"{path} could not be written ({error}); {state}") from error


def _half_replaced(written: list[Path], gone: list[Path]) -> bool:
    """Say whether some of the files have been moved, or of the old ones removed, and others have not."""
    left = [file.exists() for file in written]
    return any(left) and not (all(left) and all(file.exists() for file in gone))


def _replaced_so_far(written: list[Path], gone: list[Path]) -> list[str]:
    """Return what is there now, and what there is to do; nothing where nothing has changed."""
    if _half_replaced(written, gone):
        old = " and ".join(file.name for file in gone if file.exists())
        return [f"it is half replaced: {old and f'remove {old}, then '}move what is in {written[0].parent} into it, "
                f"{written[-1].name} last"]
    return ["the new files are in place"] if written and not written[0].exists() else []


def _move(written: list[Path], gone: list[Path], folder: Path) -> None:
    """Remove the old files and rename the new ones, the last one last; what was broken off goes on where it was."""
    if gone and written[-1].exists():
        for file in gone:
            file.unlink(missing_ok=True)
        _sync(folder)
    for file in written:
        if file.exists():
            os.replace(file, folder / file.name)
        _sync(folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process, and thread, at a time run the body, where the system can lock a folder."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    opened = os.open(folder, os.O_RDONLY)
    try:
        end = time.monotonic() + _LONGEST_WAIT
        while True:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise BlockingIOError(errno.EWOULDBLOCK, "another program holds a lock on it") from None
                time.sleep(0.01)
                continue
            except OSError:  # no folder can be locked there
                pass
            break
        yield
    finally:
        with suppress(OSError):  # else a process that was forked meanwhile would hold it on
            fcntl.flock(opened, fcntl.LOCK_UN)
        os.close(opened)


def _stamp(last: Path, hashes: Path) -> tuple | None:
    """Return what tells files from others that took their names; None: there are none."""
    with suppress(OSError):
        if hashes.is_file():
            return file_sha256(last), file_sha256(hashes)
        found = last.stat()
        return file_sha256(last), found.st_ino, found.st_mtime_ns
    return None


def _mode_of_new_files(path: Path) -> int:
    """Return the permissions that a new file at `path` gets (the umask decides, or the folder's access list)."""
    path.unlink(missing_ok=True)
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    path.unlink()
    return mode


def _sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk, where it takes folders: some network disks do not."""
    folder = path.is_dir()
    if folder and os.name == "nt":  # Windows opens no folders
        return
    opened = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(opened)
    except OSError as error:
        if not folder or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(opened)
