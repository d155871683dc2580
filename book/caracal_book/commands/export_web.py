"""The command `export-web`: a trained model as scripts for a page."""

from dataclasses import dataclass
from pathlib import Path

from ..rivals import load_model
from ..web_export import export_web

__all__ = ["ExportWebConfig", "run_export_web"]


@dataclass(frozen=True)
class ExportWebConfig:
    """Write a trained Caracal as scripts for a page in a browser, its matrices rounded to eight bits."""

    model: str
    """Name of a shipped model, or folder of one."""
    out: Path
    """Folder of the scripts."""
    gate_length: int | None = None
    """Cuts the gate after so many tokens, also of a model trained without; left out: as it was trained."""


def run_export_web(config: ExportWebConfig) -> None:
    """Write the scripts, and say how large they are."""
    manifest = export_web(load_model(config.model, config.gate_length), config.out)
    print(f"{config.out} = {manifest['bytes'] / 1e6:.1f} MB of weights in {len(manifest['parts'])} scripts, "
          f"SHA-256 {manifest['digest']}")
