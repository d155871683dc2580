"""The model of a run: the one that it begins with, the finished one, or the one of its last checkpoint."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ..data.tokenizers import Tokenizer, load_tokenizer, tokenizer_sha256
from ..files import file_sha256
from ..language_model import LanguageModel
from ..locate import locate_model, shipped_models
from ..weights import CONFIG, WEIGHTS
from ..zoo.registry import load_model, make_model
from .checkpoint import Checkpoints, weights_of
from .folder import TOKENIZER
from .recipe import TrainConfig, model_changes

__all__ = ["Trained", "initial_model", "load_trained"]

_EMBEDDING = re.compile(r"\bembed\w*\.weight$")  # of Caracal and of the baselines
# What the weights compute depends on these fields, and no shape does; their names here and in `transformers`.
_WITHOUT_TENSORS = {"n_heads": "num_attention_heads", "window_size": "", "gate_length": ""}


@dataclass(frozen=True)
class Trained:
    """A model, and where its weights come from."""

    model: LanguageModel
    """It, on the CPU, for measuring and generating."""
    source: Path
    """File of its weights."""
    run: Path
    """Folder that has the record of its training, if there is one: of the run, or of the model itself."""
    step: int | None = None
    """Step of the checkpoint; None: it is a finished model."""
    facts: dict | None = None
    """What that checkpoint says of its run."""
    note: str = ""
    """One line for the user if it is not a finished model, else ""."""

    @property
    def sha256(self) -> str:
        """Hash of the file of its weights; of a finished model the one that the record of its training has."""
        return file_sha256(self.source)

    def give_to(self, model: LanguageModel, tokenizer: Tokenizer, changes: Collection[str] | None) -> None:
        """Copy the weights into a model of the same kind and size.

        Args:
            tokenizer: of the text that it is going to read.
            changes: fields of `CaracalConfig` that may be others than those of this one; None: all, and the tokenizer.

        Raises:
            ValueError: it has other weights, another tokenizer, or another field that is not among the changes.
        """
        given, expected = ({name: t.shape for name, t in weights_of(which).items()} for which in (self.model, model))
        if given != expected:
            kinds = [f"{type(which).__name__} of {which.num_parameters():,}" for which in (self.model, model)]
            raise ValueError(f"the weights of {self.source} are not those of the model that is to start from them ("
                             f"{kinds[0]} parameters, and {kinds[1]}); give the same architecture, preset, variant and "
                             "tokenizer")
        if changes is not None:
            self._require_same(model, tokenizer, changes)
        model.load_state_dict(self.model.state_dict())

    def _require_same(self, model: LanguageModel, tokenizer: Tokenizer, changes: Collection[str]) -> None:
        """Raise ValueError, in one line, for another tokenizer or another field that is not among the changes."""
        own = self.model.tokenizer
        if own is not None and tokenizer_sha256(own) != tokenizer_sha256(tokenizer):
            raise ValueError(f"{self.source} was trained with another tokenizer than {tokenizer.name}, whose ids mean "
                             "other text; give the one that it was trained with")
        for name, theirs in _WITHOUT_TENSORS.items():
            old, new = (getattr(which.config, name, getattr(which.config, theirs, None))
                        for which in (self.model, model))
            if old != new and name not in changes:
                raise ValueError(f"{self.source} was trained with {name}={old}, and what is to start from it has "
                                 f"{name}={new}; give the one that you want, with --model {name}=...")


def load_trained(name_or_folder: str | Path, gate_length: int | None = None) -> Trained:
    """Load a trained model.

    Args:
        name_or_folder: folder of a run, whose finished model is taken, and its last whole checkpoint where there is
            none; or what `Caracal.from_pretrained` takes: a shipped name, a folder of a model, "owner/name" on the hub.
        gate_length: as `zoo.load_model`.

    Raises:
        FileNotFoundError, ValueError, ImportError: as `zoo.load_model`; a checkpoint that is damaged, or whose model is
            none of `zoo.make_model`.

    Example:
        >>> load_trained("runs/nano").model    # doctest: +SKIP
    """
    folder, shipped = Path(name_or_folder), name_or_folder in shipped_models()
    if not shipped and not (folder / CONFIG).is_file():
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
    found = locate_model(name_or_folder if shipped else folder)
    run = found.parent if found == folder and not (found / "record.json").is_file() else found
    return Trained(load_model(found, gate_length), found / WEIGHTS, run)


def initial_model(config: TrainConfig, tokenizer: Tokenizer, own: LanguageModel | None = None,
                  start: Trained | None = None) -> LanguageModel:
    """Return the model that a run trains: `own`, or what the settings describe, with the weights of `start` if given.

    Raises:
        ValueError: no such model; it has fewer ids than the tokenizer, other weights than `start`, or cannot draw the
            samples that the settings ask for.
    """
    ids = tokenizer.vocab_size
    model = own if own is not None else make_model(config.architecture, config.preset, config.variant, ids,
                                                   config.context, **model_changes(config.model))
    if model.config.vocab_size < ids:
        raise ValueError(f"the model has {model.config.vocab_size} ids and the tokenizer {tokenizer.name} has {ids}; "
                         "give a model with as many, or another tokenizer")
    if config.prompt and not hasattr(model, "generate"):
        raise ValueError(f"prompt={config.prompt!r}, and a {type(model).__name__} cannot generate; leave it empty")
    if start is not None:
        start.give_to(model, tokenizer, model_changes(config.model) if own is None else None)
    model.tokenizer = tokenizer
    return model


def _from_checkpoint(folder: Path, gate_length: int | None) -> Trained:
    """Load the model of the newest checkpoint that is whole."""
    checkpoint = Checkpoints(folder).read()
    model = _built(checkpoint.path, checkpoint.facts["settings"], checkpoint.tensors, gate_length)
    step = checkpoint.facts["step"]
    note = f"{folder} has no finished model: this is the one of its checkpoint at step {step}"
    note += f" ({checkpoint.note})" if checkpoint.note else ""
    return Trained(model, checkpoint.path, folder, step, checkpoint.facts, note)


def _built(path: Path, settings: dict, tensors: dict, gate_length: int | None) -> LanguageModel:
    """Build the model that some settings describe, and give it the weights of a checkpoint."""
    if settings["preset"] is None:
        raise ValueError(f"{path} holds the weights of a model of one's own, {settings['architecture']}; only the "
                         "program that built it can load them")
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    vocab_size = next(len(t) for name, t in weights.items() if _EMBEDDING.search(name))
    cut = {} if gate_length is None else {"gate_length": gate_length}
    model = make_model(settings["architecture"], settings["preset"], settings["variant"], vocab_size,
                       settings["context"], **(model_changes(settings["model"]) | cut))
    model.load_state_dict(weights, strict=False)  # those of tied weights are not in the file
    model.take_tokenizer(lambda: load_tokenizer(path.parent / TOKENIZER))
    return model.eval()
