"""The command `benchmark`: its options are `benchmark.config.BenchmarkConfig`."""

from ..benchmark import BenchmarkConfig, run_benchmark
from .command import Command, on_device_with_record

__all__ = ["COMMAND"]

COMMAND = Command(BenchmarkConfig, run_benchmark, on_device_with_record)
