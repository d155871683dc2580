"""What a command is: its name, its options, what it looks at before the work begins, and what it does."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..recorded.record import require_recordable
from ..training.distributed import find_device

__all__ = ["Command", "on_device_with_record"]


@dataclass(frozen=True)
class Command:
    """A command of the command line."""

    name: str
    """The word that names it."""
    config: type
    """Dataclass of its options: the docstring is the help, and so is the text under each field."""
    run: Callable[[Any], Any]
    """What is done with such a configuration."""
    prepared: Callable[[Any], Any] = lambda config: config
    """Look at device and output before the work begins, and return the configuration to run; raises what `run` may."""
    for_preset: Callable[[str], Any] | None = None
    """The defaults that a preset decides; None: the dataclass has them all."""


def on_device_with_record(config: Any) -> Any:
    """Return a configuration with its `device` by name, after a check that `out`, if given, can take a record.

    Raises:
        ValueError: no such device here.
        ImportError, OSError: as `recorded.record.require_recordable`.
    """
    config = replace(config, device=str(find_device(config.device)))
    if config.out is not None:
        require_recordable(config.out)
    return config
