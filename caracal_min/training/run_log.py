"""The log of a run: JSON lines, and curves for TensorBoard if wanted; and its progress bar."""

import json
from pathlib import Path

from ..extras import missing
from ..files import writing
from ..progress import progress_bar as bar
from .recipe import TrainConfig

__all__ = ["RunLog", "progress_bar", "require_tensorboard"]


class RunLog:
    """One dictionary per training step, in memory and, with a folder, as lines of `log.jsonl`.

    Args:
        folder: of the run; None keeps the log in memory.
        kept: the entries so far as the checkpoint keeps them, bytes of lines; where the file differs, as after a kill,
            it is written anew from them.
        tensorboard: write `tensorboard/` beside it: every number of an entry but its step.

    Attributes:
        entries: the dictionaries.
        note: one line for the user if the file lacked some of these entries, else "".

    Raises:
        ImportError: TensorBoard is wanted and not installed.
        OSError: the file cannot be written.
    """

    def __init__(self, folder: Path | None, kept: bytes = b"", tensorboard: bool = False):
        self.path = None if folder is None else folder / "log.jsonl"
        self.entries: list[dict] = [json.loads(line) for line in kept.splitlines()]
        self.note = ""
        self._lines = bytearray(kept)
        if self.path is not None:
            self._rewrite(kept)
        self._board = None
        if tensorboard and folder is not None:
            self._board = require_tensorboard()(folder / "tensorboard", purge_step=len(self.entries) + 1)

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

    def _rewrite(self, kept: bytes) -> None:
        """Leave no other entries in the file than these."""
        there = self.path.read_bytes() if self.path.exists() else b""
        if there != kept:
            if not there.startswith(kept):
                self.note = (f"{self.path} did not hold the {len(self.entries)} steps of the checkpoint; written anew "
                             "from it")
            with writing(self.path) as partial:
                partial.write_bytes(kept)


def require_tensorboard() -> type:
    """Return the class that writes for TensorBoard.  Raises ImportError if it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise missing("tensorboard=True", "tensorboard", "train") from None
    return SummaryWriter


def progress_bar(config: TrainConfig, is_main: bool, end: int, step: int, seconds: float):
    """Return a bar of steps up to `end`, or of seconds under a budget in minutes; shown by the main process alone."""
    name = config.preset if config.out is None else config.out.name
    options = dict(desc=f"training {name}", show=config.progress and is_main)
    if config.minutes is None:
        return bar(total=end, initial=step, unit="step", **options)
    return bar(total=round(60 * config.minutes), initial=round(seconds), unit="s", **options)
