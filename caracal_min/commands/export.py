"""The command `export`: a trained model as files for other runtimes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from ..training.settings import require_kinds, require_range, require_text
from .command import Command, load_caracal

__all__ = ["COMMAND", "ExportConfig"]

Format = Literal["onnx", "pt2", "web"]


@dataclass(frozen=True)
class ExportConfig:
    """Write a trained model as an ONNX file, as a torch.export program, or as scripts for a page in a browser."""

    model: str
    """Name of a model that comes with the package, folder of a run or of a model, which train writes, or "owner/name"
    on the hub; of a run that has not ended, the last checkpoint is taken.  It may stand first, without --model."""
    out: Path
    """File to write, name.onnx or name.pt2; for web a folder."""
    format: Format | None = None
    """onnx, pt2 or web; left out: as the name of the file ends.  web rounds the matrices to eight bits."""
    length: int | None = None
    """Tokens per sequence; the file holds this one length.  Not for web, which takes any."""
    batch: int = 1
    """Sequences per call; the file holds this one number."""
    gate_length: int | None = None
    """Cuts the gate after so many tokens, also of a model trained without; left out: as it was trained."""

    def __post_init__(self):
        require_kinds(self)
        require_text(self, ("model",))
        require_range(self, ("length", "batch", "gate_length"), low=1)
        if self.format is None:
            object.__setattr__(self, "format", self.out.suffix[1:])
        if self.format not in get_args(Format):
            raise ValueError(f"out={self.out}; give a name that ends in .onnx or .pt2, or a folder and --format web")
        if (self.length is None) != (self.format == "web"):
            raise ValueError("length is not given; give the tokens per sequence" if self.length is None else
                             f"length={self.length}, and a page takes any; leave it out")


def prepare_export(config: ExportConfig) -> ExportConfig:
    """Return the configuration.  Raises OSError where its files cannot be written."""
    from ..export import MANIFEST
    from ..record import require_writable

    require_writable(config.out / MANIFEST if config.format == "web" else config.out)
    return config


def run_export(config: ExportConfig) -> None:
    """Write the file or files."""
    import torch

    from ..export import export_onnx, export_program, export_web
    from ..files import writing

    model = load_caracal(config.model, config.gate_length).model
    if config.format == "web":
        manifest = export_web(model, config.out)
        print(f"{config.out} = {manifest['bytes'] / 1e6:.1f} MB of weights in {len(manifest['parts'])} scripts, "
              f"SHA-256 {manifest['digest']}")
        return
    with writing(config.out) as partial:
        if config.format == "onnx":
            export_onnx(model, partial, config.length, config.batch)
        else:
            with open(partial, "wb") as file:
                torch.export.save(export_program(model, config.length, config.batch), file)
    size = config.out.stat().st_size / 2**20
    print(f"{config.out} = {size:.1f} MiB, ids [{config.batch}, {config.length}] to logits")


COMMAND = Command(ExportConfig, run_export, prepare_export, first="model")
