"""The benchmark compares like with like, and its stopwatch and scales measure what they say."""

import json
import os
import subprocess
import sys
import time

import pytest
import torch

from caracal_min import Caracal
from caracal_min.benchmark import AppendixFourier, BenchmarkConfig, Row, appendix_conv, run, run_benchmark
from caracal_min.benchmark.appendix import in_appendix_layout
from caracal_min.benchmark.measure import (
    Differentiated,
    copy_rate,
    in_turns,
    kept_for_backward,
    kind_of,
    matmul_rate,
    mean_time,
    peak_memory,
    time_by_kind,
)
from caracal_min.convolution import causal_conv_direct, causal_conv_fft
from caracal_min.modules import MultiHeadFourier, SlidingWindowAttention
from caracal_min.precision import resolve_precision


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


def test_a_model_in_the_layout_of_the_appendix_has_equal_logits():
    torch.manual_seed(0)
    model = Caracal.from_preset("nano")
    appendix = in_appendix_layout(model)
    tokens = torch.randint(256, (2, 77))
    assert torch.allclose(appendix(tokens)[0], model(tokens)[0], atol=1e-5)
    expected = [AppendixFourier if i not in model.config.attention_layers else SlidingWindowAttention
                for i in range(model.config.n_layers)]
    assert [type(block.mixer) for block in appendix.blocks] == expected
    assert not any(isinstance(block.mixer, AppendixFourier) for block in model.blocks), "the model itself stays"
    assert not {p.data_ptr() for p in appendix.parameters()} & {p.data_ptr() for p in model.parameters()}


def test_a_layer_that_the_listing_does_not_have_is_refused():
    with pytest.raises(RuntimeError, match="pre_conv"):
        in_appendix_layout(Caracal.from_preset("nano", pre_conv=False))


def test_the_layer_keeps_less_than_half_of_the_reference():
    x = torch.randn(2, 256, 64)
    kept = [kept_for_backward(Differentiated(kind(64, 4), [x], x)) for kind in (MultiHeadFourier, AppendixFourier)]
    assert 0 < kept[0] < kept[1] / 2


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


@pytest.mark.parametrize("rows", ["layer", "profile"])
def test_nothing_but_the_table_reaches_the_terminal(rows):
    """The profiler announces itself on stderr with lines "USDT:...", unless it is told not to."""
    command = f"benchmark --rows {rows} --preset nano --lengths 32 --tokens 32 --repeats 1 --compile no --device cpu"
    clean = {key: value for key, value in os.environ.items() if key != "KINETO_LOG_LEVEL"}
    done = subprocess.run([sys.executable, "-m", "caracal_min", *command.split()], capture_output=True, text=True,
                          env=clean)
    assert (done.returncode, done.stderr) == (0, "")
    assert {"layer": "Multi-Head Fourier", "profile": "nano, step"}[rows] in done.stdout


def test_time_is_measured_in_milliseconds_and_in_turns():
    assert 20 < mean_time(lambda: time.sleep(0.02), 3) < 100
    order = []
    fast, slow = in_turns([lambda: order.append("a"), lambda: order.append("b") or time.sleep(0.01)], repeats=3)
    assert order == ["a", "b"] * 5 and fast < 5 < slow


def test_ratio_is_above_one_when_ours_needs_less():
    assert Row("x", 1, "y", "ms", ours=2.0, reference=5.0, target=2.5).ratio == 2.5


def test_every_group_runs_small(tmp_path, capsys):
    groups = ("convolution", "layer", "mixer", "generation")
    rows = run_benchmark(BenchmarkConfig(rows=groups, preset="nano", lengths=(16, 33), contexts=(40, 64), tokens=66,
                                         repeats=1, device="cpu", out=tmp_path / "table.json"))
    table = capsys.readouterr().out.splitlines()
    assert table.pop(1) == "direct kernel: left out, it needs a CUDA device, and this is cpu"
    assert len(table) == len(rows) + 1 == 2 * 2 + 2 * 3 + 2 * 2 + 2 * 2 + 1 + 1
    assert all(row.ours > 0 and row.reference > 0 for row in rows)
    saved = json.loads((tmp_path / "table.json").read_text())["results"]["rows"]
    assert [r["ratio"] for r in saved] == [row.ratio for row in rows]


def test_training_steps_run_small():
    small = dict(preset="nano", lengths=(70,), tokens=70, repeats=1, compile="no")  # compiling is tested elsewhere
    against = {row.against for row in run_benchmark(BenchmarkConfig(rows=("training",), device="cpu", **small))}
    in_float32 = {"float32, autograd's loss"} if resolve_precision("auto", "cpu") != torch.float32 else set()
    assert against == {"appendix layout, eager", *in_float32}
    (row,) = run_benchmark(BenchmarkConfig(rows=("throughput",), **small))
    assert row.against == "llama, SDPA" and row.ours > 0
    rows = run_benchmark(BenchmarkConfig(rows=("throughput",), against=("mamba2", "no-swa"), **small))
    assert [row.against for row in rows] == ["mamba2", "no-swa"]
    assert len({row.ours for row in rows}) == 1 and all(row.target is None for row in rows)


def test_a_step_is_told_apart_by_kind_of_work():
    rows = run_benchmark(BenchmarkConfig(rows=("profile",), preset="nano", lengths=(256,), tokens=256, repeats=1,
                                         compile="no", device="cpu"))
    parts = {row.what: row.ours for row in rows if row.against == "the whole step"}
    assert set(parts) == {f"nano, step, {kind}" for kind in ("FFT", "attention", "optimiser", "matrix products",
                                                             "short convolution", "the rest")}
    assert all(time > 0 for time in parts.values())
    floors = {row.against: row for row in rows[len(parts):]}
    assert set(floors) == {"operations / rate", "bytes / bandwidth"}
    assert all(0 < row.reference for row in floors.values())


def test_a_kind_of_work_that_took_no_time_has_no_row(monkeypatch):
    """As the taps, which a compiler makes part of other kernels."""
    kinds = {"FFT": 0.0, "matrix products": 2.0, "short convolution": 0.0}
    monkeypatch.setattr("caracal_min.benchmark.steps.time_by_kind", lambda *_: dict(kinds))
    rows = run_benchmark(BenchmarkConfig(rows=("profile",), preset="nano", lengths=(8,), tokens=8, repeats=1,
                                         compile="no", device="cpu"))
    assert {row.what for row in rows} == {"nano, step, matrix products"} and len(rows) == 2


def test_kinds_of_work_are_told_by_name():
    x = torch.randn(512, 512)
    device = torch.device("cpu")
    product = time_by_kind(lambda: [x @ x for _ in range(20)], device)
    assert product["matrix products"] > 0.8 * sum(product.values()) and product["FFT"] == 0
    z = torch.randn(512, 2048, dtype=torch.complex64)  # of real numbers, most of the time is the cast
    transform = time_by_kind(lambda: [torch.fft.fft(z) for _ in range(20)], device)
    assert transform["FFT"] > 0.8 * sum(transform.values()) and transform["matrix products"] == 0
    kernels = {"nvjet_hsh_128x64": "matrix products", "void regular_fft_r2c<512>": "FFT",
               "triton_poi_fused_add_mm_t_3": None, "sm90_xmma_gemm_bf16": "matrix products",
               "void vector_fft<1024>": "FFT", "triton_tem_fused_flex_attention": "attention",
               "cudnn::conv_depthwise": "short convolution", "aten::mkldnn_convolution": "short convolution",
               "aten::mkldnn_linear": "matrix products", "caracal::causal_conv_backward": None,
               "GeneratedBackwardFor_caracal_causal_conv_default": None, "cudnn::convert_dq_to_16bits": None,
               "multi_tensor_kernel<FusedAdam>": "optimiser"}
    assert {name: kind_of(name) for name in kernels} == {k: v or "the rest" for k, v in kernels.items()}


def test_a_profile_of_nothing_is_no_result():
    with pytest.raises(RuntimeError, match="recorded no work on cpu; KINETO_LOG_LEVEL=0 shows why"):
        time_by_kind(lambda: None, torch.device("cpu"))


def test_rates_are_those_of_large_calls():
    """A processor core moves more than 0.5 GB/s and computes more than 1 GFLOP/s; none does a thousand times that."""
    assert 5e8 < copy_rate(torch.device("cpu")) < 5e12
    assert 1e9 < matmul_rate(torch.device("cpu")) < 1e14


def test_training_is_left_out_on_a_cpu_unless_named_alone(monkeypatch):
    small = dict(preset="nano", lengths=(8,), contexts=(8,), tokens=8, repeats=1, device="cpu")
    rows = run_benchmark(BenchmarkConfig(rows=("training", "profile", "throughput", "mixer"), **small))
    assert {row.what for row in rows} == {"mixer alone, a token"}


def test_a_device_that_cannot_be_waited_for_is_refused(monkeypatch):
    monkeypatch.setattr(run, "find_device", torch.device)
    with pytest.raises(ValueError, match="^device=mps: its work cannot be waited for here, .*; give cpu or cuda$"):
        run_benchmark(BenchmarkConfig(device="mps"))


@pytest.mark.parametrize("change, words", [
    (dict(rows=("magic",)), ["rows=magic", "convolution, layer"]),
    (dict(rows=()), ["rows=none"]),
    (dict(lengths=(0,)), ["lengths=(0,)", ">= 1"]),
    (dict(contexts=(1024, 7)), ["contexts=(1024, 7)", ">= 8"]),
    (dict(preset="huge"), ["huge", "nano, micro, tiny"]),
    (dict(repeats=0), ["repeats=0"]),
    (dict(against=("gpt",)), ["against=gpt", "llama, mamba", "no-swa"]),
    (dict(against=()), ["against=none"]),
    (dict(compile="yes"), ["compile='yes'", "no, blocks, model"]),
    (dict(against=("llama", "jamba")), ["against=jamba", "token by token", "mamba-ssm"]),
])
def test_bad_options_get_one_clear_line(change, words):
    with pytest.raises(ValueError) as caught:
        BenchmarkConfig(**change)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
