# goes when training and commands no longer import it
"""The command `benchmark`: its options are `benchmark.config.BenchmarkConfig`."""

from ..benchmark.config import BenchmarkConfig
from .command import Command, on_device_with_record

__all__ = ["COMMAND"]


def run_benchmark_command(config: BenchmarkConfig) -> None:
    """Measure, print a table as it comes, and write the record if one is asked for."""
    from ..benchmark.run import run_benchmark

    run_benchmark(config)


COMMAND = Command(BenchmarkConfig, run_benchmark_command, on_device_with_record)
