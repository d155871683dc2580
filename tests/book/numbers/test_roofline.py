"""A step by the clock beside its count, at rates that are measured once."""

import json
from dataclasses import replace

import pytest

from caracal_book.numbers import cost
from caracal_book.numbers.roofline import RooflineConfig, measured_device, run_roofline
from caracal_min.config import PRESETS
from caracal_min.precision import resolve_precision


def test_rates_are_those_of_large_calls_and_measured_once():
    """A processor core computes more than 0.1 GFLOP/s in transforms; none does a hundred thousand times that."""
    assert all(1e8 < rate < 1e14 for rate in measured_device("cpu"))
    assert measured_device("cpu") is measured_device("cpu")


def test_a_step_stands_beside_its_count(tmp_path):
    """The count is that of `cost` at the rates of the record, for the tokens of the whole batch."""
    shown = []
    rows = run_roofline(RooflineConfig((32,), "nano", tokens=64, repeats=1, device="cpu", compile="no",
                                       out=tmp_path / "c.json"), shown.append)
    assert [row.what for row in rows] == [f"nano, {name}, step" for name in ("caracal", "llama", "no-swa")]
    assert len(shown) == 1 + len(rows)
    results = json.loads((tmp_path / "c.json").read_text())["results"]
    device, each = cost.Device(**results["rates"]), resolve_precision("auto", "cpu").itemsize
    pure = replace(PRESETS["nano"], fourier_per_attention=None)
    for row, size, kind in zip(rows, (PRESETS["nano"], PRESETS["nano"], pure), ("caracal", "llama", "caracal"),
                               strict=True):
        parts = cost.training(size, 32, kind, cost.Pass(64, each, autocast=True, cuda=False))
        seconds = sum(device.seconds(part, spent) for part, spent in parts.items())
        assert row.ours > 0 and row.reference == pytest.approx(64 * 1e3 * seconds)
