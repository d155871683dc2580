"""Portability: one compiled graph, an exported program and an ONNX file, all with the logits of the model; scripts
for a page with its weights."""

import base64
import json
import math
import subprocess
import sys
from copy import deepcopy
from dataclasses import asdict
from hashlib import sha256

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

from caracal_min import Caracal, CaracalConfig, export
from caracal_min.__main__ import main
from caracal_min.data import ByteTokenizer, make_tokenizer
from caracal_min.tokenizer import CHARACTERS, BytePairs, merges_of
from caracal_min.export import MANIFEST, export_onnx, export_program
from caracal_book.web_export import dequantize_rows, quantize_rows

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
    """Compiled there, attention is FlexAttention's, or that of the package flash-attn."""
    for name in ("_from_ampere", "_flash_runs"):
        monkeypatch.setattr(f"caracal_min.attention.{name}", lambda q: True)
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


def words() -> BytePairs:
    """Some merges of English."""
    tokens = [bytes([byte]) for byte in CHARACTERS] + [b"th", b"the", b"in", b"ing"]
    return BytePairs("merges", tokens, merges_of(tokens))


@pytest.fixture(scope="module")
def speaking():
    torch.manual_seed(0)
    model = Caracal(CaracalConfig(words().vocab_size, 64, 3, 4)).eval()
    model.tokenizer = words()
    return model


def parsed(script: str):
    assert script.startswith("globalThis.caracalPart=") and script.endswith(";\n")
    return json.loads(script.removeprefix("globalThis.caracalPart=").removesuffix(";\n"))


def test_scripts_for_a_page_hold_the_weights_in_eight_bits(speaking, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_LARGEST_PART", 7_000)  # the embedding, of 261 rows, is shared by three parts
    main(["export", "--model", saved(speaking, tmp_path), "--out", str(tmp_path / "web"), "--format", "web"])
    scripts = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "web").iterdir()}
    manifest = parsed(scripts.pop(MANIFEST))
    assert [part["file"] for part in manifest["parts"]] == sorted(scripts) == [f"part{k}.js" for k in range(6)]
    found: dict[str, list[Tensor]] = {}
    for part in manifest["parts"]:
        held = base64.b64decode(parsed(scripts[part["file"]]))
        assert (len(held), sha256(held).hexdigest()) == (part["bytes"], part["sha256"])
        for tensor in part["tensors"]:
            shape, size = tensor["shape"], math.prod(tensor["shape"])
            floats = shape[0] if tensor["rows"] else size
            values = torch.from_numpy(np.frombuffer(held, "<f4", floats).copy())
            held = held[4 * floats:]
            if tensor["rows"]:
                whole = torch.from_numpy(np.frombuffer(held, "i1", size).copy())
                values, held = (whole.view(shape[0], -1) * values[:, None]).flatten(), held[size:]
            found.setdefault(tensor["name"], []).append(values.view(shape))
        assert held == b""
    expected = dequantize_rows(quantize_rows(speaking.state_dict()))
    assert len(found["embedding.weight"]) == 3
    assert found.keys() == expected.keys()
    for name, shares in found.items():
        assert torch.equal(torch.cat(shares), expected[name]), name
    merges = manifest["tokenizer"]["merges"]
    assert [(merges[k], merges[k + 1]) for k in range(0, len(merges), 2)] == \
        [tuple(words().tokens.index(part) for part in pair) for pair in words().merges]
    assert manifest["bytes"] < 0.4 * 4 * sum(p.numel() for p in speaking.parameters())
    assert manifest["config"] == asdict(speaking.config)


def saved(model, folder) -> str:
    model.save_pretrained(folder / "model")
    return str(folder / "model")


def test_the_digest_of_a_page_s_weights_is_that_of_the_weights(speaking):
    digest = export.web_scripts(speaking)[0]["digest"]
    other = deepcopy(speaking)
    assert export.web_scripts(other)[0]["digest"] == digest
    with torch.no_grad():
        other.blocks[1].mlp.to_out.weight[0, 0] += 1
    assert export.web_scripts(other)[0]["digest"] != digest


def test_a_page_takes_no_other_tokenizer(model, speaking, tmp_path):
    with pytest.raises(ValueError, match="no tokenizer"):
        export.web_scripts(model)
    other = deepcopy(speaking)
    other.tokenizer = ByteTokenizer()
    with pytest.raises(ValueError, match="^the tokenizer byte is no prefix of GPT-2's; a page takes models with"):
        export.web_scripts(other)
    pytest.importorskip("tokenizers")
    stored = json.loads(speaking.tokenizer.to_json())
    (tmp_path / "lower.json").write_text(json.dumps(stored | {"normalizer": {"type": "Lowercase"}}))
    other.tokenizer = make_tokenizer(tmp_path / "lower.json")  # the same words, and other ids of a text
    assert other.tokenizer.encode("The") != speaking.tokenizer.encode("The")
    with pytest.raises(ValueError, match="^the tokenizer lower.json is no prefix of GPT-2's"):
        export.web_scripts(other)


def test_the_exporter_says_what_it_needs(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match="the ONNX exporter needs onnxscript: pip install onnx onnxscript$"):
        export_onnx(model, tmp_path / "model.onnx", LENGTH)
