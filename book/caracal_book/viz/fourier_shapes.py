"""The figure of chapter 6: six tokens on their way through a Fourier module, step by step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from caracal_min.convolution import causal_conv_direct
from caracal_min.layers import MultiHeadFourier

from . import svg
from .figure import Figure
from .style import palette

__all__ = ["fourier_shapes"]

_STEPS = ("x", "xt", "xh", "v", "h", "g", "r", "y")
_WIDTH, _SIDE, _ROW, _PAIRS = 420, 26, 26, 44  # of the still, in its own units


def fourier_shapes(layer: MultiHeadFourier, x: Tensor, words: Sequence[str], *, step: str = "r",
                   token: int | None = None, channel: int = 1) -> Figure:
    """Show every tensor inside a layer as a table of numbers; touching one lights up what it is made of.

    The reader chooses one of eight steps: the input, the short convolution, LayerNorm, the content, the two stages of
    the gate, the mix, and the output.

    Args:
        layer: with a pre-convolution and a gate of two stages, D <= 8.
        x: its input, `[L, D]`, 3 <= L <= 7 to stay legible.
        words: the tokens in words, L of them.
        step: "x", "xt" (short convolution), "xh" (norm), "v", "h", "g", "r" or "y" at the start.
        token: the token of the number that is touched at the start; default the fourth, or the last.
        channel: its channel.

    Raises:
        ValueError: a layer without pre-convolution or second stage, shapes that do not fit, an unknown step.
    """
    if layer.pre_conv is None or layer.gate_mix is None:
        raise ValueError("the layer lacks its pre-convolution or its gate's second stage; give one with both")
    if x.ndim != 2 or x.shape[1] != layer.d_model or not 3 <= len(x) <= 7 or not 2 <= layer.d_model <= 8:
        raise ValueError(f"x has shape {tuple(x.shape)} and the layer width {layer.d_model}; "
                         "give x of shape [L, width] with 3 <= L <= 7 and a width from 2 to 8")
    if len(words) != len(x):
        raise ValueError(f"{len(words)} words for {len(x)} tokens; give one word for each")
    if step not in _STEPS:
        raise ValueError(f"unknown step {step!r}; accepted: {', '.join(_STEPS)}")
    token = min(3, len(x) - 1) if token is None else token
    if not (0 <= token < len(x) and 0 <= channel < layer.d_model):
        raise ValueError(f"token {token}, channel {channel}; give 0 to {len(x) - 1} and 0 to {layer.d_model - 1}")
    parts = {name: value.detach().cpu().double() for name, value in layer.state_dict().items()}
    x = x.detach().cpu().double()

    def map_of(name: str) -> list:
        return [parts[f"{name}.weight"].tolist(), parts[f"{name}.bias"].tolist()]

    model = {"words": list(words), "heads": layer.n_heads, "x": x.tolist(),
             "taps": parts["pre_conv.weight"][:, 0].tolist(), "norm": [*map_of("norm"), layer.norm.eps],
             "value": map_of("to_value"), "gate": map_of("to_gate"), "out": map_of("to_out"),
             "mix": [parts["gate_mix.weight"][..., 0].tolist(), parts["gate_mix.bias"].tolist()],
             "step": step, "token": token, "channel": channel}
    alt = (f"The numbers inside a Fourier module for the {len(x)} tokens {' '.join(words)}, {layer.d_model} channels "
           f"and {layer.n_heads} heads, as tables with their shapes: input, short convolution, norm, content, gate in "
           "two stages, causal convolution and output. Buttons choose the step. Touching a number lights up those it "
           f"is made of; in the convolution, r of token {token} takes the contents 0 to {token} and the gates {token} "
           "to 0 of its channel.")
    with torch.no_grad():
        v, g = (s[0] for s in layer.streams(x[None].to(layer.to_out.weight)))
    return Figure("fourier_shapes", model, _still(v.double().cpu(), g.double().cpu(), words, token, channel), alt,
                  state=("step", "token", "channel"))


def _still(v: Tensor, g: Tensor, words: Sequence[str], token: int, channel: int) -> str:
    """Draw step 3 as SVG: the content, the gate, the pairs that r takes in one channel, and r."""
    width, length = v.shape
    cell = (_WIDTH - 2 * _SIDE) / length
    tall, r = width * _ROW, causal_conv_direct(v, g)
    tops = (44, 44 + tall + _PAIRS, 44 + 2 * tall + _PAIRS + 82)
    shape = f"[B, D, L] = [1, {width}, {length}]"
    parts = []
    tables = ("v", v, palette.content), ("g", g, palette.gate), ("r", r, palette.result)
    for (name, s, colour), top in zip(tables, tops, strict=True):
        below = name == "g"
        title = top + tall + 18 if below else top - 28
        parts += [svg.text(_SIDE, title, name, weight=600), svg.text(_WIDTH - _SIDE, title, shape, "end")]
        for t in range(length):
            x = _SIDE + cell * t
            if not below:
                parts.append(svg.text(x + cell / 2, top - 8, words[t], "middle", fill=palette.muted))
            for c in range(width):
                lit = c == channel and (t == token if name == "r" else t <= token)
                parts += _cell(x, top + _ROW * c, cell, float(s[c, t]), colour if lit else None)
    for c in range(width):
        parts += [svg.text(_SIDE - 7, top + _ROW * c + 18, c, "end", fill=palette.muted) for top in tops]
    start, end = tops[0] + tall + 2, tops[1] - 2
    for j in range(token + 1):
        a, b = (_SIDE + cell * (t + 0.5) for t in (j, token - j))
        parts.append(svg.path("M", a, start, "L", b, end, stroke=palette.result, stroke_width=2))
    return svg.frame(_WIDTH, tops[2] + tall + 8, *parts)


def _cell(x: float, y: float, width: float, value: float, colour: str | None) -> tuple[str, str]:
    look = ({"fill": colour, "fill_opacity": 0.22, "stroke": colour, "stroke_width": 2} if colour
            else {"fill": "none", "stroke": palette.rule})
    return (svg.rect(x + 1, y + 1, width - 2, _ROW - 2, rx=2, **look),
            svg.text(x + width / 2, y + 18, svg.said(value), "middle", 700 if colour else 400))
