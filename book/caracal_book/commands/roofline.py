"""The command `roofline`: its options are `numbers.roofline.RooflineConfig`."""

from ..numbers.roofline import RooflineConfig, run_roofline
from . import Command

__all__ = ["COMMAND"]

COMMAND = Command(RooflineConfig, run_roofline)
