"""The figure of chapter 7: which tokens one output of a stack of Fourier and window layers sees."""

import math

from .figure import Figure
from .style import palette

__all__ = ["sight"]

_WIDTH, _LEFT, _RIGHT, _STEP, _CELL = 420, 78, 34, 40, 13  # of the still, in its own units
_WIDEST = 10
_NAMES = {"F": "Fourier", "W": "window"}


def sight(pattern: str = "FFWFFW", window: int = 4, length: int = 20, *, output: int | None = None) -> Figure:
    """Show the cells of a stack of layers that one of its outputs depends on.

    The reader changes the kind of each layer, the window and the output.  Cells are shaded by the number of paths
    that lead from them to the output, one step down in each layer.

    Args:
        pattern: the kinds of the layers, F for Fourier and W for window, the first of which reads the tokens; 1 to 8.
        window: keys that a window layer sees, 1 to 10.
        length: number of tokens, 2 to 24 to stay legible.
        output: the position chosen at the start; default the last.

    Raises:
        ValueError: another letter, or a number out of range.
    """
    output = length - 1 if output is None else output
    if not 1 <= len(pattern) <= 8 or set(pattern) - set("FW"):
        raise ValueError(f"pattern={pattern!r}; give 1 to 8 letters F and W")
    for name, value, low, high in (("window", window, 1, _WIDEST), ("length", length, 2, 24),
                                   ("output", output, 0, length - 1)):
        if not low <= value <= high:
            raise ValueError(f"{name}={value}; give {low} to {high}")
    levels = _paths(pattern, window, length, output)
    model = {"pattern": pattern, "window": window, "length": length, "output": output}
    seen = sum(n > 0 for n in levels[0])
    kinds = ", ".join(_NAMES[kind] for kind in pattern)
    alt = (f"A row of {length} tokens with {len(pattern)} layers above them, from below: {kinds}; the window is "
           f"{window}. A cone from output {output} down to the tokens covers the cells it depends on: {seen} of "
           f"{length} tokens. Press a layer to change its kind; sliders set the window and the output.")
    return Figure("sight", model, _still(pattern, window, output, levels), alt)


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

    parts = [f'<text x="12" y="{top(layers) + 11}" font-weight="600">output</text>',
             f'<text x="12" y="{top(0) + 11}" font-weight="600">tokens</text>']
    for level, row in enumerate(levels):
        first, most = _first(row), math.log1p(max(row))
        colour = palette.result if level == layers else palette.ink if level else palette.content
        for j, n in enumerate(row):
            shade = 0.25 + 0.75 * math.log1p(n) / most
            paint = (f'fill="{colour}" fill-opacity="{shade:.3f}"' if n
                     else f'fill="none" stroke="{palette.rule if j > output else palette.muted}"')
            parts.append(f'<rect x="{_LEFT + pitch * j + 1:.1f}" y="{top(level)}" width="{pitch - 2:.1f}" '
                         f'height="{_CELL}" rx="2" {paint}/>')
        parts.append(f'<text x="{_WIDTH - 8}" y="{top(level) + 11}" text-anchor="end">{sum(n > 0 for n in row)}</text>')
        if level < layers:
            above, right = _first(levels[level + 1]), _LEFT + pitch * (output + 1) - 1
            parts.append(f'<path d="M{_LEFT + pitch * above + 1:.1f} {top(level + 1) + _CELL + 1}H{right:.1f}'
                         f'V{top(level) - 1}H{_LEFT + pitch * first + 1:.1f}Z" fill="{palette.ink}" '
                         f'fill-opacity="0.1"/><text x="12" y="{top(level) - 9}">{_NAMES[pattern[level]]}</text>')
    seen, bottom = sum(n > 0 for n in levels[0]), top(0) + _CELL
    parts += [f'<text x="{_LEFT + pitch * (t + 0.5):.1f}" y="{bottom + 16}" font-size="12" text-anchor="middle" '
              f'fill="{palette.muted}">{t}</text>' for t in range(0, length, 5)]
    parts.append(f'<text x="12" y="{bottom + 40}">With a window of {window}, output {output} sees {seen} of '
                 f'{length} tokens.</text>')
    height = bottom + 52
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" font-size="13" '
            f'fill="{palette.ink}"><rect width="{_WIDTH}" height="{height}" fill="white"/>{"".join(parts)}</svg>')


def _first(row: list[int]) -> int:
    return next(j for j, n in enumerate(row) if n)
