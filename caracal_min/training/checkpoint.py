"""The state of a training run in one safetensors file: written atomically, read without pickle::

    model.<name>               weights
    optimizer.<i>.<name>       moments and step count of parameter i, in the order of the optimizer's groups
    random.cpu, random.cuda    states of torch's generators
    log                        the run's log up to here, bytes of JSON lines
    metadata                   JSON: step, settings, digest of the corpus, the processes that took part; SHA-256 of all

The last two are kept.  A file that does not match its hash is passed over for the one before it.  The hash finds
accidents, not forgers.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from ..files import writing

__all__ = ["Checkpoint", "Checkpoints", "DamagedError", "not_finite", "weights_of"]

_NEWEST, _PREVIOUS, _FORMAT = "checkpoint.safetensors", "checkpoint.previous.safetensors", "caracal-checkpoint-3"


class DamagedError(ValueError):
    """A checkpoint that is not as it was written, or not of this model."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that has been read and is whole."""

    path: Path
    """Its file."""
    facts: dict
    """Where the run stands, and what must be equal for it to go on."""
    tensors: dict[str, Tensor]
    """Weights, optimizer state, random states and log, on the CPU."""
    sha256: str
    """Hash of all that is in it."""
    note: str = ""
    """One line for the user if the newer file is damaged and this is the one before it, else ""."""

    def require_settings(self, settings: dict) -> None:
        """Raise ValueError, in one line, if the run has another setting."""
        before, after = self.facts["settings"], json.loads(json.dumps(settings))
        for name in sorted(before.keys() | after.keys()):
            if (old := before.get(name)) != (new := after.get(name)):
                raise ValueError(f"{self.path.parent} holds a run with {name}={old!r}, now {new!r}; resume with the "
                                 "same settings, or choose another folder")

    def restore(self, model: nn.Module, optimizer: Optimizer, corpus: str) -> bytes:
        """Give its state to a model, an optimizer and torch's generators, and return the log.

        Args:
            corpus: digest of the data.

        Raises:
            ValueError: it is of a run on other data, or of another model of one's own.
        """
        if self.facts["corpus"] != corpus:
            raise ValueError(f"{self.path.parent} holds a run on other data (its hash differs); resume with the same "
                             "data, or choose another folder")
        weights = {name: (t.shape, t.dtype) for name, t in weights_of(model).items()}
        stored = {name: (t.shape, t.dtype) for name, t in self.tensors.items() if name.startswith("model.")}
        if different := {name for name, _ in weights.items() ^ stored.items()}:
            name = min(different)
            raise ValueError(f"{self.path} does not hold the state of this model: {name} is "
                             f"{stored.get(name, 'missing')}, expected {weights.get(name, 'nothing')}")
        model.load_state_dict({name.removeprefix("model."): self.tensors[name] for name in stored},
                              strict=False)  # names were compared; those of tied weights are not in the file
        state: dict[int, dict] = {}
        for name, tensor in self.tensors.items():
            if name.startswith("optimizer."):
                _, index, key = name.split(".")
                state.setdefault(int(index), {})[key] = tensor.clone()  # the file's memory is not kept
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
        torch.set_rng_state(self.tensors["random.cpu"])
        if "random.cuda" in self.tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(self.tensors["random.cuda"])
        return self.tensors["log"].numpy().tobytes()


class Checkpoints:
    """The last two checkpoints of a run, `checkpoint.safetensors` and `checkpoint.previous.safetensors`.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._newest_is_whole = True

    def save(self, model: nn.Module, optimizer: Optimizer, facts: dict, log: bytes = b"") -> None:
        """Write the state of a run; a kill at any moment leaves the checkpoint before it or this one, whole.

        Args:
            facts: JSON-like; `settings` (dict) and `corpus` (digest), which a `Checkpoint` compares, and the rest.
            log: the run's log up to this step.

        Raises:
            OSError: it cannot be written, in one line.
        """
        tensors = {name: t.detach().cpu().contiguous() for name, t in _state(model, optimizer).items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if torch.cuda.is_available():
            tensors["random.cuda"] = torch.cuda.get_rng_state()
        tensors["log"] = torch.from_numpy(np.frombuffer(log, np.uint8).copy())
        text = json.dumps(facts, sort_keys=True, allow_nan=False)
        newest = self.folder / _NEWEST
        with writing(newest) as partial:
            save_file(tensors, partial, {"format": _FORMAT, "facts": text, "sha256": _sha256(text, tensors)})
            with open(partial, "rb+") as file:  # on the disk, before the one before it moves
                os.fsync(file.fileno())
            if newest.exists() and self._newest_is_whole:
                os.replace(newest, self.folder / _PREVIOUS)
        self._newest_is_whole = True

    @property
    def paths(self) -> list[Path]:
        """The files that are there, the newest first."""
        return [path for path in (self.folder / _NEWEST, self.folder / _PREVIOUS) if path.exists()]

    def read(self) -> Checkpoint | None:
        """Return the newest checkpoint that is whole; None if there is none at all.

        Raises:
            DamagedError: there is a checkpoint, but none that is whole.
            OSError: it cannot be opened.
        """
        damage: list[DamagedError] = []
        for path in self.paths:
            try:
                facts, tensors, sha256 = _read(path)
            except DamagedError as error:
                damage.append(error)
                continue
            self._newest_is_whole = not damage
            note = f"{damage[0]}; the checkpoint before it is taken, step {facts['step']}" if damage else ""
            return Checkpoint(path, facts, tensors, sha256, note)
        if damage:
            raise DamagedError(f"{damage[0]}; restore it, or train anew in another folder")
        return None


def not_finite(model: nn.Module, optimizer: Optimizer) -> str | None:
    """Return the name of a weight or moment that holds infinities or NaN; None if all are finite."""
    tensors = _state(model, optimizer).items()
    return next((name for name, t in tensors if t.is_floating_point() and not t.isfinite().all()), None)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a model under their names in the file; those that have two names once."""
    every, once = (dict(model.named_parameters(remove_duplicate=flag)) for flag in (False, True))
    tied = every.keys() - once.keys()  # as the output matrix of a baseline, which is its embedding
    return {f"model.{name}": t for name, t in model.state_dict().items() if name not in tied}


def _state(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return weights and optimizer state under their names in the file."""
    tensors = weights_of(model)
    for i, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{name}": t for name, t in state.items()}
    return tensors


def _sha256(facts: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        t = tensors[name]
        digest.update(f"\n{name} {t.dtype} {tuple(t.shape)}\n".encode())
        digest.update(t.contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict, dict[str, Tensor], str]:
    """Return facts, tensors (on the CPU), hash of a file; DamagedError, in one line, unless it is as it was written."""
    path.open("rb").close()  # no permission is no damage
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise DamagedError(f"{path} is not a readable checkpoint ({' '.join(str(error).split())})") from None
    if metadata.get("format") != _FORMAT or metadata.keys() != {"format", "facts", "sha256"}:
        raise DamagedError(f"{path} is no checkpoint of this version (format {metadata.get('format')!r}, expected "
                           f"{_FORMAT!r})")
    if _sha256(metadata["facts"], tensors) != metadata["sha256"]:
        raise DamagedError(f"{path} is damaged: its contents do not match their hash")
    return json.loads(metadata["facts"]), tensors, metadata["sha256"]
