"""The command `roofline`: its options are `numbers.roofline.RooflineConfig`."""

from caracal_min.commands.command import Command, on_device_with_record

from ..numbers.roofline import RooflineConfig, run_roofline

__all__ = ["COMMAND"]

COMMAND = Command(RooflineConfig, run_roofline, on_device_with_record)
