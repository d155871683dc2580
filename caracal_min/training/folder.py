"""The folder of a run: it can be written, and what it holds fits together::

    checkpoint.safetensors            weights, optimizer state, random state, step, log (see `checkpoint`)
    checkpoint.previous.safetensors   the one before it
    log.jsonl                         one line per step: tokens, loss, grad_norm, ...; tensorboard/ has it as curves
    shards/                           the corpus as token shards, if it is neither the embedded one nor shards already
    tokenizer/                        written when the run begins: what it was given may be another file later
    model/                            config.json and model.safetensors, written at the end
    record.json                       what was run, where, on what, and its curve, written once, at the end (`record`)
    lock                              held by the process that works here

One process at a time works in it.
"""

import errno
import shutil
from pathlib import Path
from weakref import WeakValueDictionary

from filelock import FileLock, Timeout

from ..data.tokenizers import Tokenizer, save_tokenizer
from ..record import require_recordable
from .checkpoint import Checkpoints

__all__ = ["TOKENIZER", "RunFolder", "RunInUseError"]

TOKENIZER = "tokenizer"
"""Folder of the tokenizer in that of a run."""
_held: WeakValueDictionary[Path, "RunFolder"] = WeakValueDictionary()


class RunInUseError(OSError):
    """Another process works in the folder."""


class RunFolder:
    """The folder of a run, held for this process until it is closed or the process ends.

    The system frees the file `lock` in it, however the process ends.  Within one process the newest `RunFolder` of a
    path takes over, and an older one is refused from then on.

    Args:
        path: of the folder, made if absent.
        is_main: False for the other processes of a group: the main one makes, locks and writes the folder for all.

    Attributes:
        checkpoints: the last two checkpoints.
        model, record: where the trained model and the record of the run are written.

    Raises:
        OSError: it is a file, or cannot be written; another process works in it (`RunInUseError`).
    """

    def __init__(self, path: Path, is_main: bool = True):
        self.path, self.model, self.record = path, path / "model", path / "record.json"
        self._lock: FileLock | None = None
        self._is_main = is_main
        if is_main:
            require_recordable(self.record)
            path.mkdir(parents=True, exist_ok=True)
            self._hold()
        self.checkpoints = Checkpoints(path)

    @property
    def complete(self) -> bool:
        """Whether the record of the finished run is there."""
        return self.record.exists()

    def require_held(self) -> None:
        """Raise RunInUseError once it was closed, or another `RunFolder` of this process has taken the folder over."""
        if self._is_main and self._lock is None:
            raise RunInUseError(f"{self.path} was closed, or taken over by a later run of this process; "
                                "build the run again")

    def require_space(self, parameters: int) -> None:
        """Raise OSError unless the disk has room for three checkpoints (one in the making) and a model in float32.

        The main process asks, for all: another one may come here before the folder is made.  A finished run needs none,
        and a checkpoint that a kill has left in the making is written over.
        """
        if not self._is_main or self.complete:
            return
        there = sum(path.stat().st_size for path in self.path.glob("checkpoint*.safetensors*"))
        needed, free = 4 * parameters * (3 * 3 + 1) - there, shutil.disk_usage(self.path).free
        if free < needed:
            raise OSError(errno.ENOSPC, f"{self.path} is on a disk with {free / 1e6:,.0f} MB free, the run needs "
                          f"{needed / 1e6:,.0f} MB for two checkpoints, one in the making, and the model; make room, "
                          "or give another place")

    def keep_tokenizer(self, tokenizer: Tokenizer, begins: bool) -> None:
        """Write the tokenizer of a run, if it begins."""
        if self._is_main and begins and not self.complete:
            save_tokenizer(tokenizer, self.path / TOKENIZER)

    def close(self) -> None:
        """Let other processes work in the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _hold(self) -> None:
        place = self.path.resolve()
        earlier = _held.get(place)
        if earlier is not None and earlier._lock is not None:
            self._lock, earlier._lock = earlier._lock, None
        else:
            lock = FileLock(place / "lock", timeout=0, thread_local=False)
            try:
                lock.acquire()
            except Timeout:
                raise RunInUseError(f"{self.path} is in use by another process; wait until it has ended, or give "
                                    "another folder") from None
            self._lock = lock
        _held[place] = self
