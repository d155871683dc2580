"""The benchmark compares like with like, and its stopwatch and scales measure what they say."""

import json
import os
import subprocess
import sys
import time

import pytest
import torch

from caracal_book.__main__ import main
from caracal_book.benchmark import AppendixFourier, BenchmarkConfig, Row, appendix_conv, run, run_benchmark
from caracal_book.benchmark.measure import (
    Differentiated,
    in_turns,
    kept_for_backward,
    kind_of,
    mean_time,
    peak_memory,
    time_by_kind,
    traced,
)
from caracal_min import MultiHeadFourier
from caracal_min.convolution import causal_conv_direct, causal_conv_fft

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


def test_the_layer_keeps_less_than_the_reference():
    x = torch.randn(2, 256, 64)
    kept = [kept_for_backward(Differentiated(kind(64, 4), [x], x)) for kind in (MultiHeadFourier, AppendixFourier)]
    assert 0 < kept[0] < 0.6 * kept[1]


MIB = 2**18  # numbers in float32


@torch.library.custom_op("test_benchmark::third", mutates_args=())
def third(x: torch.Tensor) -> torch.Tensor:
    """Three tensors of the size of x are held inside; one is returned."""
    a = x + 1
    return a + (x + 2)


def chain(x: torch.Tensor) -> torch.Tensor:
    a = x + 1
    b = a + 1
    c = b + 1
    del a, b
    return c


@pytest.mark.parametrize("call, mib", [
    (chain, 3),
    (lambda x: chain(x) + 1, 3),
    (lambda x: [x + 1 for _ in range(5)], 5),
    (lambda x: x.view(512, 512) @ x.view(512, 512) @ x.view(512, 512), 2),
    (lambda x: x.view(512, 512) @ x[:512], 2 / 1024),
    (third, 3),
    (lambda x: x.sin_(), 0),
], ids=["a chain", "a chain, let go", "a list", "products", "times a vector", "inside an operator", "in place"])
def test_the_peak_is_what_is_held_at_one_time(call, mib):
    """Above what was held before the call: x itself, 1 MiB, never counts."""
    x = torch.randn(MIB)
    assert peak_memory(lambda: call(x)) == pytest.approx(mib, abs=0.001)


@pytest.mark.parametrize("f, mib", [
    (lambda x: (x + 1).square(), 1),       # squaring keeps its input
    (lambda x: x.exp().exp().exp(), 2),    # an exponential keeps its result; the last result is not counted
    (lambda x: (x + 1) * (x + 2), 2),
    (lambda x: x + 1, 0),
    (lambda x: (x.view(512, 512) * 2) @ (x.view(512, 512) * 3), 2),
    (lambda x: causal_conv_fft(x.view(256, 1024) * 2, x.view(256, 1024) * 3), 2),  # its two inputs, no spectra
], ids=["square", "exponentials", "product", "sum", "matrix product", "causal convolution"])
def test_what_is_kept_for_backward(f, mib):
    """Neither x nor the result counts."""
    x = torch.randn(MIB)
    assert kept_for_backward(Differentiated(f, [x], f(x))) == pytest.approx(mib, abs=0.001)


@pytest.mark.process
def test_nothing_but_the_table_reaches_the_terminal():
    """The profiler announces itself on stderr with lines "USDT:...", unless it is told not to."""
    command = "benchmark --rows layer --preset nano --lengths 32 --tokens 32 --repeats 1 --compile no --device cpu"
    clean = {key: value for key, value in os.environ.items() if key != "KINETO_LOG_LEVEL"}
    done = subprocess.run([sys.executable, "-m", "caracal_book", *command.split()], capture_output=True, text=True,
                          env=clean)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Multi-Head Fourier" in done.stdout


def test_time_is_measured_in_milliseconds_and_in_turns():
    assert 20 < mean_time(lambda: time.sleep(0.02), 3) < 100
    order = []
    fast, slow = in_turns([lambda: order.append("a"), lambda: order.append("b") or time.sleep(0.01)], repeats=3)
    assert order == ["a", "b"] * 5 and fast < 5 < slow


def test_ratio_is_above_one_when_ours_needs_less():
    assert Row("x", 1, "y", "ms", ours=2.0, reference=5.0, target=2.5).ratio == 2.5


def test_operators_and_decoding_run_small(tmp_path, capsys):
    groups = ("convolution", "layer", "mixer", "generation")
    rows = run_benchmark(BenchmarkConfig(rows=groups, preset="nano", lengths=(16, 33), contexts=(40, 64), tokens=66,
                                         repeats=1, device="cpu", out=tmp_path / "table.json"))
    table = capsys.readouterr().out.splitlines()
    assert len(table) == len(rows) + 1 == 2 + 2 * 2 + 2 + 2 * 2 + 1 + 1
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


@pytest.mark.compile
@pytest.mark.slow
def test_the_seconds_of_compiling_are_rows_of_their_own(compiler):
    rows = run_benchmark(BenchmarkConfig(rows=("throughput",), **SMALL | {"compile": "blocks"}))
    step, first = rows
    assert (step.unit, first.unit) == ("ms", "s") and 1e3 * first.ours > 2 * step.ours


def test_a_step_is_told_apart_by_kind_of_work():
    rows = run_benchmark(BenchmarkConfig(rows=("profile",), **SMALL | {"lengths": (256,), "tokens": 256}))
    parts = {row.what.removeprefix("nano, caracal, "): row.ours for row in rows if "caracal" in row.what}
    assert {"convolution", "attention", "optimiser", "matrix products", "short convolution", "the rest"} == set(parts)
    assert all(row.against == "the whole step" and row.ours > 0 for row in rows)


def test_what_the_operator_does_beside_its_transforms_is_its_own():
    """Padding, products and copies inside it count as convolution and as nothing else."""
    v, g, dr = torch.randn(3, 2048, 64, requires_grad=True).unbind()

    def both_ways():
        torch.autograd.grad(causal_conv_fft(v, g), (v, g), dr.detach())

    times = time_by_kind(traced(both_ways))
    assert times["FFT"] == 0 and 0 <= times["the rest"] < 0.1 * times["convolution"]


def test_kinds_of_work_are_told_by_name():
    x = torch.randn(512, 512)
    product = time_by_kind(traced(lambda: [x @ x for _ in range(20)]))
    assert product["matrix products"] > 0.8 * sum(product.values()) and product["FFT"] == 0
    z = torch.randn(512, 2048, dtype=torch.complex64)  # of real numbers, most of the time is the cast
    transform = time_by_kind(traced(lambda: [torch.fft.fft(z) for _ in range(20)]))
    assert transform["FFT"] > 0.8 * sum(transform.values()) and transform["matrix products"] == 0
    kernels = {"nvjet_hsh_128x64": "matrix products", "void regular_fft_r2c<512>": "FFT",
               "triton_poi_fused_add_mm_t_3": None, "sm90_xmma_gemm_bf16": "matrix products",
               "void vector_fft<1024>": "FFT", "triton_tem_fused_flex_attention": "attention",
               "cudnn::conv_depthwise": "short convolution", "aten::mkldnn_convolution": "short convolution",
               "aten::mkldnn_linear": "matrix products", "caracal::causal_conv_backward": None,
               "GeneratedBackwardFor_caracal_causal_conv_default": None, "cudnn::convert_dq_to_16bits": None,
               "multi_tensor_kernel<FusedAdam>": "optimiser", "_toeplitz_kernel_0": "convolution"}
    assert {name: kind_of(name) for name in kernels} == {k: v or "the rest" for k, v in kernels.items()}


def test_whole_steps_are_left_out_on_a_cpu_unless_named_alone():
    rows = run_benchmark(BenchmarkConfig(rows=("profile", "throughput", "trainer", "mixer"), contexts=(8,), **SMALL))
    assert {row.what for row in rows} == {"mixer alone, a token"}


def test_a_device_that_cannot_be_waited_for_is_refused(monkeypatch):
    monkeypatch.setattr(run, "find_device", torch.device)
    with pytest.raises(ValueError, match="^device=mps: .*; give cpu or cuda$"):
        run_benchmark(BenchmarkConfig(device="mps"))


def test_unknown_names_get_the_list():
    with pytest.raises(ValueError, match="huge.*nano, micro, tiny"):
        run_benchmark(BenchmarkConfig(rows=("layer",), preset="huge"))
    with pytest.raises(ValueError, match="unknown variant 'gpt'; accepted: default, no-swa"):
        run_benchmark(BenchmarkConfig(rows=("throughput",), against=("gpt",), **SMALL))
    with pytest.raises(SystemExit):  # tyro says it
        main(["benchmark", "--rows", "magic"])
