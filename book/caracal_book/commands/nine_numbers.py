"""The command `nine-numbers`: its options are `experiments.nine_numbers.NineNumbersConfig`."""

from ..experiments.nine_numbers import NineNumbersConfig, run_nine_numbers
from . import Command

__all__ = ["COMMAND"]

COMMAND = Command(NineNumbersConfig, run_nine_numbers)
