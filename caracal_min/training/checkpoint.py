"""The state of a training run in one safetensors file: written atomically, read without pickle.

    model.<name>               weights
    optimizer.<i>.<name>       AdamW's moments and step count of parameter i
    random.cpu, random.cuda    states of torch's generators
    metadata                   JSON: step, settings, digest of the corpus
"""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.optim import Optimizer

from ..files import writing

__all__ = ["load_checkpoint", "save_checkpoint"]

_FILE, _FORMAT = "checkpoint.safetensors", "caracal-checkpoint-1"


def save_checkpoint(folder: Path, model: nn.Module, optimizer: Optimizer, facts: dict) -> None:
    """Write the state of a run; a kill at any moment leaves the previous checkpoint or this one, whole.

    Args:
        facts: JSON-like; `step` and the like, and `settings` (dict) and `corpus` (digest), compared when loading.

    Raises:
        OSError: it cannot be written, in one line.
    """
    tied = _tied(model)
    tensors = {f"model.{name}": t for name, t in model.state_dict().items() if name not in tied}
    for i, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{name}": t for name, t in state.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    with writing(folder / _FILE) as partial:
        save_file({k: t.contiguous() for k, t in tensors.items()}, partial,
                  {"format": _FORMAT, "facts": json.dumps(facts, sort_keys=True)})


def load_checkpoint(folder: Path, model: nn.Module, optimizer: Optimizer, facts: dict) -> dict:
    """Restore a run from its folder, if it holds a checkpoint, and return its facts (else those given).

    Raises:
        ValueError: the file is corrupt, or belongs to a run with other settings or another corpus.
    """
    path = folder / _FILE
    if not path.exists():
        return facts
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a readable checkpoint ({error}); delete it to start the run anew") from None
    if metadata.get("format") != _FORMAT:
        raise ValueError(f"{path} is no checkpoint of this version (format {metadata.get('format')!r}, expected "
                         f"{_FORMAT!r}); choose another folder")
    stored = json.loads(metadata["facts"])
    _require_same(path, stored, json.loads(json.dumps(facts)))

    weights = {k.removeprefix("model."): t for k, t in tensors.items() if k.startswith("model.")}
    missing, foreign = model.load_state_dict(weights, strict=False)
    if foreign or set(missing) != _tied(model):
        raise ValueError(f"{path} does not hold the weights of this model; choose another folder")
    state: dict[int, dict] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".")
            state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random.cuda"])
    return stored


def _tied(model: nn.Module) -> set[str]:
    """Return the other names of parameters that have two, as a baseline's output matrix and embedding have."""
    every, once = (dict(model.named_parameters(remove_duplicate=flag)) for flag in (False, True))
    return every.keys() - once.keys()


def _require_same(path: Path, stored: dict, now: dict) -> None:
    before, after = stored["settings"], now["settings"]
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            raise ValueError(f"{path.parent} holds a run with {name}={before.get(name)!r}, now {after.get(name)!r}; "
                             "resume with the same settings, or choose another folder")
    if stored["corpus"] != now["corpus"]:
        raise ValueError(f"{path.parent} holds a run on other data than {after.get('data')!r} gives now (its hash "
                         "differs); resume with the same data, or choose another folder")
