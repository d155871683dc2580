"""The command `own-gates`: its options are `experiments.own_gates.OwnGatesConfig`."""

from ..experiments.own_gates import OwnGatesConfig, run_own_gates
from . import Command

__all__ = ["COMMAND"]

COMMAND = Command(OwnGatesConfig, run_own_gates)
