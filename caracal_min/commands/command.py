"""What a command is: its name, its options, what it looks at before the work begins, and what it does."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..training.trained import Trained

__all__ = ["Command", "load_caracal", "on_device_with_record", "say"]


@dataclass(frozen=True)
class Command:
    """A command of the command line."""

    config: type
    """Dataclass of its options: the docstring is the help, and so is the text under each field."""
    run: Callable[[Any], Any]
    """What is done with such a configuration."""
    prepared: Callable[[Any], Any] = lambda config: config
    """Look at device and output before the work begins, and return the configuration to run; raises what `run` may."""
    for_preset: Callable[[str], Any] | None = None
    """The defaults that a preset decides; None: the dataclass has them all."""
    first: str | None = None
    """The field that may be given by its value alone, as the first word: `sample runs/a` is `sample --model runs/a`."""


def on_device_with_record(config: Any) -> Any:
    """Return a configuration with its `device` by name, after a check that `out`, if given, can take a record.

    Raises:
        ValueError: no such device here.
        ImportError, OSError: as `caracal_min.record.require_recordable`.
    """
    from ..precision import find_device
    from ..record import require_recordable

    config = replace(config, device=str(find_device(config.device)))
    if config.out is not None:
        require_recordable(config.out)
    return config


def load_caracal(model: str, gate_length: int | None = None) -> "Trained":
    """Load a trained Caracal, and tell the user if it is one of a run that has not ended.

    Raises:
        ValueError: it is a baseline.
        FileNotFoundError, ValueError, ImportError: as `training.trained.load_trained`.
    """
    from ..model import Caracal
    from ..training.trained import load_trained

    trained = load_trained(model, gate_length)
    if not isinstance(trained.model, Caracal):
        raise ValueError(f"{model} holds a {trained.model.config.model_type}; this command is for caracal only")
    say(trained.note)
    return trained


def say(note: str) -> None:
    """Tell the user something beside the output of a command, on stderr; nothing if it is empty."""
    if note:
        print(note, file=sys.stderr)
