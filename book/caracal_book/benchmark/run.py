"""The benchmark as a whole: every group of rows, a table as they come, a record at the end."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace

import torch

from caracal_min.precision import find_device

from ..records import require_new, write_record
from .config import BenchmarkConfig, Row
from .decoding import generation, mixer
from .operators import convolution, layer
from .steps import profile, throughput, trainer

__all__ = ["run_benchmark"]

_MEASURE = {f.__name__: f for f in (convolution, layer, profile, throughput, trainer, mixer, generation)}
_WHOLE_STEPS = ("profile", "throughput", "trainer")  # minutes each on a CPU


def run_benchmark(config: BenchmarkConfig, show: Callable[[str], None] = print) -> list[Row]:
    """Measure, show a table row by row, and write `config.out`.

    Returns:
        the rows, times in milliseconds.

    Raises:
        ValueError: a device that is neither a CPU nor a CUDA GPU.
    """
    require_new(config.out)
    started, device = time.monotonic(), find_device(config.device)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device={device}: the stopwatch cannot wait for its work; give cpu or cuda")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    rows, config = [], replace(config, device=device.type)
    show(f"{'what':<34}{'size':>7}  {'against':<34}{'ours':>10}{'reference':>11}{'ratio':>9}{'goal':>8}")
    for group in config.rows:
        if group in _WHOLE_STEPS and device.type == "cpu" and len(config.rows) > 1:
            continue
        for row in _MEASURE[group](config):
            rows.append(row)
            goal = "" if row.target is None else f"{row.target:g}" + (" ok" if row.ratio >= row.target else " NO")
            show(f"{row.what:<34}{row.size:>7}  {row.against:<34}{row.ours:>7.4g} {row.unit:<3}"
                 f"{row.reference:>7.4g} {row.unit:<3}{row.ratio:>8.2f}x{goal:>8}")
    if config.out is not None:
        results = {"rows": [{**asdict(row), "ratio": row.ratio} for row in rows]}
        write_record(config.out, "benchmark", asdict(config), results, None, time.monotonic() - started, device)
    return rows
