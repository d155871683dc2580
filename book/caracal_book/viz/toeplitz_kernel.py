"""The second figure of chapter 5: a kernel and its Toeplitz matrix, linked."""

import torch
from torch import Tensor

from caracal_min.convolution import causal_conv_direct, toeplitz

from . import svg
from .figure import Figure
from .sequences import require_two, rounded
from .style import palette

__all__ = ["toeplitz_kernel"]

_WIDTH, _SIDE, _RIGHT, _KERNEL, _TOP = 420, 26, 74, 128, 206  # of the still, in its own units


def toeplitz_kernel(v: Tensor, g: Tensor, *, row: int | None = None, column: int = 0) -> Figure:
    """Show a kernel g as bars, beside it the matrix A[t, j] = g[t - j], the content v above and r = A v to its right.

    The reader drags a bar and its diagonal changes, or picks an entry and sees its lag and its row's sum.

    Args:
        v: content, `[L]`, any floating-point dtype, 3 <= L <= 12 to stay legible.
        g: kernel, `[L]`.
        row: row t of the entry that is picked at the start; default the last.
        column: its column j, at most `row`.

    Raises:
        ValueError: shapes differ, L out of range, or an entry that is not in the lower triangle.
    """
    require_two(v, g, 3, 12)
    row = len(v) - 1 if row is None else row
    if not 0 <= column <= row < len(v):
        raise ValueError(f"entry ({row}, {column}) of a {len(v)} by {len(v)} matrix; "
                         "give 0 <= column <= row < length")
    content, kernel = rounded(v), rounded(g)
    model = {"v": content.tolist(), "g": kernel.tolist(), "row": row, "column": column}
    return Figure("toeplitz_kernel", model, _still(content, kernel, row, column), _alt(len(v), row, column),
                  state=("g", "row", "column"))


def _alt(length: int, row: int, column: int) -> str:
    return (f"Bars of a kernel g for the lags 0 to {length - 1}, and its lower-triangular Toeplitz matrix of {length} "
            f"by {length} squares, with content v above and result r beside it. Entry ({row}, {column}) is picked: its "
            f"lag {row - column}, its diagonal and the sum of row {row} are marked. Drag a bar, or use the arrow keys, "
            "to change a whole diagonal.")


def _still(v: Tensor, g: Tensor, row: int, column: int) -> str:
    """Draw the first frame as SVG: bars of g, then v, the matrix and r."""
    length, lag = len(g), row - column
    limit = max(2.0, float(torch.cat([v, g]).abs().max()))
    cell = (_WIDTH - _SIDE - _RIGHT) / length
    matrix, r = toeplitz(g), causal_conv_direct(v, g)
    x, y = (lambda b: _SIDE + b * cell), (lambda a: _TOP + a * cell)
    lit = {"fill": palette.gate, "fill_opacity": 0.24}

    def digit(x: float, y: float, k: int, chosen: bool, anchor: str = "middle") -> str:
        return svg.text(x, y, k, anchor, 700 if chosen else 400)

    parts = [svg.text(12, 20, "kernel g, by lag", weight=600),
             svg.rect(_SIDE + cell * lag, 28, cell, _KERNEL - 10, **lit),
             svg.path("M", _SIDE, 84, "H", _WIDTH - _RIGHT, stroke=palette.muted)]
    for k, value in enumerate(g.tolist()):
        parts += [_weight(x(k + 0.2), cell * 0.6, 84 - 44 * value / limit, 84, value),
                  digit(x(k + 0.5), 142, k, k == lag)]
    parts += [svg.rect(x(j), y(j + lag), cell, cell, **lit) for j in range(length - lag)]
    far, centre = max(2.0, float(r.abs().max())), _WIDTH - _RIGHT / 2
    parts += [svg.text(12, 168, "v", weight=600), svg.text(centre - 4, _TOP - 8, "r", weight=600)]
    for t in range(length):
        height = 16 * float(v[t]) / max(1.0, float(v.abs().max()))
        out = 30 * float(r[t]) / far
        parts += [svg.bar(x(t + 0.2), cell * 0.6, 164 - height, 164, fill=palette.content),
                  svg.rect(min(centre, centre + out), y(t + 0.2), abs(out), cell * 0.6, fill=palette.result),
                  digit(x(t + 0.5), _TOP - 8, t, t == column), digit(_SIDE - 8, y(t + 0.5) + 4, t, t == row, "end")]
        for j, weight in enumerate(matrix[t, :t + 1].tolist()):
            side = 0.8 * cell * (abs(weight) / limit) ** 0.5
            edge, top = x(j) + (cell - side) / 2, y(t) + (cell - side) / 2
            parts.append(_weight(edge, side, top, top + side, weight))
    parts += [svg.rect(x(0), y(row), cell * (row + 1), cell, fill="none", stroke=palette.result, stroke_width=2),
              svg.rect(x(column) + 1, y(row) + 1, cell - 2, cell - 2, fill="none", stroke=palette.ink, stroke_width=2)]
    bottom = y(length) + 24
    parts.append(svg.text(12, bottom, f"A[{row}, {column}] = g[{lag}] = {svg.said(float(g[lag]))}; "
                                      f"sum of row {row}: {svg.said(float(r[row]))}", weight=600))
    return svg.frame(_WIDTH, bottom + 14, *parts)


def _weight(x: float, width: float, start: float, end: float, weight: float) -> str:
    """Draw a bar of the kernel between two heights; that of a negative weight is hollow."""
    look = {"fill": palette.gate} if weight >= 0 else {"fill": palette.paper, "stroke": palette.gate, "stroke_width": 2}
    return svg.bar(x, width, start, end, **look)
