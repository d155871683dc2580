"""The first figure of chapter 5: a kernel and its Toeplitz matrix, linked."""

import torch
from torch import Tensor

from ..convolution import causal_conv_direct, toeplitz
from .figure import Figure
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
    if v.ndim != 1 or v.shape != g.shape or not 3 <= len(v) <= 12:
        raise ValueError(f"v has shape {tuple(v.shape)} and g has shape {tuple(g.shape)}; "
                         "give two sequences of one length between 3 and 12")
    row = len(v) - 1 if row is None else row
    if not 0 <= column <= row < len(v):
        raise ValueError(f"entry ({row}, {column}) of a {len(v)} by {len(v)} matrix; "
                         "give 0 <= column <= row < length")
    content, kernel = (torch.round(x.detach().cpu().double(), decimals=3) for x in (v, g))
    model = {"v": content.tolist(), "g": kernel.tolist(), "row": row, "column": column}
    return Figure("toeplitz_kernel", model, _still(content, kernel, row, column), _alt(len(v), row, column))


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
    parts = [_text(12, 20, "kernel g, by lag", weight=600),
             _rect(_SIDE + cell * lag, 28, cell, _KERNEL - 10, "#faeccc"),
             f'<path d="M{_SIDE} 84H{_WIDTH - _RIGHT}" stroke="{palette.muted}"/>']
    for k, value in enumerate(g.tolist()):
        parts.append(_bar(x(k + 0.2), 84 - 44 * value / limit, 84, cell * 0.6, palette.gate, value < 0))
        parts.append(_text(x(k + 0.5), 142, k, anchor="middle", weight=700 if k == lag else 400))
    parts.append(_text(12, 168, "v"))
    parts += [_rect(x(j), y(j + lag), cell, cell, "#faeccc") for j in range(length - lag)]
    far, centre = max(2.0, float(r.abs().max())), _WIDTH - _RIGHT / 2
    parts.append(_text(centre - 4, _TOP - 8, "r"))
    for t in range(length):
        height = 16 * float(v[t]) / max(1.0, float(v.abs().max()))
        out = 30 * float(r[t]) / far
        parts.append(_bar(x(t + 0.2), 164 - height, 164, cell * 0.6, palette.content))
        parts.append(_rect(min(centre, centre + out), y(t + 0.2), abs(out), cell * 0.6, palette.result))
        parts.append(_text(x(t + 0.5), _TOP - 8, t, anchor="middle", weight=700 if t == column else 400))
        parts.append(_text(_SIDE - 8, y(t + 0.5) + 4, t, anchor="end", weight=700 if t == row else 400))
        for j in range(t + 1):
            side = 0.8 * cell * (abs(float(matrix[t, j])) / limit) ** 0.5
            parts.append(_bar(x(j) + (cell - side) / 2, y(t) + (cell - side) / 2, y(t) + (cell + side) / 2, side,
                              palette.gate, float(matrix[t, j]) < 0))
    parts.append(_rect(x(0), y(row), cell * (row + 1), cell, "none", palette.result))
    parts.append(_rect(x(column) + 1, y(row) + 1, cell - 2, cell - 2, "none", palette.ink))
    bottom = y(length) + 24
    parts.append(_text(12, bottom, f"A[{row}, {column}] = g[{lag}] = {float(g[lag]):.2f}; "
                                   f"sum of row {row}: {float(r[row]):.2f}"))
    frame = f'width="{_WIDTH}" height="{bottom + 14:.0f}"'
    size = f'viewBox="0 0 {_WIDTH} {bottom + 14:.0f}" {frame}'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" font-size="13" '
            f'fill="{palette.ink}"><rect {frame} fill="white"/>{"".join(parts)}</svg>')


def _text(x: float, y: float, text: object, anchor: str = "start", weight: int = 600) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{text}</text>'


def _rect(x: float, y: float, width: float, height: float, fill: str, stroke: str = "none") -> str:
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="2"/>')


def _bar(x: float, start: float, end: float, width: float, fill: str, hollow: bool = False) -> str:
    """Draw a bar between two heights; a hollow one is outlined and stands for a negative weight."""
    return _rect(x, min(start, end), width, abs(end - start), *(("white", fill) if hollow else (fill,)))
