"""Portability: one compiled graph, an exported program and an ONNX file, all with the logits of the model."""

import subprocess
import sys

import onnxruntime
import pytest
import torch

from caracal_min import Caracal, CaracalConfig
from caracal_min.export import export_onnx, export_program

LENGTH = 45  # longer than the window, no power of two


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Caracal(CaracalConfig(60, 32, 3, 4, window_size=16, embedding_std=1.0, init_std=0.1)).eval()


@pytest.fixture(scope="module")
def tokens():
    return torch.randint(60, (2, LENGTH), generator=torch.Generator().manual_seed(1))


def close(found, expected):
    """In float32, of logits about 5 in size; an FFT in another library rounds differently."""
    assert expected.abs().max() > 3
    return (torch.as_tensor(found) - expected).abs().max() < 1e-4


@pytest.mark.compile
def test_the_model_compiles_as_one_graph_and_trains_the_same(model, tokens, compiler, no_warning):
    torch._dynamo.reset()
    logits, loss = torch.compile(model, fullgraph=True)(tokens, tokens.roll(-1, 1))
    found = torch.autograd.grad(loss, list(model.parameters()))
    expected_logits, expected_loss = model(tokens, tokens.roll(-1, 1))
    assert close(logits, expected_logits)
    for a, b in zip(found, torch.autograd.grad(expected_loss, list(model.parameters())), strict=True):
        assert (a - b).norm() < 1e-4 * b.norm()


def test_on_a_gpu_an_exported_program_has_standard_operators_too(tokens, monkeypatch):
    """Compiled there, attention is FlexAttention's."""
    monkeypatch.setattr("caracal_min.attention._is_ampere_or_newer", lambda q: True)
    model = Caracal(CaracalConfig(60, 64, 2, 4, fourier_per_attention=1, window_size=16))
    nodes = export_program(model, LENGTH, batch=2).graph.nodes
    names = {str(node.target) for node in nodes if node.op == "call_function"}
    assert all(name.startswith("aten.") or "getitem" in name for name in names)


@pytest.mark.process
def test_an_exported_program_runs_without_the_package(model, tokens, tmp_path):
    program = export_program(model, LENGTH, batch=2)
    operators = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert any("fft" in name for name in operators) and not any("caracal" in name for name in operators)
    torch.export.save(program, tmp_path / "model.pt2")
    torch.save(tokens, tmp_path / "tokens.pt")
    done = subprocess.run([sys.executable, "-c", """
import sys, torch
sys.modules["caracal_min"] = None
program = torch.export.load("model.pt2").module()
torch.save(program(torch.load("tokens.pt")), "logits.pt")
"""], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert close(torch.load(tmp_path / "logits.pt"), model(tokens)[0])


@pytest.mark.parametrize("changes", [dict(pre_conv=False, gate="single_stage"),
                                     dict(positional_encoding="learned", fourier_per_attention=1, gate_length=7)])
def test_onnx_runtime_gives_the_same_logits(changes, tokens, tmp_path):
    torch.manual_seed(0)
    config = dict(vocab_size=60, d_model=32, n_layers=3, n_heads=4, window_size=16, embedding_std=1.0, init_std=0.1)
    model = Caracal(CaracalConfig(**{**config, **changes})).eval()
    export_onnx(model, tmp_path / "model.onnx", LENGTH, batch=2)
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"tokens": tokens.numpy()})
    assert close(logits, model(tokens)[0].detach())


def test_the_older_onnx_exporter_has_no_fft(tmp_path):
    """As the claims ledger says: nothing but the transform stands in its way."""
    class Spectrum(torch.nn.Module):
        def forward(self, x):
            return torch.fft.rfft(x).abs()

    with pytest.raises(torch.onnx.errors.UnsupportedOperatorError, match="aten::fft_rfft"):
        torch.onnx.export(Spectrum(), (torch.ones(2, 8),), tmp_path / "model.onnx", dynamo=False)


def test_the_exporter_says_what_it_needs(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match="the ONNX exporter needs onnxscript: pip install onnx onnxscript$"):
        export_onnx(model, tmp_path / "model.onnx", LENGTH)
