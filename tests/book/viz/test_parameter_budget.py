"""The figure of chapter 8: its words follow the models of the package."""

import pytest
import torch

from caracal_book.viz.parameter_budget import _parts
from caracal_min import Caracal
from caracal_min.config import PRESETS
from caracal_min.layers import MultiHeadFourier, SlidingWindowAttention, SwiGLU


def by_part(config):
    """Count the parameters of a real model by the layer that holds them."""
    with torch.device("meta"):
        model = Caracal(config)

    def of(kind, *names):
        layers = [m for m in model.modules() if isinstance(m, kind)]
        return sum(p.numel() for m in layers for name in names for p in getattr(m, name).parameters())

    parts = {"embedding": model.embedding.weight.numel(), "value": of(MultiHeadFourier, "to_value"),
             "gate": of(MultiHeadFourier, "to_gate"), "mix": of(MultiHeadFourier, "gate_mix"),
             "output": of(MultiHeadFourier, "to_out"), "attention": of(SlidingWindowAttention, "to_qkv", "to_out"),
             "mlp": of(SwiGLU, "to_value", "to_gate", "to_out")}
    return {**parts, "rest": model.num_parameters() - sum(parts.values())}


@pytest.mark.parametrize("name", PRESETS)
def test_parts_are_those_of_the_model(name):
    assert _parts(PRESETS[name]) == by_part(PRESETS[name])
