"""Weights in eight bits, and the scripts that carry them to a page: how far off they are, and that nothing is lost."""

import base64
import json
import math
from copy import deepcopy
from dataclasses import asdict
from hashlib import sha256

import numpy as np
import pytest
import torch

from caracal_book import web_export
from caracal_book.__main__ import main
from caracal_book.web_export import MANIFEST, Rows, dequantize_rows, quantize_rows, web_scripts
from caracal_min import Caracal
from caracal_min.data import ByteTokenizer


@pytest.fixture(scope="module")
def micro():
    return Caracal.from_pretrained("micro", device="cpu")


def test_matrices_are_rounded_and_the_rest_stays(micro):
    state = micro.state_dict()
    stored = quantize_rows(state)
    rounded = {name for name, weight in stored.items() if isinstance(weight, Rows)}
    assert rounded == {name for name in state if name.endswith("weight") and "norm" not in name
                       and not name.endswith("pre_conv.weight")}
    back = dequantize_rows(stored)
    assert [*back] == [*state]
    for name, weight in state.items():
        assert back[name].shape == weight.shape and back[name].dtype == torch.float32
        if name in rounded:
            off = (back[name] - weight).abs().flatten(1).amax(1)
            assert (off <= stored[name].scales * 0.5001).all() and off.max() > 0
            assert (stored[name].values.flatten(1).abs().amax(1) == 127).all()
        else:
            assert torch.equal(back[name], weight)


def test_the_model_computes_nearly_the_same(micro):
    tokens = torch.randint(4095, (1, 40), generator=torch.Generator().manual_seed(1))
    other = deepcopy(micro)
    other.load_state_dict(dequantize_rows(quantize_rows(micro.state_dict())))
    with torch.no_grad():
        expected = micro.logits(tokens)
        off = (other.logits(tokens) - expected).norm() / expected.norm()
    assert 1e-4 < off < 0.03


def parsed(script: str):
    assert script.startswith("globalThis.caracalPart=") and script.endswith(";\n")
    return json.loads(script.removeprefix("globalThis.caracalPart=").removesuffix(";\n"))


def test_scripts_for_a_page_hold_the_weights(micro, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(web_export, "_LARGEST_PART", 400_000)  # the embedding, a million numbers, is shared by three
    assert main(["export-web", "micro", "--out", str(tmp_path / "web")]) == 0
    assert "MB of weights" in capsys.readouterr().out
    scripts = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "web").iterdir()}
    manifest = parsed(scripts.pop(MANIFEST))
    assert {part["file"] for part in manifest["parts"]} == set(scripts)
    found: dict[str, list[torch.Tensor]] = {}
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
    expected = dequantize_rows(quantize_rows(micro.state_dict()))
    assert len(found["embedding.weight"]) == 3 and found.keys() == expected.keys()
    for name, shares in found.items():
        assert torch.equal(torch.cat(shares), expected[name]), name
    assert manifest["config"] == asdict(micro.config)


def test_the_digest_is_that_of_the_weights_and_other_tokenizers_are_refused(micro):
    other = deepcopy(micro)
    assert web_scripts(other)[0]["digest"] == web_scripts(micro)[0]["digest"]
    measured, scripts = web_scripts(micro, {"more": torch.ones(2, 3)})
    assert all(measured[key] == web_scripts(micro)[0][key] for key in ("digest", "bytes"))
    assert [part["bytes"] for part in measured["parts"]][-1] == 24 and len(scripts) == 1 + len(measured["parts"])
    uncut = Caracal.from_pretrained("micro", device="cpu", gate_length=None)
    manifest, told = web_scripts(uncut)[0], web_scripts(micro)[0]
    assert manifest["digest"] == told["digest"], "a view may ask the same weights for all gates"
    assert (manifest["config"]["gate_length"], told["config"]["gate_length"]) == (None, 256)
    with torch.no_grad():
        other.blocks[1].mlp.to_out.weight[0, 0] += 1
    assert web_scripts(other)[0]["digest"] != web_scripts(micro)[0]["digest"]
    other.tokenizer = ByteTokenizer()
    with pytest.raises(ValueError, match="^the tokenizer byte is no prefix of GPT-2's; a page takes models with"):
        web_scripts(other)
