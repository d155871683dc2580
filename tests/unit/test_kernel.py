"""The Triton kernel against the float64 sum: on a GPU compiled, elsewhere in Triton's interpreter."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from strides import contiguous, results, streams

from caracal_min import spectral
from caracal_min.convolution import causal_conv_direct, causal_conv_fft

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# One rounding of the result to its dtype; the interpreter cuts off what bfloat16 does not hold and errs twice as far.
# In float32, n terms that are added one by one make a random walk of roundings, 2 ** -24 * (n / 6) ** 0.5.
TOLERANCE = {torch.float32: 4e-7, torch.float16: 4e-4, torch.bfloat16: 6e-3}


@pytest.fixture(autouse=True)
def calls(report_missing, monkeypatch):
    """Turn the kernel on; return the names of its operators that were called."""
    if find_spec("triton") is None:
        (report_missing if sys.platform == "linux" else pytest.skip)("no Triton: pip install -r requirements.txt")
    if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("a PyTorch without CUDA on a machine with a GPU: TRITON_INTERPRET=1 interprets the kernel")
    from caracal_min import kernel

    called = []
    for name in ("convolve", "convolve_backward"):
        operator = getattr(kernel, name)
        monkeypatch.setattr(kernel, name, lambda *xs, name=name, call=operator: called.append(name) or call(*xs))
    monkeypatch.setitem(spectral.KERNEL_LENGTH, DEVICE, spectral.KERNEL_TESTED)
    return called


def relative_error(found, expected):
    assert found.isfinite().all()
    return ((found.double().cpu() - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("length", [1, 7, 16, 100, 512, 513, 700, 2048])
def test_result_and_gradients_are_those_of_the_sum(length, dtype, calls):
    """Less than a tile, a tile, one more; of several rows in the memory order of training."""
    draw = torch.Generator().manual_seed(length)
    shape = (3, 1, 1) if length > 1000 else (3, 3, 2)
    drawn = torch.randn(*shape, length, generator=draw, dtype=torch.float64).to(dtype)
    v, g, dr = (x.transpose(0, 1) for x in drawn)
    expected = results(causal_conv_direct, (v.double(), g.double()), dr.double())
    found = results(causal_conv_fft, (v.to(DEVICE), g.to(DEVICE)), dr.to(DEVICE))
    assert calls == ["convolve", "convolve_backward"]
    tolerance = max(TOLERANCE[dtype], 2 ** -24 * (length / 4) ** 0.5)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == dtype and a.stride() == v.stride() and relative_error(a, b) < tolerance


def test_several_programs_share_a_row():
    """From 4,097 tokens on, because a program takes 64 pieces of 64."""
    v, g, dr = torch.randn(3, 1, 4200)
    found = results(causal_conv_fft, (v.to(DEVICE), g.to(DEVICE)), dr.to(DEVICE))
    expected = results(causal_conv_fft, (v.double(), g.double()), dr.double())
    assert max(relative_error(a, b) for a, b in zip(found, expected, strict=True)) < 2e-6


@pytest.mark.parametrize("seed", range(12))
def test_any_layout_is_read(seed):
    v, g, dr = (x.to(DEVICE) for x in streams(1 + seed % 4, seed, dtype=torch.float32))
    found = results(causal_conv_fft, (v, g), dr)
    expected = results(causal_conv_direct, (contiguous(v), contiguous(g)), contiguous(dr))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_the_future_moves_nothing_at_all(dtype):
    """Not even by rounding, and it has no gradient."""
    from caracal_min import kernel

    v, g = torch.randn(2, 2, 100).to(DEVICE, dtype)
    r = causal_conv_fft(v, g)
    for late in range(1, 100, 14):
        moved = torch.zeros_like(v)
        moved[:, late:] = 1000
        for found in (causal_conv_fft(v + moved, g), causal_conv_fft(v, g + moved)):
            assert torch.equal(found[:, :late], r[:, :late])
        slope = torch.zeros_like(r)
        slope[:, :late] = 1
        for gradient in kernel.convolve_backward(slope, v, g):
            assert not gradient[:, late:].any() and gradient[:, :late].any()


def test_differentiated_twice_and_mapped():
    v, g = torch.randn(2, 3, 20, device=DEVICE)

    def slopes(conv):
        pair = [x.clone().requires_grad_() for x in (v, g)]
        first = torch.autograd.grad(conv(*pair).square().sum(), pair, create_graph=True)
        return *first, *torch.autograd.grad(sum(x.square().sum() for x in first), pair)

    torch.testing.assert_close(slopes(causal_conv_fft), slopes(causal_conv_direct), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.func.vmap(causal_conv_fft)(v, g), causal_conv_direct(v, g), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length, taps, dtype, longest, direct", [
    (64, 64, torch.float32, 64, True), (65, 65, torch.float32, 64, False), (64, 64, torch.float64, 64, False),
    (64, 63, torch.float32, 64, False), (64, 64, torch.float32, 0, False)])
def test_it_takes_short_texts_where_it_is_chosen(calls, monkeypatch, length, taps, dtype, longest, direct):
    monkeypatch.setitem(spectral.KERNEL_LENGTH, DEVICE, longest)
    v, g = torch.randn(2, 1, length, device=DEVICE, dtype=dtype)
    results(causal_conv_fft, (v, g[:, :taps]), v)
    assert calls == ["convolve", "convolve_backward"] * direct


def test_an_empty_batch():
    v = torch.zeros(0, 3, 7, device=DEVICE)
    assert [x.shape for x in results(causal_conv_fft, (v, v), torch.zeros(1, device=DEVICE))] == [v.shape] * 3


COMPILED = """
import torch
from torch._dynamo.backends.common import aot_autograd
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import driver
from caracal_min import spectral
from caracal_min.convolution import causal_conv_fft
from caracal_min.kernel import _toeplitz_kernel

assert spectral.KERNEL_LENGTH == {}
for capability, dtype, shared in ((75, "fp16", 64), (80, "fp32", 163), (80, "fp16", 163), (90, "bf16", 227)):
    fixed = dict(REVERSE=True, WIDEN=False, SIDE=64, STEP=64, ROWS=64)
    types = {n: "constexpr" if n in fixed else "*" + dtype if n in ("x0", "x1", "y", "z0", "z1") else "i32"
             for n in _toeplitz_kernel.arg_names}
    source, target = ASTSource(_toeplitz_kernel, types, fixed), GPUTarget("cuda", capability, 32)
    made = compile(source, target, options=dict(num_warps=4))
    assert made.metadata.shared <= shared * 1024, (capability, dtype, made.metadata.shared)
    on_tensor_cores = "mma" in made.asm["ptx"]
    assert on_tensor_cores == (capability >= 80 and dtype != "fp32"), (capability, dtype)


class H100:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0


def launches(module, inputs):
    nodes = [n for n in module.graph.nodes if "triton_kernel_wrapper" in str(n.target)]
    seen.append(sorted(nodes[0].kwargs["tensors_to_clone"]) if len(nodes) == 1 else nodes)
    results = [n.meta["val"] for n in next(iter(reversed(module.graph.nodes))).args[0]]
    return lambda *xs: [torch.zeros(x.shape, dtype=x.dtype) if isinstance(x, torch.Tensor) else x for x in results]


seen = []
driver.set_active(H100())
spectral.KERNEL_LENGTH["cpu"] = 512
v, g = torch.zeros(2, 2, 3, 64, dtype=torch.bfloat16).requires_grad_()
torch.compile(causal_conv_fft, fullgraph=True, backend=aot_autograd(fw_compiler=launches))(v, g).sum().backward()
assert seen == [["z0"], ["z0", "z1"]], seen
"""


@pytest.mark.process
@pytest.mark.compile
def test_it_compiles_for_gpus_that_are_not_here_and_the_compiler_sees_its_launches(tmp_path):
    """T4, A100 and H100, in the shared memory that each has, in half precision on tensor cores; one launch each way."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", COMPILED], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
