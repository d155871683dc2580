"""The figure of chapter 4: poke one token of two short sequences and watch which outputs move."""

import torch
from torch import Tensor

from ..convolution import circular_conv, linear_conv
from .figure import Figure
from .style import palette

__all__ = ["poke"]

_WIDTH, _LEFT, _PANEL, _GAP = 420, 12, 76, 46  # of the still, in its own units


def poke(v: Tensor, g: Tensor, n: int | None = None, *, token: int | None = None,
         change: float = 1.0) -> Figure:
    """Show v, g and their circular convolution on n points, before and after one token of v is poked.

    The reader drags a bar of v or g, or moves it with the arrow keys, and slides n from L to 2L + 1.
    Whatever reaches an output by wrapping around is drawn in vermillion.

    Args:
        v: content, `[L]`, any floating-point dtype, 3 <= L <= 16 to stay legible.
        g: gate, `[L]`.
        n: number of FFT points at the start, L to 2L + 1; default L, where everything wraps.
        token: the token of v that is poked at the start; default two thirds of the way.
        change: by how much.

    Raises:
        ValueError: shapes differ, L or n or token out of range.
    """
    if v.ndim != 1 or v.shape != g.shape or not 3 <= len(v) <= 16:
        raise ValueError(f"v has shape {tuple(v.shape)} and g has shape {tuple(g.shape)}; "
                         "give two sequences of one length between 3 and 16")
    length = len(v)
    n = length if n is None else n
    token = 2 * length // 3 if token is None else token
    if not length <= n <= 2 * length + 1:
        raise ValueError(f"n={n} FFT points; for length {length} give {length} to {2 * length + 1}")
    if not 0 <= token < length:
        raise ValueError(f"token={token}; for length {length} give 0 to {length - 1}")
    before, gate = _rounded(v), _rounded(g)
    model = {"v": before.tolist(), "g": gate.tolist(), "n": n,
             "stream": "v", "token": token, "change": change}
    after = before.clone()
    after[token] += change
    return Figure("poke", model, _still(before, after, gate, n, token), _alt(length, n, token))


def _rounded(x: Tensor) -> Tensor:
    """Keep three decimals, as the figure does, so that page and package compute from the same numbers."""
    return torch.round(x.detach().cpu().double(), decimals=3)


def _alt(length: int, n: int, token: int) -> str:
    wrapped = max(0, 2 * length - 1 - n)
    effect = (f"{wrapped} of the {length} outputs receive wrapped-around terms; outputs before it can move"
              if wrapped else "no output receives a wrapped-around term, and no output before it moves")
    return (f"Bars of content v and gate g for {length} tokens, and of their circular convolution on {n} "
            f"FFT points. Token {token} of v is poked: {effect}. Drag a bar or use the arrow keys to change "
            f"it; a slider sets the number of points from {length} to {2 * length + 1}.")


def _still(before: Tensor, after: Tensor, g: Tensor, n: int, token: int) -> str:
    """Draw the first frame as SVG: v with the poke, g, the outputs, their change, and the facts in words."""
    length = len(g)
    causal = linear_conv(after, g)[:length]
    outputs = circular_conv(after, g, n)[:length]
    change = outputs - circular_conv(before, g, n)[:length]
    kept = causal - linear_conv(before, g)[:length]
    rows = [_row(0, "content v", palette.content, after, None, token),
            _row(1, "gate g", palette.gate, g, None, 0),
            _row(2, f"output r, with N = {n} FFT points", palette.result, causal, outputs, token),
            _row(3, "change of r since before the poke", palette.result, kept, change, token)]
    wrapped = max(0, 2 * length - 1 - n)
    leak = float(change[:token].abs().max()) if wrapped and token else 0.0
    bottom = len(rows) * (_PANEL + _GAP) + 22
    facts = [f'<tspan fill="{palette.result}">■</tspan> causal sum  '
             f'<tspan fill="{palette.wrapped}">■</tspan> wrapped around  '
             f'<tspan fill="#c9c9c9">■</tspan> before the poked token',
             f"outputs contaminated: {wrapped} of {length}",
             f"largest change before token {token}: {leak:.2f}"]
    words = "".join(f'<text x="12" y="{bottom + 19 * k}">{line}</text>' for k, line in enumerate(facts))
    height = bottom + 19 * len(facts)
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" '
            f'font-size="13" fill="{palette.ink}"><rect width="{_WIDTH}" height="{height}" fill="white"/>'
            f'{"".join(rows)}{words}</svg>')


def _row(k: int, title: str, colour: str, solid: Tensor, total: Tensor | None, token: int) -> str:
    """Draw one row of bars; what `total`, where given, adds to `solid` is drawn over it in vermillion."""
    top = k * (_PANEL + _GAP) + 28
    pitch = (_WIDTH - 2 * _LEFT) / len(solid)
    reach = max(1.0, float(solid.abs().max()), float(total.abs().max()) if total is not None else 0.0)

    def y(value: float) -> float:
        return top + _PANEL / 2 * (1 - value / reach)

    def bar(t: int, start: float, end: float, share: float, fill: str) -> str:
        x = _LEFT + pitch * (t + 0.5 - share / 2)
        return (f'<rect x="{x:.1f}" y="{min(y(start), y(end)):.1f}" width="{pitch * share:.1f}" '
                f'height="{abs(y(start) - y(end)):.1f}" fill="{fill}"/>')

    parts = [f'<rect x="{_LEFT}" y="{top}" width="{pitch * token:.1f}" height="{_PANEL}" fill="#f1f1f1"/>',
             f'<text x="{_LEFT}" y="{top - 8}" font-weight="600">{title}</text>',
             f'<path d="M{_LEFT} {y(0):.1f}H{_WIDTH - _LEFT}" stroke="{palette.muted}"/>']
    for t, value in enumerate(solid.tolist()):
        parts.append(bar(t, 0.0, value, 0.6, colour))
        if total is not None:
            parts.append(bar(t, value, float(total[t]), 0.3, palette.wrapped))
        parts.append(f'<text x="{_LEFT + pitch * (t + 0.5):.1f}" y="{top + _PANEL + 14}" font-size="12" '
                     f'text-anchor="middle" fill="{palette.muted}">{t}</text>')
    return "".join(parts)
