"""Weights in eight bits: how far off they are, what stays, and that a model computes with them."""

import pytest
import torch

from caracal_min import Caracal
from caracal_min.quantized import Rows, dequantize_rows, quantize_rows


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Caracal.from_preset("nano", n_layers=3).eval()


def test_matrices_are_rounded_and_the_rest_stays(model):
    state = model.state_dict()
    stored = quantize_rows(state)
    rounded = {name for name, weight in stored.items() if isinstance(weight, Rows)}
    assert rounded == {name for name in state if name.endswith("weight") and "norm" not in name
                       and not name.endswith("pre_conv.weight")}
    assert "blocks.0.mixer.gate_mix.weight" in rounded and "blocks.0.mixer.pre_conv.weight" not in rounded
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


def test_what_was_rounded_is_rounded_to_itself(model):
    once = dequantize_rows(quantize_rows(model.state_dict()))
    twice = dequantize_rows(quantize_rows(once))
    for name, weight in once.items():
        torch.testing.assert_close(twice[name], weight, rtol=1e-6, atol=0)


def test_the_model_computes_nearly_the_same(model):
    tokens = torch.randint(256, (1, 40), generator=torch.Generator().manual_seed(1))
    other = Caracal(model.config).eval()
    other.load_state_dict(dequantize_rows(quantize_rows(model.state_dict())))
    expected = model.logits(tokens)
    off = (other.logits(tokens) - expected).norm() / expected.norm()
    assert 1e-4 < off < 0.02


def test_a_row_of_zeros_and_a_half_type_are_taken():
    weight = torch.zeros(2, 16)
    weight[1] = torch.linspace(-3, 3, 16)
    stored = quantize_rows({"w": weight.bfloat16()})["w"]
    assert stored.scales[0] == 0 and not stored.values[0].any() and stored.scales.dtype == torch.float32
    assert torch.allclose(dequantize_rows({"w": stored})["w"], weight.bfloat16().float(), atol=3 / 254)


def test_a_weight_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="^the weight 'w' holds numbers that are not finite"):
        quantize_rows({"w": torch.full((2, 16), float("nan"))})
