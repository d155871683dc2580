"""The figure of chapter 8: where the parameters of a configuration are, beside the paper's four sizes."""

import torch
from torch import nn

from caracal_min.config import PRESETS, CaracalConfig, find_preset
from caracal_min.layers import SlidingWindowAttention
from caracal_min.model import Caracal

from ..numbers.table2 import paper_rows
from .figure import Figure

__all__ = ["parameter_budget"]

_PARTS = {"embedding": "embedding, also the output matrix", "value": "value projections", "gate": "gate projections",
          "mix": "gate mix", "output": "output projections", "attention": "attention", "mlp": "SwiGLU",
          "rest": "norms and short convolutions"}
_FOURIER = {"to_value": "value", "to_gate": "gate", "gate_mix": "mix", "to_out": "output"}  # submodules, parts


def parameter_budget(preset: str = "tiny") -> Figure:
    """Show the parameters of a configuration by part, as shares of the whole, beside those of all presets.

    The reader moves sliders for width, layers, heads, vocabulary and the ratio of Fourier to attention layers, or
    takes a preset.

    Args:
        preset: where the figure starts: nano, micro, tiny, small, medium or large.

    Raises:
        ValueError: unknown preset.
    """
    find_preset(preset)
    presets = [{"name": name, "vocabulary": c.vocab_size, "width": c.d_model, "layers": c.n_layers, "heads": c.n_heads,
                "ratio": c.fourier_per_attention, "paper": _paper(name)} for name, c in PRESETS.items()]
    config = next({key: entry[key] for key in ("vocabulary", "width", "layers", "heads", "ratio")}
                  for entry in presets if entry["name"] == preset)
    return Figure("parameter_budget", {"presets": presets, **config}, None, _alt(preset), state=tuple(config))


def _paper(name: str) -> int | None:
    """Return the millions that Table 2 of the paper gives for a preset."""
    if name in ("nano", "micro"):
        return None
    rows = paper_rows(sum(_parts(PRESETS[name]).values()))
    return next(row["millions"] for row in rows if row["model"] == "Caracal")


def _parts(config: CaracalConfig) -> dict[str, int]:
    """Count the parameters of `Caracal(config)` by part."""
    with torch.device("meta"):
        model = Caracal(config)
    parts = dict.fromkeys(_PARTS, 0) | {"embedding": model.embedding.weight.numel()}
    for block in model.blocks:
        parts["mlp"] += _count(block.mlp)
        if isinstance(block.mixer, SlidingWindowAttention):
            parts["attention"] += _count(block.mixer)
            continue
        for name, child in block.mixer.named_children():
            if name in _FOURIER:
                parts[_FOURIER[name]] += _count(child)
    parts["rest"] = model.num_parameters() - sum(parts.values())
    return parts


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _alt(preset: str) -> str:
    parts = _parts(PRESETS[preset])
    total = sum(parts.values())
    words = ", ".join(f"{name} {100 * parts[part] / total:.1f}%" for part, name in _PARTS.items())
    return (f"A bar of the {total / 1e6:.1f} million parameters of {preset}, divided by part: {words}. Below it the "
            "same bars for nano, Tiny, Small, Medium and Large, and sliders for width, layers, heads, vocabulary and "
            "the ratio of Fourier to attention layers.")
