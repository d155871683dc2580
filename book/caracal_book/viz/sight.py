"""The figure of chapter 7: which tokens one output of a stack of Fourier and window layers sees."""

from .figure import Figure

__all__ = ["sight"]

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
    return Figure("sight", model, None, alt, state=("pattern", "window", "output"))


def _paths(pattern: str, window: int, length: int, output: int) -> list[list[int]]:
    """Return, from the tokens up to the outputs, the number of paths from each cell to the output."""
    levels = [[int(j == output) for j in range(length)]]
    for kind in reversed(pattern):
        back = length if kind == "F" else window
        levels.insert(0, [sum(levels[0][j:j + back]) for j in range(length)])
    return levels
