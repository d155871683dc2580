"""The figure of chapter 8: its still and words follow the models of the package."""

import re

import pytest
import torch
from figure_stills import still_of

from caracal_book import viz
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


@pytest.mark.parametrize("name, paper", [("nano", None), ("tiny", 63), ("small", 120), ("medium", 345), ("large", 724)])
def test_still_tells_the_facts_of_its_preset(name, paper):
    figure, parts = viz.parameter_budget(name), by_part(PRESETS[name])
    text, total = still_of(figure), sum(parts.values())
    assert f"{name}: {total / 1e6:.2f} million" in text and ("the paper" in text) == (paper is not None)
    assert paper is None or f"the paper {paper} million" in text
    for count in parts.values():
        assert f">{count / 1e6:.2f}M<" in text and f">{100 * count / total:.1f}%<" in text
    widths = [float(w) for w in re.findall(r'y="32" width="([\d.]+)"', text)]
    assert widths == pytest.approx([396 * count / total for count in parts.values()], abs=0.01)
    assert f"{total / 1e6:.1f} million" in figure.alt
    assert f"attention {100 * parts['attention'] / total:.1f}%" in figure.alt
