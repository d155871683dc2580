"""The second figure of chapter 5: a kernel and its Toeplitz matrix, linked."""

from torch import Tensor

from .figure import Figure
from .sequences import require_two, rounded

__all__ = ["toeplitz_kernel"]


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
    return Figure("toeplitz_kernel", model, None, _alt(len(v), row, column), state=("g", "row", "column"))


def _alt(length: int, row: int, column: int) -> str:
    return (f"Bars of a kernel g for the lags 0 to {length - 1}, and its lower-triangular Toeplitz matrix of {length} "
            f"by {length} squares, with content v above and result r beside it. Entry ({row}, {column}) is picked: its "
            f"lag {row - column}, its diagonal and the sum of row {row} are marked. Drag a bar, or use the arrow keys, "
            "to change a whole diagonal.")
