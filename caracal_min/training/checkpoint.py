"""The state of a training run in one safetensors file: written atomically, read without pickle.

    model.<name>               weights
    optimizer.<i>.<name>       moments and step count of parameter i, in the order of the optimizer's groups
    random.cpu, random.cuda    states of torch's generators
    log                        the run's log up to here, bytes of JSON lines
    metadata                   JSON: step, settings, digest of the corpus, the processes that took part; SHA-256 of all

The last two are kept.  Nothing in a file is used before all of it is checked: its hash, the names, shapes and types of
its tensors against those of the model and the optimiser, their values.  A file that fails is passed over for the one
before it.  The hash finds accidents, not forgers.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from ..files import writing

__all__ = ["Checkpoints", "DamagedError", "not_finite", "read_checkpoint", "weights_of"]

_NEWEST, _PREVIOUS, _FORMAT = "checkpoint.safetensors", "checkpoint.previous.safetensors", "caracal-checkpoint-1"
_UNKNOWN_PART = {"from_step": 0, "started": None, "code": None, "machines": []}  # versions before parts were kept
_RANDOM = ("random.cpu", "random.cuda")


class DamagedError(ValueError):
    """A checkpoint that is not as it was written, or not of this model."""


class Checkpoints:
    """The last two checkpoints of a run, `checkpoint.safetensors` and `checkpoint.previous.safetensors`.

    Args:
        folder: of the run, which exists.

    Attributes:
        note: one line for the user if the newest was damaged and the one before it was taken, else "".
    """

    def __init__(self, folder: Path):
        self.folder, self.note = folder, ""
        self._newest_is_whole = True

    def save(self, model: nn.Module, optimizer: Optimizer, facts: dict, log: bytes = b"") -> None:
        """Write the state of a run; a kill at any moment leaves the checkpoint before it or this one, whole.

        Args:
            facts: JSON-like; `step` and the like, and `settings` (dict) and `corpus` (digest), compared when loading.
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

    def corpus(self) -> str | None:
        """Return the digest of the corpus that the run is on; None if no checkpoint says so."""
        return next(map(str, self._said("corpus")), None)

    def require_settings(self, settings: dict, defaults: dict) -> None:
        """Raise ValueError, as `load`, if the run in the folder has other settings; no tensor is read for that."""
        for before in self._said("settings"):
            if isinstance(before, dict):
                return _require_settings(self.folder, before, json.loads(json.dumps(settings)), defaults)

    def _said(self, name: str) -> Iterator[Any]:
        """Yield what each checkpoint that is readable says of the run under a name, the newest first."""
        for path in self.paths:
            try:
                with safe_open(path, framework="pt") as file:
                    said = json.loads(file.metadata()["facts"])[name]
            except (SafetensorError, OSError, ValueError, TypeError, KeyError, RecursionError):
                continue  # `load` says what is wrong with it
            yield said

    def load(self, model: nn.Module, optimizer: Optimizer, facts: dict, defaults: dict) -> tuple[dict, bytes | None]:
        """Restore a run from the newest checkpoint that is whole.

        Args:
            facts: what `save` would be given now.
            defaults: the value of each setting that a checkpoint of an earlier version does not know.

        Returns:
            the facts of the checkpoint and its log, None if it is of a version that kept none; the facts given and an
            empty log if there is no checkpoint.

        Raises:
            DamagedError: there is a checkpoint, but none that is whole.
            ValueError: it belongs to a run with other settings or another corpus.
            OSError: it cannot be read.
        """
        damage: list[DamagedError] = []
        for path in self.paths:
            try:
                stored, tensors = read_checkpoint(path)
                _require_same(path, stored, json.loads(json.dumps(facts)), defaults)
                log = tensors.pop("log").numpy().tobytes() if "log" in tensors else None
                _require_state(path, tensors, stored, facts, model, optimizer)
            except DamagedError as error:
                damage.append(error)
                continue
            _apply(tensors, model, optimizer)
            self._newest_is_whole = not damage
            if damage:
                self.note = f"{damage[0]}; the run goes on from the checkpoint before it, step {stored['step']}"
            return stored, log
        if damage:
            raise DamagedError(f"{damage[0]}; restore it, or start anew in another folder")
        return facts, b""


def not_finite(model: nn.Module, optimizer: Optimizer) -> str | None:
    """Return the name of a weight or moment that holds infinities or NaN; None if all are finite."""
    return _first_not_finite(_state(model, optimizer))


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a model under their names in the file; those that have two names once."""
    tied = _tied(model)
    return {f"model.{name}": t for name, t in model.state_dict().items() if name not in tied}


def _state(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return weights and optimiser state under their names in the file."""
    tensors = weights_of(model)
    for i, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{name}": t for name, t in state.items()}
    return tensors


def _tied(model: nn.Module) -> set[str]:
    """Return the other names of parameters that have two, as a baseline's output matrix and embedding have."""
    every, once = (dict(model.named_parameters(remove_duplicate=flag)) for flag in (False, True))
    return every.keys() - once.keys()


def _first_not_finite(tensors: dict[str, Tensor]) -> str | None:
    return next((name for name, t in tensors.items() if t.is_floating_point() and not t.isfinite().all()), None)


def _sha256(facts: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        t = tensors[name]
        digest.update(f"\n{name} {t.dtype} {tuple(t.shape)}\n".encode())
        digest.update(t.contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def read_checkpoint(path: Path) -> tuple[dict, dict[str, Tensor]]:
    """Return facts and tensors of a file, on the CPU.

    Raises:
        DamagedError: it is no checkpoint, or its hash is not right, in one line.
        OSError: it cannot be opened.
    """
    path.open("rb").close()  # no permission is no damage
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise DamagedError(f"{path} is not a readable checkpoint ({' '.join(str(error).split())})") from None
    if metadata.get("format") != _FORMAT or not {"facts"} <= metadata.keys() <= {"format", "facts", "sha256"}:
        raise DamagedError(f"{path} is no checkpoint of this version (format {metadata.get('format')!r}, expected "
                           f"{_FORMAT!r})")
    if "sha256" in metadata and _sha256(metadata["facts"], tensors) != metadata["sha256"]:
        raise DamagedError(f"{path} is damaged: its contents do not match their hash")
    try:
        stored = json.loads(metadata["facts"])
        for name, kind in (("step", int), ("seconds", (int, float)), ("settings", dict), ("corpus", str),
                           ("scaler", dict)):
            if not isinstance(stored[name], kind) or isinstance(stored[name], bool):
                raise ValueError(f"{name} is {stored[name]!r}")
        if stored["step"] < 0 or not 0 <= stored["seconds"] < math.inf:
            raise ValueError(f"step {stored['step']} after {stored['seconds']} seconds")
        if ("sha256" in metadata) != ("parts" in stored) or ("sha256" in metadata) != ("log" in tensors):
            raise ValueError("a hash, a log and the processes that took part belong together")
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedError(f"{path} is damaged: what it says of the run is not whole ({error})") from None
    stored.setdefault("parts", [_UNKNOWN_PART])
    return stored, tensors


def _require_settings(folder: Path, before: dict, after: dict, defaults: dict) -> None:
    """Raise ValueError if settings that both know, or that one knows and the other leaves at its default, differ."""
    for name in sorted(after):
        old = before.get(name, defaults.get(name, after[name]))
        if old != after[name]:
            raise ValueError(f"{folder} holds a run with {name}={old!r}, now {after[name]!r}; "
                             "resume with the same settings, or choose another folder")


def _require_same(path: Path, stored: dict, now: dict, defaults: dict) -> None:
    """Raise ValueError if the settings, as `_require_settings`, or the data differ."""
    _require_settings(path.parent, stored["settings"], now["settings"], defaults)
    if stored["corpus"] != now["corpus"]:
        raise ValueError(f"{path.parent} holds a run on other data than {now['settings'].get('data')!r} gives now (its "
                         "hash differs); resume with the same data, or choose another folder")


def _require_state(path: Path, tensors: dict[str, Tensor], stored: dict, now: dict, model: nn.Module,
                   optimizer: Optimizer) -> None:
    """Raise DamagedError unless the tensors are those of this model and optimiser, and their values can be."""
    expected = weights_of(model)
    moments = {}
    grouped = [(group, parameter) for group in optimizer.param_groups for parameter in group["params"]]
    for i, (group, parameter) in enumerate(grouped):
        if "momentum" in group:  # Muon's
            moments[f"optimizer.{i}.momentum_buffer"] = parameter
        else:
            moments[f"optimizer.{i}.step"] = torch.zeros((), dtype=torch.float32)
            moments[f"optimizer.{i}.exp_avg"] = moments[f"optimizer.{i}.exp_avg_sq"] = parameter
    skipped = bool(stored["scaler"])  # a scaled step that overflows is left out, and at first there are no moments
    if stored["step"] > 0 and not (skipped and not tensors.keys() & moments.keys()):
        expected |= moments
    wrong = None
    if missing := expected.keys() - tensors.keys():
        wrong = f"{min(missing)} is missing"
    elif foreign := tensors.keys() - expected.keys() - set(_RANDOM):
        wrong = f"{min(foreign)} is none of its parts"
    elif "random.cpu" not in tensors:
        wrong = "random.cpu is missing"
    elif stored["scaler"].keys() != now["scaler"].keys():
        wrong = "the state of the loss scale is not whole"
    else:
        for name, t in expected.items():
            if (tensors[name].shape, tensors[name].dtype) != (t.shape, t.dtype):
                wrong = (f"{name} has shape {tuple(tensors[name].shape)} and {tensors[name].dtype}, expected "
                         f"{tuple(t.shape)} and {t.dtype}")
                break
    wrong = wrong or _wrong_values(tensors, stored["step"], skipped)
    if wrong:
        raise DamagedError(f"{path} does not hold the state of this run: {wrong}")


def _wrong_values(tensors: dict[str, Tensor], step: int, skipped: bool) -> str | None:
    if name := _first_not_finite(tensors):
        return f"{name} holds infinities or NaN"
    for name, t in tensors.items():
        if name.endswith(".exp_avg_sq") and (t < 0).any():
            return f"{name} is negative"
        if name.startswith("optimizer.") and name.endswith(".step"):
            if not (1 <= t.item() <= step if skipped else t.item() == step):
                return f"{name} counts {t.item():g} steps of {step}"
    try:
        torch.Generator().set_state(tensors["random.cpu"])
        if "random.cuda" in tensors and torch.cuda.is_available():
            torch.Generator("cuda").set_state(tensors["random.cuda"])
    except (RuntimeError, TypeError) as error:
        return f"the state of the random numbers is none ({' '.join(str(error).split())})"
    return None


def _apply(tensors: dict[str, Tensor], model: nn.Module, optimizer: Optimizer) -> None:
    model.load_state_dict({k.removeprefix("model."): t for k, t in tensors.items() if k.startswith("model.")},
                          strict=False)  # names were compared; those of tied weights are not in the file
    state: dict[int, dict] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".")
            state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random.cuda"])
