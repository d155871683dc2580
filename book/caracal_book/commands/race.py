"""The command `race`: its options are `experiments.race_config.RaceConfig`."""

from dataclasses import replace

from caracal_min.precision import find_device
from caracal_min.record import require_recordable

from ..experiments.race import run_race
from ..experiments.race_config import RaceConfig

__all__ = ["RaceConfig", "prepare_race", "run_race"]


def prepare_race(config: RaceConfig) -> RaceConfig:
    """Return the configuration with its device by name.

    Raises:
        ValueError: no such device here.
        ImportError, OSError: the record could not be written.
    """
    require_recordable(config.out / "record.json")
    return replace(config, device=str(find_device(config.device)))
