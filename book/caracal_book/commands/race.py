"""The command `race`: its options are `experiments.race.RaceConfig`."""

from dataclasses import replace

from caracal_min.commands import Command
from caracal_min.precision import find_device
from caracal_min.record import require_recordable

from ..experiments.race import RaceConfig, run_race

__all__ = ["COMMAND", "RaceConfig"]


def prepare_race(config: RaceConfig) -> RaceConfig:
    """Return the configuration with its device by name.

    Raises:
        ValueError: no such device here.
        ImportError, OSError: the record could not be written.
    """
    require_recordable(config.out / "record.json")
    return replace(config, device=str(find_device(config.device)))


def run_race_command(config: RaceConfig) -> None:
    """Run what is left of a race; print each run, and at the end the table."""
    run_race(config)
    print(f"record = {config.out / 'record.json'}")


COMMAND = Command(RaceConfig, run_race_command, prepare_race)
