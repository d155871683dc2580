"""The figure of chapter 4: change one token of two short sequences and watch which outputs change."""

from torch import Tensor

from caracal_min.convolution import circular_conv, linear_conv

from . import svg
from .figure import Figure
from .sequences import require_two, rounded
from .style import palette

__all__ = ["poke"]

_WIDTH, _LEFT, _PANEL, _GAP = 420, 12, 76, 46  # of the still, in its own units


def poke(v: Tensor, g: Tensor, n: int | None = None, *, token: int | None = None,
         change: float = 1.0) -> Figure:
    """Show v, g and their circular convolution on n points, before and after one token of v is changed.

    The reader drags a bar of v or g, or moves it with the arrow keys, and slides n from L to 2L + 1.
    Whatever reaches an output by wrapping around is drawn in vermilion.

    Args:
        v: content, `[L]`, any floating-point dtype, 3 <= L <= 16 to stay legible.
        g: gate, `[L]`.
        n: number of FFT points at the start, L to 2L + 1; default L, where everything wraps.
        token: the token of v that is changed at the start; default two thirds of the way.
        change: by how much.

    Raises:
        ValueError: shapes differ, L or n or token out of range.
    """
    require_two(v, g, 3, 16)
    length = len(v)
    n = length if n is None else n
    token = 2 * length // 3 if token is None else token
    if not length <= n <= 2 * length + 1:
        raise ValueError(f"n={n} FFT points; for length {length} give {length} to {2 * length + 1}")
    if not 0 <= token < length:
        raise ValueError(f"token={token}; for length {length} give 0 to {length - 1}")
    before, gate = rounded(v), rounded(g)
    after = before.clone()
    after[token] += change
    model = {"v": rounded(after).tolist(), "g": gate.tolist(), "before": {"v": before.tolist(), "g": gate.tolist()},
             "n": n, "stream": "v", "token": token}
    return Figure("poke", model, _still(before, after, gate, n, token), _alt(length, n, token),
                  state=("v", "g", "before", "n", "stream", "token"))


def _alt(length: int, n: int, token: int) -> str:
    wrapped = max(0, 2 * length - 1 - n)
    effect = (f"{wrapped} of the {length} outputs receive wrapped-around terms; outputs before it can change"
              if wrapped else "no output receives a wrapped-around term, and no output before it changes")
    return (f"Bars of content v and gate g for {length} tokens, and of their circular convolution on {n} "
            f"FFT points. Token {token} of v is changed: {effect}. Drag a bar or use the arrow keys to change "
            f"it; a slider sets the number of points from {length} to {2 * length + 1}.")


def _still(before: Tensor, after: Tensor, g: Tensor, n: int, token: int) -> str:
    """Draw the first frame as SVG: v with the change, g, the outputs, their change, and the facts in words."""
    length = len(g)
    causal = linear_conv(after, g)[:length]
    outputs = circular_conv(after, g, n)[:length]
    change = outputs - circular_conv(before, g, n)[:length]
    kept = causal - linear_conv(before, g)[:length]
    rows = [*_row(0, "content v", palette.content, after, None, token),
            *_row(1, "gate g", palette.gate, g, None, 0),
            *_row(2, f"output r, with N = {n} FFT points", palette.result, causal, outputs, token),
            *_row(3, "change of the output", palette.result, kept, change, token)]
    wrapped = max(0, 2 * length - 1 - n)
    leak = float(change[:token].abs().max()) if wrapped and token else 0.0
    bottom = 4 * (_PANEL + _GAP) + 22
    facts = [f"outputs contaminated: {wrapped} of {length}", f"largest change before token {token}: {leak:.2f}"]
    return svg.frame(_WIDTH, bottom + 57, *rows,
                     svg.key(12, bottom, svg.entry("causal sum", fill=palette.result),
                             svg.entry("wrapped around", fill=palette.wrapped),
                             svg.entry("before the changed token", fill=palette.rule)),
                     svg.lines(12, bottom + 19, facts))


def _row(k: int, title: str, colour: str, solid: Tensor, total: Tensor | None, token: int) -> list[str]:
    """Draw one row of bars; what `total`, where given, adds to `solid` is drawn over it in vermilion."""
    top = k * (_PANEL + _GAP) + 28
    pitch = (_WIDTH - 2 * _LEFT) / len(solid)
    reach = max(1.0, float(solid.abs().max()), float(total.abs().max()) if total is not None else 0.0)

    def y(value: float) -> float:
        return top + _PANEL / 2 * (1 - value / reach)

    def bar(t: int, start: float, end: float, share: float, fill: str) -> str:
        return svg.bar(_LEFT + pitch * (t + 0.5 - share / 2), pitch * share, y(start), y(end), fill=fill)

    parts = [svg.rect(_LEFT, top, pitch * token, _PANEL, fill=palette.shade),
             svg.text(_LEFT, top - 8, title, weight=600),
             svg.path("M", _LEFT, y(0), "H", _WIDTH - _LEFT, stroke=palette.muted)]
    for t, value in enumerate(solid.tolist()):
        parts.append(bar(t, 0.0, value, 0.6, colour))
        if total is not None:
            parts.append(bar(t, value, float(total[t]), 0.3, palette.wrapped))
        parts.append(svg.text(_LEFT + pitch * (t + 0.5), top + _PANEL + 14, t, "middle", font_size=12,
                              fill=palette.muted))
    return parts
