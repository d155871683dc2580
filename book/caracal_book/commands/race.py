"""The command `race`: its options are `experiments.race.RaceConfig`."""

from ..experiments.race import RaceConfig, run_race
from . import Command

__all__ = ["COMMAND", "run_race_command"]


def run_race_command(config: RaceConfig) -> None:
    """Run what is left of a race; print each run, and at the end the table."""
    run_race(config)
    print(f"record = {config.out / 'record.json'}")


COMMAND = Command(RaceConfig, run_race_command)
