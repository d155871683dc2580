"""Ablations: each is what it says, leaves nothing behind, and is measured on the same tokens."""

import json
import math
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch

from caracal_book.commands.surgery import SurgeryConfig, run_surgery
from caracal_book.experiments.ablated import loss_by_length, surgery
from caracal_book.experiments.surgery import (
    gate_as,
    gate_of_another,
    gate_up_to,
    in_eight_bits,
    mean_gates,
    pre_conv_of_one_tap,
    windows_of,
    without,
)
from caracal_book.web_export import dequantize_rows, quantize_rows
from caracal_min import Caracal, CaracalConfig
from caracal_min.data import ByteTokenizer
from caracal_min.evaluation import token_losses
from caracal_min.layers import MultiHeadFourier, SlidingWindowAttention, SwiGLU

CONFIG = CaracalConfig(23, 16, 3, 2, window_size=5, init_std=0.3, embedding_std=0.5)
ONE = replace(CONFIG, n_layers=1)
OPERATIONS = {
    "lag": lambda model: gate_up_to(model, 2),
    "mean": lambda model: gate_as(model, mean_gates(model, ids(4, seed=5))),
    "another": gate_of_another,
    "windows": windows_of,
    "tap": pre_conv_of_one_tap,
    "feed-forward": lambda model: without(model, SwiGLU),
    "eight bits": in_eight_bits,
}


def build(config=CONFIG, seed=0):
    torch.manual_seed(seed)
    return Caracal(config).eval()


def ids(rows=3, length=12, seed=0):
    return torch.randint(23, (rows, length), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def logits(model, tokens, context=None):
    with context or ExitStack():
        return model.logits(tokens)


@pytest.mark.parametrize("gate", ["two_stage", "single_stage"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_ablation_changes_the_model_inside_and_not_afterwards(name, gate):
    model, x = build(replace(CONFIG, gate=gate)), ids()
    before, weights = logits(model, x), {k: v.clone() for k, v in model.state_dict().items()}
    assert (logits(model, x, OPERATIONS[name](model)) - before).abs().max() > 1e-4
    assert torch.equal(logits(model, x), before)
    with pytest.raises(KeyError), OPERATIONS[name](model):
        raise KeyError
    assert torch.equal(logits(model, x), before)
    assert all(torch.equal(v, weights[k]) for k, v in model.state_dict().items())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    assert [block.mixer.window_size for block in model.blocks if hasattr(block.mixer, "window_size")] == [5]


@pytest.mark.parametrize("lag", [0, 1, 5])
def test_a_gate_up_to_a_lag_is_the_sum_over_these_lags(lag):
    model, x = build(ONE), ids()
    layer, h = model.blocks[0].mixer, []
    layer.register_forward_hook(lambda _, given, out: h.append((given[0], out)))
    logits(model, x, gate_up_to(model, lag))
    with torch.no_grad():
        v, g = layer.streams(h[0][0])
        r = sum(torch.nn.functional.pad(v, (k, 0))[..., :12] * g[..., k:k + 1] for k in range(lag + 1))
        assert torch.allclose(h[0][1], layer.to_out(r.transpose(1, 2)), atol=1e-5)


def test_the_gate_of_another_is_that_of_the_next_text():
    model, x = build(ONE), ids(3)
    swapped = logits(model, x, gate_of_another(model))
    for row, other in ((0, 1), (1, 2), (2, 0)):
        own = x[row:row + 1]
        with_theirs = logits(model, own, gate_as(model, mean_gates(model, x[other:other + 1])))
        assert torch.allclose(with_theirs[0], swapped[row], atol=1e-5)
    same = x[:1].expand(3, -1)
    assert torch.allclose(logits(model, same, gate_of_another(model)), logits(model, same), atol=1e-5)


@pytest.mark.parametrize("keys", [1, 3, 9])
def test_windows_are_those_of_a_model_built_with_them(keys):
    model, x = build(), ids()
    small = build(replace(CONFIG, window_size=min(keys, 5)))
    small.load_state_dict(model.state_dict())
    assert torch.allclose(logits(model, x, windows_of(model, keys)), logits(small, x), atol=1e-6)


def test_one_tap_is_a_pre_convolution_with_the_others_zero():
    model, x = build(), ids()
    cut = logits(model, x, pre_conv_of_one_tap(model))
    with torch.no_grad():
        for block in model.blocks[:2]:
            block.mixer.pre_conv.weight[:, :, :2] = 0
    assert torch.allclose(cut, logits(model, x), atol=1e-6)


@pytest.mark.parametrize("kind, name", [(MultiHeadFourier, "mixer.to_out"), (SlidingWindowAttention, "mixer.to_out"),
                                        (SwiGLU, "mlp.to_out")])
def test_a_layer_that_adds_nothing_is_one_whose_last_matrix_is_zero(kind, name):
    model, x = build(), ids()
    cut, whole = logits(model, x, without(model, kind)), logits(model, x)
    with torch.no_grad():
        for block in model.blocks:
            if kind is SwiGLU or isinstance(block.mixer, kind):
                block.get_submodule(name).weight.zero_()
                if (bias := block.get_submodule(name).bias) is not None:
                    bias.zero_()
    assert torch.allclose(cut, logits(model, x), atol=1e-6) and not torch.allclose(cut, whole, atol=1e-2)


def test_eight_bits_are_those_of_the_quantized_weights():
    model, x = build(), ids()
    rounded = build()
    rounded.load_state_dict(dequantize_rows(quantize_rows(model.state_dict())))
    assert torch.equal(logits(model, x, in_eight_bits(model)), logits(rounded, x))


def test_the_table_is_measured_on_the_same_tokens():
    model, windows = build(), ids(7, 13)
    outcomes = surgery(model, windows, lags=(0, 11), batch_size=3)
    assert [o.operation for o in outcomes] == ["whole", "gate up to lag 0", "gate up to lag 11", "mean gate",
                                               "gate of another text", "windows of one key",
                                               "pre-convolution of one tap", "no Fourier layers",
                                               "no attention layers", "no feed-forward layers",
                                               "matrices of eight bits"]
    whole = token_losses(model, windows).double()
    assert outcomes[0].loss == pytest.approx(whole.mean().item(), abs=1e-6) and outcomes[0].error == 0
    assert outcomes[2].change == outcomes[2].error == 0
    with gate_up_to(model, 0):
        change = (token_losses(model, windows).double() - whole).mean(1)
    assert outcomes[1].change == pytest.approx(change.mean().item(), abs=1e-6)
    assert outcomes[1].error == pytest.approx(change.std().item() / 7 ** 0.5, abs=1e-6)
    assert all(o.error > 0 and o.loss == pytest.approx(outcomes[0].loss + o.change) for o in outcomes[3:])


def test_the_cut_acts_beyond_the_context_only():
    model, tokens = build(), ids(1, 65)[0].numpy()
    whole, cut = (loss_by_length(model, tokens, 8, flag, (1, 2, 8)) for flag in (False, True))
    assert list(whole) == [8, 16, 64] and whole[8] == cut[8] and whole[16] != cut[16] and whole[64] != cut[64]
    with gate_up_to(model, 7):
        assert cut[64] == pytest.approx(token_losses(model, torch.tensor(tokens)[None]).mean().item(), abs=1e-6)


def test_the_command_takes_a_run_or_a_model_and_writes_a_record(tmp_path, capsys):
    from caracal_book.records import read_record

    pytest.importorskip("jsonschema")
    model = build(CaracalConfig(256, 16, 3, 2, window_size=5))
    model.tokenizer = ByteTokenizer()
    model.save_pretrained(tmp_path / "run" / "model")
    text = tmp_path / "text.jsonl"
    text.write_text("\n".join(json.dumps({"text": f"a line of text, number {n}"}) for n in range(100)))
    config = SurgeryConfig(str(tmp_path / "run"), data=str(text), split="all", context=16, windows=4, lags=(0, 3),
                           out=tmp_path / "surgery.json")
    results = run_surgery(config)
    record = read_record(tmp_path / "surgery.json", require_commit=False)
    assert record["kind"] == "surgery" and record["results"]["rows"] == results["rows"]
    assert list(record["results"]["loss_by_length"]["whole"]) == ["16", "32", "64", "128", "256"]
    assert list(record["results"]["loss_by_octave"]["gate cut at the context"])[-2:] == ["128", "256"]
    assert record["results"]["tokens"] == 4 * 16 and 4 * 16 - 4 <= record["results"]["bytes"] <= 4 * 16
    for row in results["rows"]:  # of bytes, but for ends of texts
        bits = row["change"] / math.log(2) * 64 / results["bytes"]
        assert row["change_in_bits_per_byte"] == pytest.approx(bits, abs=1e-9)
    assert "gate of another text" in capsys.readouterr().out
