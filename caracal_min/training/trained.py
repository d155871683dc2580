"""Goes when commands and tools load with `checkpoint.load_run`."""

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ..files import file_sha256
from ..locate import locate_model
from ..weights import CONFIG, WEIGHTS
from ..zoo.registry import load_model
from .checkpoint import CHECKPOINT, load_run

__all__ = ["Trained", "load_trained"]


@dataclass(frozen=True)
class Trained:
    """A model, the file of its weights, the folder of its run, and the step of its checkpoint."""

    model: nn.Module
    source: Path
    run: Path
    step: int | None = None
    note: str = ""

    @property
    def sha256(self) -> str:
        """Hash of the file of its weights."""
        return file_sha256(self.source)


def load_trained(name_or_folder: str | Path, gate_length: int | None = None) -> Trained:
    """Load a trained model, as `checkpoint.load_run`; a folder may hold a baseline too."""
    folder = Path(name_or_folder)
    finished = folder / "model" / CONFIG
    if (folder / CHECKPOINT).exists() and not finished.exists():
        cut = {} if gate_length is None else {"gate_length": gate_length}
        model, step = load_run(folder, **cut)
        note = f"{folder} has no finished model: this is the one of its checkpoint at step {step}"
        return Trained(model, folder / CHECKPOINT, folder, step, note)
    found = locate_model(finished.parent if finished.exists() else name_or_folder)
    own = (found / "record.json").is_file() or found != folder and not finished.exists()
    return Trained(load_model(found, gate_length), found / WEIGHTS, found if own else found.parent)
