"""The command `info`: what a preset or a trained model is made of."""

from dataclasses import asdict, dataclass

import torch

from ..model import Caracal
from ..training.settings import require_kinds, require_text
from ..version import __version__
from ..zoo.registry import check_kind
from .command import load_caracal

__all__ = ["InfoConfig", "run_info"]


@dataclass(frozen=True)
class InfoConfig:
    """Describe a preset or a trained model: layers, parameters, versions."""

    preset: str = "tiny"
    """Size to describe: nano, micro, tiny, small, medium or large."""
    model: str | None = None
    """What to describe instead of a preset: a folder that train wrote, of a run or of a model, or "owner/name" on the
    hub."""

    def __post_init__(self):
        require_kinds(self)
        check_kind("caracal", self.preset, "default")
        require_text(self, ("model",))


def run_info(config: InfoConfig) -> None:
    """Print what a model is made of."""
    if config.model is not None:
        model = load_caracal(config.model)
    else:
        with torch.device("meta"):
            model = Caracal.from_preset(config.preset)
    attention = model.config.attention_layers
    layers = "".join("A" if i in attention else "F" for i in range(model.config.n_layers))
    print(f"caracal-min {__version__}, torch {torch.__version__}, "
          f"{torch.cuda.get_device_name() if torch.cuda.is_available() else 'no GPU'}")
    print(f"{config.model or config.preset}: {model.num_parameters():,} parameters, layers {layers} "
          "(F Fourier, A attention)")
    for name, value in asdict(model.config).items():
        print(f"  {name} = {value}")
