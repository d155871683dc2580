"""The benchmark compares like with like, and its stopwatch and scales measure what they say."""

import json
import time

import pytest
import torch

from caracal_book.benchmark import AppendixFourier, BenchmarkConfig, appendix_conv, run_benchmark
from caracal_book.benchmark.measure import Differentiated, in_turns, mean_time
from caracal_min import MultiHeadFourier
from caracal_min.convolution import causal_conv_direct

SMALL = dict(preset="nano", lengths=(70,), tokens=70, repeats=1, compile="no", device="cpu")


def test_the_reference_convolves_along_its_time_axis():
    v, g = torch.randn(2, 2, 3, 17, 4, dtype=torch.float64)
    expected = causal_conv_direct(v.transpose(2, 3), g.transpose(2, 3)).transpose(2, 3)
    assert torch.allclose(appendix_conv(v, g).double(), expected, atol=1e-4)


def test_the_reference_layer_has_our_results_and_gradients():
    torch.manual_seed(0)
    ours, reference = MultiHeadFourier(16, 4), AppendixFourier(16, 4)
    reference.load_state_dict(ours.state_dict())
    x, weight = torch.randn(2, 3, 21, 16)
    results = [Differentiated(layer, [x], weight, list(layer.parameters())) for layer in (ours, reference)]
    assert torch.allclose(results[0].forward(), results[1].forward(), atol=1e-5)
    for a, b in zip(results[0](), results[1](), strict=True):
        assert torch.allclose(a, b, atol=1e-4)


def test_time_is_measured_in_milliseconds_and_in_turns():
    assert 20 < mean_time(lambda: time.sleep(0.02), 3) < 100
    order = []
    fast, slow = in_turns([lambda: order.append("a"), lambda: order.append("b") or time.sleep(0.01)], repeats=3)
    assert order == ["a", "b"] * 5 and fast < 5 < slow


def test_operators_and_decoding_run_small(tmp_path, capsys):
    groups = ("convolution", "layer", "mixer", "generation")
    rows = run_benchmark(BenchmarkConfig(rows=groups, preset="nano", lengths=(16, 33), contexts=(40, 64), tokens=66,
                                         repeats=1, device="cpu", out=tmp_path / "table.json"))
    table = capsys.readouterr().out.splitlines()
    assert len(table) == len(rows) + 1 == 2 + 2 + 2 + 2 * 2 + 1 + 1
    assert all(row.ours > 0 and row.reference > 0 for row in rows)
    saved = json.loads((tmp_path / "table.json").read_text())["results"]["rows"]
    assert [r["ratio"] for r in saved] == [row.ratio for row in rows]
    with pytest.raises(FileExistsError, match="no record is written over another file"):
        run_benchmark(BenchmarkConfig(rows=groups, out=tmp_path / "table.json"))


def test_whole_steps_run_small():
    rows = run_benchmark(BenchmarkConfig(rows=("throughput",), against=("llama", "no-swa"), **SMALL))
    assert [row.against for row in rows] == ["llama, SDPA", "no-swa"]
    assert len({row.ours for row in rows}) == 1 and all(row.target is None for row in rows)
    (row,) = run_benchmark(BenchmarkConfig(rows=("trainer",), **SMALL))
    assert row.what == "nano, step of the Trainer" and row.ours > 0 < row.reference


def test_a_step_is_told_apart_by_kind_of_work():
    rows = run_benchmark(BenchmarkConfig(rows=("profile",), **SMALL | {"lengths": (256,), "tokens": 256}))
    parts = {row.what.removeprefix("nano, caracal, "): row.ours for row in rows if "caracal" in row.what}
    assert {"convolution", "attention", "optimiser", "matrix products", "short convolution", "the rest"} == set(parts)
    assert all(row.against == "the whole step" and row.ours > 0 for row in rows)
