"""The log of a run: JSON lines, and curves for TensorBoard if wanted."""

import json
from pathlib import Path

__all__ = ["RunLog"]


class RunLog:
    """One dictionary per training step, in memory and, with a folder, as lines of `log.jsonl`.

    Args:
        folder: of the run; None keeps the log in memory.
        steps: entries to keep of an earlier log; later ones belong to steps that a kill undid.
        tensorboard: write `tensorboard/` beside it: every number of an entry but its step.

    Raises:
        ImportError: TensorBoard is wanted and not installed.
    """

    def __init__(self, folder: Path | None, steps: int = 0, tensorboard: bool = False):
        self.path = None if folder is None else folder / "log.jsonl"
        self.entries: list[dict] = []
        if self.path is not None:
            lines = self.path.read_text().splitlines()[:steps] if self.path.exists() else []
            self.entries = [json.loads(line) for line in lines]
            self.path.write_text("".join(line + "\n" for line in lines))
        self._board = _writer(folder, steps) if tensorboard and folder is not None else None

    def add(self, entry: dict) -> None:
        """Append an entry, which has `step`, to all of them."""
        self.entries.append(entry)
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps(entry) + "\n")
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


def _writer(folder: Path, steps: int):
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ImportError("tensorboard=True needs tensorboard: pip install 'caracal-min[train]'") from None
    return SummaryWriter(folder / "tensorboard", purge_step=steps + 1)
