"""The command `export`: a trained model as a file for other runtimes."""

from dataclasses import dataclass
from pathlib import Path

from ..training.settings import require_kinds, require_range, require_text
from .command import Command, load_caracal

__all__ = ["COMMAND", "ExportConfig"]


@dataclass(frozen=True)
class ExportConfig:
    """Write a trained model as an ONNX file, or as a torch.export program if the name ends in .pt2."""

    model: str
    """Name of a model that comes with the package, folder of a run or of a model, which train writes, or "owner/name"
    on the hub; of a run that has not ended, the last checkpoint is taken.  It may stand first, without --model."""
    out: Path
    """File to write: name.onnx or name.pt2."""
    length: int
    """Tokens per sequence; the file holds this one length."""
    batch: int = 1
    """Sequences per call; the file holds this one number."""
    gate_length: int | None = None
    """Cuts the gate after so many tokens, also of a model trained without; left out: as it was trained."""

    def __post_init__(self):
        require_kinds(self)
        require_text(self, ("model",))
        require_range(self, ("length", "batch", "gate_length"), low=1)
        if self.out.suffix not in (".onnx", ".pt2"):
            raise ValueError(f"out={self.out}; give a name that ends in .onnx or .pt2")


def prepare_export(config: ExportConfig) -> ExportConfig:
    """Return the configuration.  Raises OSError where its file cannot be written."""
    from ..record import require_writable

    require_writable(config.out)
    return config


def run_export(config: ExportConfig) -> None:
    """Write the file."""
    import torch

    from ..export import export_onnx, export_program
    from ..files import writing

    model = load_caracal(config.model, config.gate_length).model
    with writing(config.out) as partial:
        if config.out.suffix == ".onnx":
            export_onnx(model, partial, config.length, config.batch)
        else:
            with open(partial, "wb") as file:
                torch.export.save(export_program(model, config.length, config.batch), file)
    size = config.out.stat().st_size / 2**20
    print(f"{config.out} = {size:.1f} MiB, ids [{config.batch}, {config.length}] to logits")


COMMAND = Command(ExportConfig, run_export, prepare_export, first="model")
