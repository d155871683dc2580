"""The first figure of chapter 5: attention's matrices beside those of Fourier layers, for one text."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import svg
from .figure import Figure
from .style import palette

__all__ = ["mixing_matrices"]

_SIDE, _GAP, _BAR, _LEVELS = 196, 20, 20, 10  # of the still: size of a matrix, height of a bar, grades of a shade


def mixing_matrices(tokens: Sequence[str], attention: Mapping[str, Tensor], fourier: Mapping[str, Tensor], *,
                    row: int | None = None, column: int = 0) -> Figure:
    """Show two mixing matrices side by side and, on the tokens of the text, the weights of one row.

    The reader chooses among the matrices, and picks a row and a column.

    Args:
        tokens: the text in pieces, L strings, 2 <= L <= 64; a string stands for its characters.
        attention: by name, causal weights of a head, `[L, L]`, rows that sum to 1.
        fourier: by name, the kernel g of a channel, `[L]`; its matrix has the entries g[t - j].
        row: row t at the start; default the last.
        column: column j at the start, at most `row`.

    Raises:
        ValueError: no matrix of a kind, a shape that does not fit the tokens, weights above the diagonal, an entry
            outside the lower triangle.

    The page holds the attention weights in thousandths and the kernels to five decimals.
    """
    length = len(tokens)
    row = length - 1 if row is None else row
    if not 2 <= length <= 64:
        raise ValueError(f"the text has {length} tokens; give 2 to 64")
    if not 0 <= column <= row < length:
        raise ValueError(f"entry ({row}, {column}) of a {length} by {length} matrix; "
                         "give 0 <= column <= row < length")
    for kind, given, shape in (("attention", attention, (length, length)), ("fourier", fourier, (length,))):
        if not given:
            raise ValueError(f"{kind} is empty; give at least one")
        for name, values in given.items():
            if tuple(values.shape) != shape:
                raise ValueError(f"{kind} {name!r} has shape {tuple(values.shape)}; {length} tokens ask for {shape}")
    heads = [{"name": name, "rows": _thousandths(name, A)} for name, A in attention.items()]
    channels = [{"name": name, "g": torch.round(g.detach().cpu().double(), decimals=5).tolist()}
                for name, g in fourier.items()]
    model = {"tokens": list(tokens), "attention": heads, "fourier": channels, "head": 0, "channel": 0,
             "row": row, "column": column}
    alt = (f"Two lower-triangular matrices for a text of {length} tokens: attention, {heads[0]['name']}, in grey, "
           f"where columns stand out, and a Fourier layer, {channels[0]['name']}, in orange, where each diagonal "
           f"has one shade and is hollow where negative. Row {row} is marked; below, the tokens carry its weights. "
           f"Choose among {len(heads)} heads and {len(channels)} channels, and move the sliders for row and column.")
    return Figure("mixing_matrices", model, _still(model), alt, state=("head", "channel", "row", "column"))


def _thousandths(name: str, A: Tensor) -> list[list[int]]:
    A = A.detach().cpu().double()
    if A.triu(1).any() or (A < 0).any():
        raise ValueError(f"attention {name!r} has weights above the diagonal or below zero; give causal weights")
    return [[round(1000 * w) for w in line[:t + 1]] for t, line in enumerate(A.tolist())]


def _still(model: dict[str, Any]) -> str:
    """Draw the first frame as SVG: both matrices, with the row marked, and its weights on the tokens of the text."""
    tokens, row = model["tokens"], model["row"]
    length, g = len(tokens), model["fourier"][0]["g"]
    most = max(1e-9, *map(abs, g))
    left = [(t, j, (w / 1000) ** 0.5)
            for t, line in enumerate(model["attention"][0]["rows"]) for j, w in enumerate(line)]
    right = [(t, j, g[t - j] / most) for t in range(length) for j in range(t + 1)]
    width, edge = 2 * _SIDE + _GAP + 24, round(2 * length / _SIDE, 2)  # edge: a line of two units
    parts = []
    for k, (cells, colour, name) in enumerate((
            (left, palette.ink, f"attention, {model['attention'][0]['name']}"),
            (right, palette.gate, f"Fourier, {model['fourier'][0]['name']}"))):
        x = 12 + k * (_SIDE + _GAP)
        parts += [svg.text(x, 22, name, weight=600),
                  svg.element("g", svg.rect(0, 0, length, length, fill=palette.shade), *_shaded(cells, colour),
                              svg.rect(0, row, row + 1, 1, fill="none", stroke=palette.result, stroke_width=edge),
                              transform=f"translate({x} 32) scale({_SIDE / length:.4f})", shape_rendering="crispEdges")]
    y = _SIDE + 58
    weights = ([w / 1000 for w in model["attention"][0]["rows"][row]], [g[row - j] for j in range(row + 1)])
    for name, colour, of in zip(("attention", "Fourier"), (palette.ink, palette.gate), weights, strict=True):
        parts += [svg.text(12, y, f"{name}: the weights of row {row}", weight=600),
                  *_on_tokens(tokens, of, colour, 12, y + 12 + _BAR, (width - 24) / length)]
        y += _BAR + 52
    return svg.frame(width, y - 10, *parts)


def _on_tokens(tokens: list[str], weights: list[float], colour: str, x: float, y: float, pitch: float) -> list[str]:
    """Write the tokens under bars of their weights that stand at height y; the bar of a negative weight is hollow."""
    most, parts = max(1e-9, *map(abs, weights)), [svg.path("M", x, y, "h", pitch * len(tokens), stroke=palette.rule)]
    size = min(12.0, 1.4 * pitch, 1.7 * pitch / max(1, *(len(token.strip()) for token in tokens)))
    for k, token in enumerate(tokens):
        if k < len(weights):
            look = {"fill": colour} if weights[k] >= 0 else {"fill": palette.paper, "stroke": colour}
            parts.append(svg.bar(x + pitch * (k + 0.1), pitch * 0.8, y - _BAR * abs(weights[k]) / most, y, **look))
        parts.append(svg.text(x + pitch * (k + 0.5), y + 13, token.strip() or token.replace(" ", "␣"), "middle",
                              700 if k == len(weights) - 1 else None, font_size=size,
                              fill=palette.ink if k < len(weights) else palette.muted))
    return parts


def _shaded(cells: list[tuple[int, int, float]], colour: str) -> list[str]:
    """Draw cells (row, column, shade from -1 to 1) as one path for each grade of shade; negative ones are hollow."""
    paths: dict[int, list[str]] = {}
    for t, j, shade in cells:
        grade = round(_LEVELS * max(-1.0, min(1.0, shade)))
        if grade:
            hole = "m0.25 0.25v0.5h0.5v-0.5z" if grade < 0 else ""
            paths.setdefault(grade, []).append(f"M{j} {t}h1v1h-1z{hole}")
    return [svg.path(*steps, fill=colour, fill_rule="evenodd", fill_opacity=abs(grade) / _LEVELS)
            for grade, steps in sorted(paths.items())]
