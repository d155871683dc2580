"""The log of a run: JSON lines, and curves for TensorBoard if wanted; and its progress bar."""

import json
import math
from pathlib import Path
from typing import NoReturn

from ..extras import missing
from ..files import writing
from ..progress import progress_bar as bar
from .recipe import TrainConfig

__all__ = ["RunLog", "progress_bar", "require_tensorboard"]

_NUMBERS = ("loss", "learning_rate", "seconds")


class RunLog:
    """One dictionary per training step, in memory and, with a folder, as lines of `log.jsonl`.

    Args:
        folder: of the run; None keeps the log in memory.
        steps: entries of an earlier log that hold; later ones belong to steps that a kill undid.
        kept: these entries as their checkpoint keeps them, bytes of lines; where the file differs it is written anew
            from them.  None: the checkpoint keeps none (an earlier version wrote it), so the file itself must hold.
        tensorboard: write `tensorboard/` beside it: every number of an entry but its step.

    Attributes:
        entries: the dictionaries.
        note: one line for the user if the file had to be written anew, else "".

    Raises:
        ValueError: the file does not hold `steps` whole entries, and no checkpoint keeps them.
        ImportError: TensorBoard is wanted and not installed.
        OSError: the file cannot be written.
    """

    def __init__(self, folder: Path | None, steps: int = 0, kept: bytes | None = None, tensorboard: bool = False):
        self.path = None if folder is None else folder / "log.jsonl"
        self.entries: list[dict] = []
        self.note = ""
        self._lines = bytearray()
        if self.path is not None:
            self._open(steps, kept)
        self._board = _writer(folder, steps) if tensorboard and folder is not None else None

    @property
    def lines(self) -> bytes:
        """The file's bytes, as a checkpoint keeps them."""
        return bytes(self._lines)

    def add(self, entry: dict) -> None:
        """Append an entry, which has `step`, to all of them.

        Raises:
            ValueError: a number in it is not finite.
            OSError: the file cannot be written.
        """
        line = (json.dumps(entry, allow_nan=False) + "\n").encode()
        self.entries.append(entry)
        if self.path is not None:
            self._lines += line
            try:
                with open(self.path, "ab") as file:
                    file.write(line)
            except OSError as error:
                raise OSError(f"{self.path} could not be written ({error}); the last checkpoint is unchanged: make "
                              "room, and start the same command again") from error
        if self._board is not None:
            for name, value in entry.items():
                if name == "sample":
                    self._board.add_text(name, value, entry["step"])
                elif name != "step" and value is not None:
                    self._board.add_scalar(name, value, entry["step"])

    def curve(self, limit: int = 1000) -> list[dict]:
        """Return about `limit` entries, evenly spaced; with them the last, and all that were measured or sampled."""
        every = -(-len(self.entries) // limit)
        return [entry for i, entry in enumerate(self.entries, 1)
                if i % every == 0 or i == len(self.entries) or "validation_loss" in entry or "sample" in entry]

    def close(self) -> None:
        """Bring everything to the disk."""
        if self._board is not None:
            self._board.close()

    def _open(self, steps: int, kept: bytes | None) -> None:
        """Take over the entries of the steps that hold, and leave no others in the file."""
        there = self.path.read_bytes() if self.path.exists() else b""
        lines = b"".join(there.splitlines(keepends=True)[:steps]) if kept is None else kept
        self.entries = _entries(self.path, lines, steps)
        self._lines += lines
        if there != lines:
            if not there.startswith(lines):
                self.note = f"{self.path} did not hold the {steps} steps of the checkpoint; written anew from it"
            with writing(self.path) as partial:
                partial.write_bytes(lines)


def _entries(path: Path, lines: bytes, steps: int) -> list[dict]:
    """Read the entries of steps 1, 2, ..., each whole, or raise ValueError."""
    entries = []
    for number, line in enumerate(lines.splitlines(), 1):
        try:
            entry = json.loads(line, parse_constant=_no_number)
            whole = entry["step"] == number and all(math.isfinite(entry[name]) for name in _NUMBERS)
        except (ValueError, TypeError, KeyError):
            whole = False
        if not whole:
            raise ValueError(f"{path} is damaged in line {number}, which is not the entry of step {number}; "
                             "restore it, or choose another folder")
        entries.append(entry)
    if len(entries) != steps:
        raise ValueError(f"{path} holds {len(entries)} of the {steps} steps of the checkpoint beside it; "
                         "restore it, or choose another folder")
    return entries


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


def _writer(folder: Path, steps: int):
    return require_tensorboard()(folder / "tensorboard", purge_step=steps + 1)


def require_tensorboard() -> type:
    """Return the class that writes for TensorBoard.  Raises ImportError if it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise missing("tensorboard=True", "tensorboard", "train") from None
    return SummaryWriter


def progress_bar(config: TrainConfig, is_main: bool, end: int, step: int, seconds: float):
    """Return a bar of steps up to `end`, or of seconds under a budget in minutes; shown by the main process alone."""
    options = dict(desc=f"training {config.preset}", show=config.progress and is_main)
    if config.minutes is None:
        return bar(total=end, initial=step, unit="step", **options)
    return bar(total=round(60 * config.minutes), initial=round(seconds), unit="s", **options)
