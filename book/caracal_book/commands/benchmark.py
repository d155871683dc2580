"""The command `benchmark`: its options are `benchmark.config.BenchmarkConfig`."""

from ..benchmark import BenchmarkConfig, run_benchmark
from . import Command

__all__ = ["COMMAND"]

COMMAND = Command(BenchmarkConfig, run_benchmark)
