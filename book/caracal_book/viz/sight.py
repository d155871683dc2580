"""The figure of chapter 7: which tokens one output of a stack of Fourier and window layers sees."""

import math

from . import svg
from .figure import Figure
from .style import palette

__all__ = ["sight"]

_WIDTH, _LEFT, _RIGHT, _STEP, _CELL = 420, 78, 34, 40, 13  # of the still, in its own units
_WIDEST = 10
_NAMES = {"F": "Fourier", "A": "window"}


def sight(pattern: str = "FFAFFA", window: int = 4, length: int = 20, *, output: int | None = None) -> Figure:
    """Show the cells of a stack of layers that one of its outputs depends on.

    The reader changes the kind of each layer, the window and the output.  Cells are shaded by the number of paths
    that lead from them to the output, one step down in each layer.

    Args:
        pattern: the kinds of the layers, F for Fourier and A for attention with a window, the first of which reads the
            tokens; 1 to 8.
        window: keys that a window layer sees, 1 to 10.
        length: number of tokens, 2 to 24 to stay legible.
        output: the position chosen at the start; default the last.

    Raises:
        ValueError: another letter, or a number out of range.
    """
    output = length - 1 if output is None else output
    if not 1 <= len(pattern) <= 8 or set(pattern) - set("FA"):
        raise ValueError(f"pattern={pattern!r}; give 1 to 8 letters F and A")
    for name, value, low, high in (("window", window, 1, _WIDEST), ("length", length, 2, 24),
                                   ("output", output, 0, length - 1)):
        if not low <= value <= high:
            raise ValueError(f"{name}={value}; give {low} to {high}")
    levels = _paths(pattern, window, length, output)
    model = {"pattern": pattern, "window": window, "length": length, "output": output}
    seen = sum(n > 0 for n in levels[0])
    kinds = ", ".join(_NAMES[kind] for kind in pattern)
    alt = (f"A row of {length} tokens with {len(pattern)} mixers above them, from below: {kinds}; the window is "
           f"{window}. A cone from output {output} down to the tokens covers the cells it depends on: {seen} of "
           f"{length} tokens. Press a mixer to change its kind; sliders set the window and the output.")
    return Figure("sight", model, _still(pattern, window, output, levels), alt,
                  state=("pattern", "window", "output"))


def _paths(pattern: str, window: int, length: int, output: int) -> list[list[int]]:
    """Return, from the tokens up to the outputs, the number of paths from each cell to the output."""
    levels = [[int(j == output) for j in range(length)]]
    for kind in reversed(pattern):
        back = length if kind == "F" else window
        levels.insert(0, [sum(levels[0][j:j + back]) for j in range(length)])
    return levels


def _still(pattern: str, window: int, output: int, levels: list[list[int]]) -> str:
    """Draw the first frame as SVG: the cells of every level, the cone, the kinds, the count of tokens seen."""
    layers, length = len(pattern), len(levels[0])
    pitch = (_WIDTH - _LEFT - _RIGHT) / length

    def top(level: int) -> float:
        return 20 + _STEP * (layers - level)

    parts = [svg.text(12, top(layers) + 11, "output", weight=600), svg.text(12, top(0) + 11, "tokens", weight=600)]
    for level, row in enumerate(levels):
        first, most = _first(row), math.log1p(max(row))
        colour = palette.result if level == layers else palette.ink if level else palette.content
        for j, n in enumerate(row):
            look = ({"fill": colour, "fill_opacity": 0.25 + 0.75 * math.log1p(n) / most} if n
                    else {"fill": "none", "stroke": palette.rule if j > output else palette.muted})
            parts.append(svg.rect(_LEFT + pitch * j + 1, top(level), pitch - 2, _CELL, rx=2, **look))
        parts.append(svg.text(_WIDTH - 8, top(level) + 11, sum(n > 0 for n in row), "end"))
        if level < layers:
            above, right = _first(levels[level + 1]), _LEFT + pitch * (output + 1) - 1
            parts += [svg.path("M", _LEFT + pitch * above + 1, top(level + 1) + _CELL + 1, "H", right,
                               "V", top(level) - 1, "H", _LEFT + pitch * first + 1, "Z", fill=palette.ink,
                               fill_opacity=0.1),
                      svg.text(12, top(level) - 9, _NAMES[pattern[level]])]
    seen, bottom = sum(n > 0 for n in levels[0]), top(0) + _CELL
    parts += [svg.text(_LEFT + pitch * (t + 0.5), bottom + 16, t, "middle", font_size=12, fill=palette.muted)
              for t in range(0, length, 5)]
    sentence = f"With a window of {window}, output {output} sees {seen} of {length} tokens."
    parts.append(svg.text(12, bottom + 40, sentence))
    return svg.frame(_WIDTH, bottom + 52, *parts)


def _first(row: list[int]) -> int:
    return next(j for j, n in enumerate(row) if n)
