"""The Triton kernel against the float64 sum: on a GPU compiled, elsewhere in Triton's interpreter."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from unittest import mock

import pytest
import torch
import tune
from hypothesis import given, settings
from hypothesis import strategies as st
from strides import contiguous, results, streams

from caracal_min import Caracal, spectral
from caracal_min.benchmark import BenchmarkConfig, operators, run_benchmark
from caracal_min.config import PRESETS
from caracal_min.convolution import causal_conv_direct, causal_conv_fft
from caracal_min.spectral import DIRECT, causal_conv, causal_conv_backward

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# One rounding of the result to its dtype; the interpreter cuts off what bfloat16 does not hold and errs twice as far.
# In float32 the sums count too: each of n terms, added one by one, rounds a sum that has grown as a random walk does,
# which makes 2 ** -24 * (n / 6) ** 0.5 together, and sqrt(1.5) times that is allowed.
TOLERANCE = {torch.float32: 4e-7, torch.float16: 4e-4, torch.bfloat16: 6e-3}


@pytest.fixture(scope="module", autouse=True)
def kernel(report_missing):
    """The module of the kernel, which every test here uses."""
    if find_spec("triton") is None:
        (report_missing if sys.platform == "linux" else pytest.skip)("no Triton: pip install -r requirements.txt")
    if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("a PyTorch without CUDA on a machine with a GPU: TRITON_INTERPRET=1 interprets the kernel")
    from caracal_min import direct_kernel
    with mock.patch.dict(DIRECT, {DEVICE: 2048}):
        yield direct_kernel


@pytest.fixture
def calls(kernel, monkeypatch):
    """The lengths of the texts that the kernel was given."""
    lengths, convolve, backward = [], kernel.convolve, kernel.convolve_backward
    monkeypatch.setattr(kernel, "convolve", lambda v, g: lengths.append(v.shape[-1]) or convolve(v, g))
    monkeypatch.setattr(kernel, "convolve_backward",
                        lambda dr, v, g: lengths.append(v.shape[-1]) or backward(dr, v, g))
    return lengths


def relative_error(found, expected):
    assert found.isfinite().all()
    return ((found.double() - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("length, taps", [(1, 1), (2, 2), (31, 31), (32, 32), (33, 33), (100, 100), (512, 512),
                                          (513, 513), (2048, 2048), (32, 1), (64, 33), (100, 31), (700, 40)])
def test_result_and_gradients_are_those_of_the_sum(length, taps, dtype, calls):
    """Texts of less than a block, a block, one more; as many columns as a product has at least, and at most."""
    draw = torch.Generator().manual_seed(length)
    v, g, dr = torch.randn(3, 2, 1 + 8 // length, length, generator=draw, dtype=torch.float64).to(dtype)
    exact = [x.double().requires_grad_() for x in (v, g[..., :taps])]
    r = causal_conv_direct(*exact)
    expected = r, *torch.autograd.grad(r, exact, dr.double())
    given_ = [x.to(DEVICE).requires_grad_() for x in (v, g[..., :taps])]
    r = causal_conv_fft(*given_)
    found = r, *torch.autograd.grad(r, given_, dr.to(DEVICE))
    assert calls == [length, length]
    tolerance = max(TOLERANCE[dtype], 2 ** -24 * (length / 4) ** 0.5)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == dtype and relative_error(a.cpu(), b) < tolerance


@settings(max_examples=40, deadline=None, derandomize=True)
@given(ndim=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_any_strides_are_read_and_written(ndim, seed):
    v, g, dr = (x.to(DEVICE) for x in streams(ndim, seed, dtype=torch.float32))
    g = g[..., :1 + seed % g.shape[-1]]
    r, (dv, dg) = causal_conv(v, g), causal_conv_backward(dr, v, g)
    expected = results(causal_conv_direct, (contiguous(v), contiguous(g)), contiguous(dr))
    for found, wanted, like in zip((r, dv, dg), expected, (v, v, g), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        assert found.stride() == torch.empty_like(like).stride()


def test_operators_are_registered_as_pytorch_asks(calls):
    """With leading dimensions that do not merge."""
    v, g, dr = (torch.randn(2, 2, 1, 9, device=DEVICE).transpose(0, 1).requires_grad_() for _ in range(3))
    torch.library.opcheck(torch.ops.caracal.causal_conv.default, (v, g))
    torch.library.opcheck(torch.ops.caracal.causal_conv_backward.default, (dr, v, g))
    assert calls


def test_compiled_and_differentiated_twice(calls):
    v, g = (x.to(DEVICE) for x in streams(2, 40, zeros=False, dtype=torch.float32)[:2])

    def slopes(conv, v, g):
        given_ = [x.detach().clone().requires_grad_() for x in (v, g)]
        first = torch.autograd.grad(conv(*given_).square().sum(), given_, create_graph=True)
        return *first, *torch.autograd.grad(sum(x.square().sum() for x in first), given_)

    torch._dynamo.reset()
    compiled = torch.compile(causal_conv_fft, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(results(compiled, (v, g), v), results(causal_conv_direct, (v, g), v))
    torch.testing.assert_close(slopes(causal_conv_fft, v, g), slopes(causal_conv_direct, v, g), rtol=1e-4, atol=1e-4)
    assert len(calls) > 4


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_the_future_moves_nothing_at_all(dtype):
    """Not by rounding either, and it has no gradient; of a NaN in v no output before its block hears."""
    v, g = torch.randn(2, 2, 100).to(DEVICE, dtype)
    r = causal_conv_fft(v, g)
    for late in range(1, 100, 14):
        for which in (0, 1):
            changed = [x.clone() for x in (v, g)]
            changed[which][:, late:] += 1000
            assert torch.equal(causal_conv_fft(*changed)[:, :late], r[:, :late])
        with_nan, block = v.clone(), late - late % 32
        with_nan[:, late] = float("nan")
        found = causal_conv_fft(with_nan, g)
        assert torch.equal(found[:, :block], r[:, :block]) and found[:, late:].isnan().all()
        slope = torch.zeros_like(r)
        slope[:, :late] = 1
        for gradient in causal_conv_backward(slope, v, g):
            assert not gradient[:, late:].any() and gradient[:, :late].any()


@pytest.mark.parametrize("length, dtype, longest, direct", [
    (64, torch.float32, 64, True), (65, torch.float32, 64, False), (64, torch.float64, 64, False),
    (2049, torch.float32, 10**6, False), (64, torch.float32, 0, False)])
def test_it_takes_short_texts_where_it_is_chosen_and_no_others(calls, length, dtype, longest, direct):
    v, g = torch.randn(2, 1, length, device=DEVICE, dtype=dtype)
    with mock.patch.dict(DIRECT, {DEVICE: longest}):
        v.requires_grad_()
        causal_conv_fft(v, g).sum().backward()
    assert calls == [length] * 2 * direct


def test_no_device_chooses_it_by_itself():
    script = "from caracal_min import spectral; assert spectral.DIRECT == {}"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_empty_batch():
    v = torch.zeros(0, 3, 7, device=DEVICE)
    assert causal_conv(v, v).shape == v.shape
    assert [x.shape for x in causal_conv_backward(v, v, v[..., :2])] == [v.shape, (0, 3, 2)]


def test_a_model_computes_the_same(calls):
    torch.manual_seed(0)
    model, tokens = Caracal.from_preset("nano", n_layers=3, d_model=16), torch.randint(256, (2, 41))
    model, tokens = model.to(DEVICE), tokens.to(DEVICE)

    def loss_and_slopes():
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        return loss, *torch.autograd.grad(loss, list(model.parameters()))

    found = loss_and_slopes()
    assert len(calls) == 4
    with mock.patch.dict(DIRECT, {DEVICE: 0}):
        torch.testing.assert_close(found, loss_and_slopes(), rtol=1e-4, atol=1e-6)
    assert len(calls) == 4


def test_tune_and_benchmark_time_it_where_it_runs(monkeypatch, calls):
    assert spectral.kernel_fault("cpu") == "it needs a CUDA device, and this is cpu"
    monkeypatch.setitem(PRESETS, "nano", replace(PRESETS["nano"], d_model=4))
    monkeypatch.setattr(spectral, "kernel_fault", lambda kind: None)
    monkeypatch.setattr(operators, "kernel_fault", lambda kind: None)
    with mock.patch.dict(DIRECT, {DEVICE: 0}):
        options = f"--only convolution --preset nano --length 8 --tokens 8 --repeats 1 --device {DEVICE}"
        times = tune.tune(tune.arguments(options.split()), show=lambda line: None)["convolution, fwd + bwd"]
        assert list(times) == ["FFT", "direct kernel"] and calls == [8] * 2 * 3
        config = BenchmarkConfig(rows=("convolution",), preset="nano", lengths=(8, 2049), tokens=8, repeats=1,
                                 device=DEVICE)
        rows = [row for row in run_benchmark(config, show=lambda line: None) if row.what.startswith("direct kernel")]
    assert [(row.size, row.against) for row in rows] == [(8, "FFT")] and calls == [8] * 2 * 3 * 2


def test_without_triton_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "caracal_min.direct_kernel")
    monkeypatch.delattr("caracal_min.direct_kernel")
    with pytest.raises(ImportError, match=r"^the direct kernel \(spectral.DIRECT\) needs triton: pip install "):
        causal_conv(*torch.randn(2, 3, 8, device=DEVICE))


COMPILED = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from caracal_min import direct_kernel as kernel

for capability in (75, 80, 90):
    for dtype in ("fp32", "fp16", "bf16"):
        for columns in (16, 64):
            fixed = dict(REVERSE=dtype == "fp16", WIDEN=False, SIDE=kernel._SIDE, STEP=kernel._STEP, COLUMNS=columns,
                         x_time=1, y_time=1, z_time=1)
            types = {name: "constexpr" if name in fixed else "*" + dtype if name in "xyz" else "i32"
                     for name in kernel._product.arg_names}
            made = compile(ASTSource(kernel._product, types, fixed), GPUTarget("cuda", capability, 32))
            assert made.metadata.shared < 48 * 1024 and len(made.asm["cubin"]) > 1000
            on_tensor_cores = "mma.sync" in made.asm["ptx"]
            assert on_tensor_cores == (capability >= 80 and dtype != "fp32"), (capability, dtype)
"""


def test_it_compiles_for_gpus_that_are_not_here(tmp_path):
    """T4, A100 and H100: to machine code, in shared memory that each has, in half precision on tensor cores."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", COMPILED], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
