"""The model of a run: the finished one, or, of a run that was stopped or killed, the one of its last checkpoint."""

import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import hf_hub_download

from ..files import file_sha256
from ..language_model import LanguageModel
from ..weights import CONFIG, WEIGHTS
from ..zoo.registry import load_model, make_model
from .checkpoint import Checkpoints, DamagedError, read_checkpoint, weights_of
from .recipe import TrainConfig

__all__ = ["Trained", "load_trained"]

_EMBEDDING = re.compile(r"\bembed\w*\.weight$")  # of Caracal and of the baselines


@dataclass(frozen=True)
class Trained:
    """A model, and where its weights come from."""

    model: LanguageModel
    """It, on the CPU, for measuring and generating."""
    source: Path | str
    """File of its weights, or the repository of the hub that has them."""
    run: Path | None = None
    """Folder of its run, which has the record if it is a finished one; None: it is of the hub."""
    step: int | None = None
    """Step of the checkpoint; None: it is a finished model."""
    note: str = ""
    """One line for the user if it is not a finished model, else ""."""

    @property
    def sha256(self) -> str:
        """Hash of the file of its weights; of a finished model the one that the record of its training has."""
        return file_sha256(self.source if self.run else Path(hf_hub_download(self.source, WEIGHTS)))

    def give_to(self, model: LanguageModel) -> None:
        """Copy the weights into a model of the same kind and size, which may have another gate length.

        Raises:
            ValueError: it has other weights.
        """
        given, expected = ({name: t.shape for name, t in weights_of(which).items()} for which in (self.model, model))
        if given != expected:
            kinds = [f"{type(which).__name__} of {which.num_parameters():,}" for which in (self.model, model)]
            raise ValueError(f"the weights of {self.source} are not those of the model that is to start from them ("
                             f"{kinds[0]} parameters, and {kinds[1]}); give the same architecture, preset, variant and "
                             "tokenizer")
        model.load_state_dict(self.model.state_dict())


def load_trained(folder_or_repo: str | Path, gate_length: int | None = None) -> Trained:
    """Load a trained model.

    Args:
        folder_or_repo: folder of a run, whose finished model is taken, and its last whole checkpoint where there is
            none; folder of a model; or "owner/name" on the hub.
        gate_length: as `zoo.load_model`.

    Raises:
        FileNotFoundError, ValueError, ImportError: as `zoo.load_model`; a checkpoint that is damaged, or whose model is
            none of `zoo.make_model`.

    Example:
        >>> load_trained("runs/nano").model    # doctest: +SKIP
    """
    folder = Path(folder_or_repo)
    if not (folder / CONFIG).is_file():
        if (folder / "model" / CONFIG).is_file():
            folder = folder / "model"
        elif Checkpoints(folder).paths:
            return _from_checkpoint(folder, gate_length)
        elif folder.name == "model" and not folder.exists() and Checkpoints(folder.parent).paths:
            raise FileNotFoundError(f"{folder} is not there, the run has not ended; give {folder.parent}, and its last "
                                    "checkpoint is taken")
        elif folder.exists():
            raise FileNotFoundError(f"{folder} is no folder with a model or a checkpoint; give that of a run, or of a "
                                    "model, which train writes")
    model = load_model(folder, gate_length)
    if not folder.is_dir():
        return Trained(model, str(folder_or_repo))
    return Trained(model, folder / WEIGHTS, folder.resolve().parent)


def _from_checkpoint(folder: Path, gate_length: int | None) -> Trained:
    """Load the model of the newest checkpoint that is whole."""
    damage: list[DamagedError] = []
    for path in Checkpoints(folder).paths:
        try:
            stored, tensors = read_checkpoint(path)
        except DamagedError as error:
            damage.append(error)
            continue
        model = _built(path, stored["settings"], tensors, gate_length)
        note = (f"{folder} has no finished model: this is the one of its checkpoint at step {stored['step']}"
                + (f", since {damage[0]}" if damage else ""))
        return Trained(model, path, folder, stored["step"], note)
    raise DamagedError(f"{folder} has no finished model, and {damage[0]}; restore it, or train again")


def _built(path: Path, settings: dict, tensors: dict, gate_length: int | None) -> LanguageModel:
    """Build the model that some settings describe, and give it the weights of a checkpoint."""
    known = TrainConfig.defaults() | settings
    weights = {name: t for name, t in tensors.items() if name.startswith("model.")}
    sizes = [len(t) for name, t in weights.items() if _EMBEDDING.search(name)]
    cut = {} if gate_length is None else {"gate_length": gate_length}
    try:
        changes = TrainConfig(model=tuple(known["model"])).model_changes | cut
        model = make_model(known["architecture"], known["preset"], known["variant"], sizes[0] if sizes else None,
                           known["context"], **changes)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: the model of its run cannot be built ({error})") from None
    expected = {name: (t.shape, t.dtype) for name, t in weights_of(model).items()}
    if expected != {name: (t.shape, t.dtype) for name, t in weights.items()}:
        raise ValueError(f"{path} does not hold the weights of a {known['architecture']} of the preset "
                         f"{known['preset']}, as its settings say; a run of a model of one's own is loaded by its own "
                         "program")
    model.load_state_dict({name.removeprefix("model."): t for name, t in weights.items()}, strict=False)
    return model.eval()
