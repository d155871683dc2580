"""A training step by the clock, beside what `cost` counts for it at the rates of the machine that it ran on."""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from caracal_min.config import PRESETS
from caracal_min.precision import find_device, resolve_precision

from ..benchmark.config import BenchmarkConfig, Compiled, Row
from ..benchmark.measure import in_turns
from ..benchmark.steps import throughput
from ..records import require_new, write_record
from . import cost

__all__ = ["RooflineConfig", "measured_device", "run_roofline"]


@dataclass(frozen=True)
class RooflineConfig:
    """Time training steps, and count what they must cost at the rates of this machine; print both side by side."""

    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192)
    """Sequence lengths."""
    preset: str = "tiny"
    """Size of the models, nano to large."""
    against: tuple[Literal["llama", "no-swa"], ...] = ("llama", "no-swa")
    """Models beside Caracal: llama, no-swa."""
    tokens: int = 8192
    """Tokens per batch: tokens / length sequences, at least 1."""
    compile: Compiled = "blocks"
    """For what torch.compile builds kernels: no, each kind of block (blocks), or the whole model (model)."""
    repeats: int = 7
    """Measurements of each model, of which the median counts."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, ..."""
    out: Path | None = None
    """Record to write, a JSON file that is not there yet; left out: none."""

    def throughput(self) -> BenchmarkConfig:
        """Return what the benchmark is to measure."""
        return BenchmarkConfig(rows=("throughput",), **asdict(self))


@functools.cache
def measured_device(name: str) -> cost.Device:
    """Return what a device does at its best, measured here, once for each device.

    Large products in the precision of training, transforms of 1,024 numbers in float32 (2.5 N log2 N operations each),
    and a large copy, read and written.  On a GPU such transforms are bound by its bandwidth, so their rate is far
    below that of the arithmetic units in the data sheet.
    """
    device, n = torch.device(name), 1024
    gpu = device.type == "cuda"
    side = 8192 if gpu else 1024
    a, b = torch.randn(2, side, side, device=device, dtype=resolve_precision("auto", device))
    rows = torch.randn(1 << (16 if gpu else 12), n, device=device)
    source = torch.randn(1 << (28 if gpu else 24), device=device)
    target = torch.empty_like(source)
    calls = lambda: a @ b, lambda: torch.fft.rfft(rows), lambda: target.copy_(source)
    amounts = 2 * side**3, len(rows) * 2.5 * n * math.log2(n), 2 * 4 * source.numel()
    milliseconds = [in_turns([call], 5)[0] for call in calls]
    return cost.Device(*(1e3 * amount / time for amount, time in zip(amounts, milliseconds, strict=True)))


def run_roofline(config: RooflineConfig, show: Callable[[str], None] = print) -> list[Row]:
    """Measure a step of every model at every length, in turns; show and return it beside its count, in milliseconds."""
    require_new(config.out)
    config = replace(config, device=str(find_device(config.device)))
    started, rows, size = time.perf_counter(), [], PRESETS[config.preset]
    sizes = {"caracal": (size, "caracal"), "llama": (size, "llama"),
             "no-swa": (replace(size, fourier_per_attention=None), "caracal")}
    device, each = measured_device(config.device), resolve_precision("auto", config.device).itemsize
    show(f"{'what':<34}{'size':>7}{'measured':>13}{'counted':>13}")
    for length in config.lengths:
        of_length = config.throughput()
        tokens = length * of_length.batch(length)
        how = cost.Pass(tokens, each, compiled=config.compile != "no", autocast=True, cuda=config.device != "cpu")
        measured = list(throughput(replace(of_length, lengths=(length,))))
        rows += [row for row in measured if row.unit == "s"]  # of compiling
        steps = [row for row in measured if row.unit == "ms"]
        times = [steps[0].ours, *(row.reference for row in steps)]
        for name, took in zip(("caracal", *config.against), times, strict=True):
            parts = cost.training(sizes[name][0], length, sizes[name][1], how)
            seconds = math.fsum(device.seconds(part, spent) for part, spent in parts.items())
            rows.append(Row(f"{config.preset}, {name}, step", length, "counted at measured rates", "ms", took,
                            1e3 * tokens * seconds, None))
            show(f"{rows[-1].what:<34}{length:>7}{took:>10.4g} ms{rows[-1].reference:>10.4g} ms")
    if config.out is not None:
        results = {"rows": [{**asdict(row), "ratio": row.ratio} for row in rows], "rates": device._asdict()}
        write_record(config.out, "benchmark", asdict(config), results, None, time.perf_counter() - started,
                     torch.device(config.device))
    return rows
