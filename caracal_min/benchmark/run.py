# goes when training and commands no longer import it
"""The benchmark as a whole: every group of rows, a table as they come, a record at the end."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace

import torch

from ..precision import find_device
from ..record import require_new, write_record
from .config import BenchmarkConfig, Row
from .decoding import generation, mixer
from .operators import convolution, layer
from .steps import profile, throughput, training

__all__ = ["run_benchmark"]

_MEASURE = {f.__name__: f for f in (convolution, layer, training, profile, throughput, mixer, generation)}
_WHOLE_STEPS = (training, profile, throughput)


def run_benchmark(config: BenchmarkConfig, show: Callable[[str], None] = print) -> list[Row]:
    """Measure, show a table row by row, and write `config.out`.

    Returns:
        the rows, times in milliseconds, memory in MiB.

    Raises:
        ValueError: a device that is neither a CPU nor a CUDA GPU.
        FileExistsError: `config.out` is there already; it is looked for before the first measurement.
    """
    if config.out is not None:
        require_new(config.out)
    device = find_device(config.device)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device={device}: its work cannot be waited for here, so times would be too short; give cpu "
                         "or cuda")
    if device.index is not None and device.type == "cuda":  # its work is waited for, and its memory looked at
        torch.cuda.set_device(device)
    config = replace(config, device=device.type)
    rows, started = [], time.perf_counter()
    show(f"{'what':<34}{'size':>7}  {'against':<34}{'ours':>10}{'reference':>11}{'ratio':>9}{'target':>8}")
    for group in config.rows:
        if _MEASURE[group] in _WHOLE_STEPS and config.device == "cpu" and len(config.rows) > 1:
            continue
        for row in _MEASURE[group](config):
            if isinstance(row, str):  # why a row is left out
                show(row)
                continue
            rows.append(row)
            goal = "" if row.target is None else f"{row.target:g}" + (" ok" if row.ratio >= row.target else " NO")
            show(f"{row.what:<34}{row.size:>7}  {row.against:<34}{row.ours:>7.4g} {row.unit:<3}"
                 f"{row.reference:>7.4g} {row.unit:<3}{row.ratio:>8.2f}x{goal:>8}")
    if config.out is not None:
        results = {"rows": [{**asdict(row), "ratio": row.ratio} for row in rows]}
        write_record(config.out, "benchmark", asdict(config), results, None, time.perf_counter() - started,
                     torch.device(config.device))
    return rows
