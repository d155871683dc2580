"""The figure of chapter 8: where the parameters of a configuration are, beside the paper's four sizes."""

import torch
from torch import nn

from caracal_min.config import PRESETS, CaracalConfig, find_preset
from caracal_min.layers import SlidingWindowAttention
from caracal_min.model import Caracal

from ..numbers.table2 import paper_rows
from . import svg
from .figure import Figure
from .style import palette

__all__ = ["parameter_budget"]

# Part, name in words, its colour in the still, and how much of the colour is laid on.
_PARTS = (("embedding", "embedding, also the output matrix", palette.ink, 1),
          ("value", "value projections", palette.content, 1),
          ("gate", "gate projections", palette.gate, 1),
          ("mix", "gate mix", palette.gate, 0.45),
          ("output", "output projections", palette.result, 1),
          ("attention", "attention", palette.ink, 0.55),
          ("mlp", "SwiGLU", palette.ink, 0.24),
          ("rest", "norms and short convolutions", palette.ink, 0.75))
_FOURIER = {"to_value": "value", "to_gate": "gate", "gate_mix": "mix", "to_out": "output"}  # submodules, parts
_WIDTH, _BAR, _PITCH = 420, 34, 22  # of the still, in its own units


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
    return Figure("parameter_budget", {"presets": presets, **config}, _still(preset), _alt(preset),
                  state=tuple(config))


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
    parts = dict.fromkeys((name for name, *_ in _PARTS), 0) | {"embedding": model.embedding.weight.numel()}
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
    words = ", ".join(f"{name} {100 * parts[part] / total:.1f}%" for part, name, *_ in _PARTS)
    return (f"A bar of the {total / 1e6:.1f} million parameters of {preset}, divided by part: {words}. Below it the "
            "same bars for nano, Tiny, Small, Medium and Large, and sliders for width, layers, heads, vocabulary and "
            "the ratio of Fourier to attention layers.")


def _still(preset: str) -> str:
    parts = _parts(PRESETS[preset])
    total, paper = sum(parts.values()), _paper(preset)
    beside = f", the paper {paper} million" if paper else ""
    rows = [svg.text(12, 20, f"{preset}: {total / 1e6:.2f} million{beside}", weight=600)]
    left = 12.0
    for part, _, colour, share in _PARTS:
        across = (_WIDTH - 24) * parts[part] / total
        rows.append(svg.rect(left, 32, across, _BAR, fill=colour, fill_opacity=share))
        left += across
    for k, (part, name, colour, share) in enumerate(_PARTS):
        y = 32 + _BAR + 26 + k * _PITCH
        rows += [svg.rect(12, y - 11, 12, 12, fill=colour, fill_opacity=share), svg.text(32, y, name),
                 svg.text(_WIDTH - 74, y, f"{parts[part] / 1e6:.2f}M", "end"),
                 svg.text(_WIDTH - 12, y, f"{100 * parts[part] / total:.1f}%", "end")]
    return svg.frame(_WIDTH, 32 + _BAR + 26 + len(_PARTS) * _PITCH, *rows)
