"""The command `info`: what a preset or a trained model is made of."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ..config import find_preset
from ..training.settings import require_kinds, require_text
from ..version import __version__
from .command import Command, load_caracal

if TYPE_CHECKING:
    from ..model import Caracal
    from ..training.trained import Trained

__all__ = ["COMMAND", "InfoConfig"]


@dataclass(frozen=True)
class InfoConfig:
    """Describe a preset or a trained model: layers, parameters, tokenizer, how it was trained, versions."""

    preset: str = "tiny"
    """Size to describe: nano, micro, tiny, small, medium or large."""
    model: str | None = None
    """What to describe instead of a preset: name of a model that comes with the package, folder of a run or of a model,
    which train writes, or "owner/name" on the hub.  It may stand first, without --model."""

    def __post_init__(self):
        require_kinds(self)
        require_text(self, ("model",))
        find_preset(self.preset)


def run_info(config: InfoConfig) -> None:
    """Print what a model is made of, and what is known of its training."""
    import torch

    from ..model import Caracal

    if config.model is None:
        with torch.device("meta"):
            model, known = Caracal.from_preset(config.preset), {}
    else:
        trained = load_caracal(config.model)
        model = trained.model
        known = {"tokenizer": _tokenizer(model), "training": _training(trained)}
    print(f"caracal-min {__version__}, torch {torch.__version__}, "
          f"{torch.cuda.get_device_name() if torch.cuda.is_available() else 'no GPU'}")
    attention = model.config.attention_layers
    layers = "".join("A" if i in attention else "F" for i in range(model.config.n_layers))
    print(f"{config.model or config.preset}: {model.num_parameters():,} parameters, layers {layers} "
          "(F Fourier, A attention)")
    for name, value in (asdict(model.config) | known).items():
        print(f"  {name} = {value}")


def _tokenizer(model: "Caracal") -> str:
    """Return what is to say of the tokenizer of a model."""
    try:
        tokenizer = model.require_tokenizer()
    except ValueError as error:
        return f"unknown: {error}"
    return f"{tokenizer.name}, {tokenizer.vocab_size:,} ids, {tokenizer.end_of_text} ends a text"


def _training(trained: "Trained") -> str:
    """Return what the record beside a model says of its training."""
    from ..record import read_record

    if trained.step is not None:
        return f"not ended, at step {trained.step}"
    path = trained.run / "record.json"
    if not path.is_file():
        return "no record lies beside the model"
    try:
        record = read_record(path, require_commit=False)
    except (ValueError, ImportError) as error:
        return f"unknown: {error}"
    results, machine = record["results"], record["machine"]
    own = trained.run == trained.source.parent or results.get("model_sha256") == trained.sha256
    if record["kind"] != "train" or not own:
        return f"unknown: {path} is the record of another model"
    losses = [entry["validation_loss"] for entry in results["curve"] if "validation_loss" in entry]
    where = machine["processor"] if machine["device"] == "cpu" else machine["device"]
    return (f"{results['tokens']:,} tokens of {record['data']['source']} in {record['seconds'] / 60:,.1f} minutes on "
            f"{where}, validation loss {losses[-1] if losses else float('nan'):.4f} nats per token; "
            f"{record['finished'][:10]}, commit {(record['code']['commit'] or 'unknown')[:7]}")


COMMAND = Command(InfoConfig, run_info, for_preset=InfoConfig, first="model")
