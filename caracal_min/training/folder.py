"""The folder of a run: it can be written, one process at a time works in it, and what it holds fits together."""

import errno
import os
import shutil
import socket
from pathlib import Path
from typing import IO
from weakref import WeakValueDictionary

from ..record import require_recordable
from .checkpoint import Checkpoints

__all__ = ["RunFolder", "RunInUseError"]

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL}
_held: WeakValueDictionary[Path, "RunFolder"] = WeakValueDictionary()


class RunInUseError(OSError):
    """Another process works in the folder."""


class RunFolder:
    """The folder of a run, held for this process until it is closed or the process ends.

    The file `lock` in it is locked by the system, which frees it however the process ends.  Within one process the
    newest `RunFolder` of a path takes over, and an older one is refused from then on.

    Args:
        path: of the folder, made if absent.
        is_main: False for the other processes of a group: the main one makes, locks and writes the folder for all.

    Attributes:
        checkpoints: the last two checkpoints.
        model, record: where the trained model and the record of the run are written.

    Raises:
        OSError: it is a file, or cannot be written; another process works in it (`RunInUseError`).
        ImportError: jsonschema, which the record needs, is not installed.
    """

    def __init__(self, path: Path, is_main: bool = True):
        self.path, self.model, self.record = path, path / "model", path / "record.json"
        self._file: IO | None = None
        self._is_main = is_main
        if is_main:
            _make(path)
            require_recordable(self.record)
            self._lock()
        self.checkpoints = Checkpoints(path)

    @property
    def complete(self) -> bool:
        """Whether the record of the finished run is there."""
        return self.record.exists()

    def require_held(self) -> None:
        """Raise RunInUseError once it was closed, or another `RunFolder` of this process has taken the folder over."""
        if self._is_main and self._file is None:
            raise RunInUseError(f"{self.path} was closed, or taken over by a later run of this process; "
                                "build the run again")

    def require_space(self, parameters: int) -> None:
        """Raise OSError unless the disk has room for three checkpoints (one in the making) and a model in float32.

        The main process asks, for all: another one may come here before the folder is made.
        """
        if not self._is_main:
            return
        there = sum(path.stat().st_size for path in self.path.glob("checkpoint*.safetensors"))
        needed, free = 4 * parameters * (3 * 3 + 1) - there, shutil.disk_usage(self.path).free
        if free < needed:
            raise OSError(errno.ENOSPC, f"{self.path} is on a disk with {free / 1e6:,.0f} MB free, the run needs "
                          f"{needed / 1e6:,.0f} MB for two checkpoints, one in the making, and the model; make room, "
                          "or give another place")

    def close(self) -> None:
        """Let other processes work in the folder."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _lock(self) -> None:
        place = self.path.resolve()
        earlier = _held.get(place)
        if earlier is not None and earlier._file is not None:
            self._file, earlier._file = earlier._file, None
        else:
            self._file = open(place / "lock", "a+", encoding="utf-8")
            try:
                _take(self._file)
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    print(f"{self.path} is on a file system without locks: start no second process in it")
                else:
                    self._file.seek(0)
                    who = self._file.read().strip() or "another process"
                    self.close()
                    raise RunInUseError(f"{self.path} is in use by {who}; wait until it has ended, or give another "
                                        "folder") from None
            self._file.truncate(0)
            try:  # without a buffer, which closing would try to write once more
                os.write(self._file.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode())
            except OSError as error:
                self.close()
                raise OSError(error.errno, f"{place / 'lock'} could not be written ({error.strerror}); make room, or "
                              "give another place") from None
        _held[place] = self


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(f"{path} is a file, or lies in one; give the name of a folder") from None
    except OSError as error:
        raise type(error)(error.errno, f"{path} cannot be made ({error.strerror}); give another place, or ask for "
                          "permission") from None


def _take(file: IO) -> None:
    """Lock a file for this process; OSError if another has it."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        file.seek(1 << 30)  # beyond what is read
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
