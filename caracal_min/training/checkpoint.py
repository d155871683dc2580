"""The state of a training run in one file, `checkpoint.pt`, and what may differ when it is resumed.

The file is written beside itself and then renamed, so a kill leaves the old checkpoint or the new
one, whole.  It holds tensors and plain Python values alone, so that torch's own `weights_only`
reader is all that unpickles it::

    model, optimizer, scaler    state_dicts
    rng                         states of torch's generators: CPU, CUDA
    step, seconds, log, ...     where the run stands: attributes of `trainer.Trainer`
    settings                    what must be equal when the run is resumed
"""

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import torch

from ..config import CaracalConfig
from ..files import writing
from ..model import Caracal
from ..tokenizer import load_tokenizer

__all__ = ["CHECKPOINT", "check_resume", "load_checkpoint", "load_run", "restore",
           "save_checkpoint"]

CHECKPOINT = "checkpoint.pt"
"""Name of the file in the folder of a run."""

_PARTS = ("model", "optimizer", "scaler")
_FACTS = ("step", "seconds", "first_step_seconds", "log", "history")
# --start takes the weights of a run for another one, which is no way out where these differ.
_OF_THE_WEIGHTS = ("preset", "variant", "model", "tokenizer", "model_config")


def save_checkpoint(folder: Path, run: Any) -> None:
    """Write the state of a run, a `trainer.Trainer`, into its folder, atomically."""
    state = {}
    for name in _PARTS:
        state[name] = getattr(run, name).state_dict()
    for name in (*_FACTS, "settings"):
        state[name] = getattr(run, name)
    # A model with dropout draws random numbers, so the curve depends on the generators too.
    generators = [torch.get_rng_state()]
    if torch.cuda.is_available():
        generators.append(torch.cuda.get_rng_state())
    state["rng"] = generators
    with writing(folder / CHECKPOINT) as partial:
        torch.save(state, partial)


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """Return what `save_checkpoint` wrote, its tensors on the CPU; None where there is none."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    # A resumed run may compute on another device than the one that saved it.
    return torch.load(path, map_location="cpu", weights_only=True)


def restore(state: dict[str, Any], run: Any) -> None:
    """Give a checkpoint to a run like the one that was saved, and to torch's generators."""
    for name in _PARTS:
        part = getattr(run, name)
        part.load_state_dict(state[name])
    for name in _FACTS:
        setattr(run, name, state[name])
    cpu, *cuda = state["rng"]
    torch.set_rng_state(cpu)
    # A checkpoint written without a GPU has no CUDA generator, and a CPU cannot use one.
    if cuda and torch.cuda.is_available():
        torch.cuda.set_rng_state(cuda[0])


def check_resume(state: dict[str, Any], settings: dict[str, Any], folder: Path) -> None:
    """Refuse to go on with a run under other settings; its budgets, tokens and minutes, may grow.

    Args:
        state: the checkpoint.
        settings: those of now, by name.
        folder: of the run, for the message.

    Raises:
        ValueError: in one line, which names the setting.
    """
    for name, new in settings.items():
        old = state["settings"][name]
        if new == old:
            continue
        # A larger budget extends the same curve; None is an unlimited one.
        if name in ("tokens", "minutes"):
            if (new or inf) >= (old or inf):
                continue
        other = ""
        # Another schedule or optimizer can still train the same weights, as a new run.
        if name not in _OF_THE_WEIGHTS:
            other = f", and give --start {folder} to train on"
        raise ValueError(f"{folder} holds a run with {name}={old!r}, now {new!r}; resume "
                         f"with the same, or choose another folder{other}")


def load_run(path: str | Path, **changes: Any) -> tuple[Caracal, int | None]:
    """Load the model of a run, on the CPU and ready to generate.

    Args:
        path: folder of a run, whose finished model is taken, and its last checkpoint where there
            is none; or what `Caracal.from_pretrained` takes: a shipped name, a folder of a model,
            "owner/name" on the hub.
        changes: fields of the configuration that no weight depends on, such as gate_length.

    Returns:
        the model, and the step of the checkpoint; None: the model is finished.

    Example:
        >>> model, step = load_run("runs/nano")    # doctest: +SKIP
    """
    folder = Path(path)
    state = None
    # run.json is written after the model, so its presence means that the model is whole.
    if (folder / "run.json").exists():
        path = folder / "model"
    else:
        state = load_checkpoint(folder)
    if state is None:
        model = Caracal.from_pretrained(path, device="cpu", **changes)
        return model, None
    shape = state["settings"]["model_config"]
    config = CaracalConfig(**shape)
    model = Caracal(replace(config, **changes))
    model.load_state_dict(state["model"])
    # The run keeps a copy of its tokenizer, because the original file may have changed since.
    model.tokenizer = load_tokenizer(folder / "tokenizer")
    return model.eval(), state["step"]
