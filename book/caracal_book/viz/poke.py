"""The figure of chapter 4: change one token of two short sequences and watch which outputs change."""

from torch import Tensor

from .figure import Figure
from .sequences import require_two, rounded

__all__ = ["poke"]


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
    return Figure("poke", model, None, _alt(length, n, token), state=("v", "g", "before", "n", "stream", "token"))


def _alt(length: int, n: int, token: int) -> str:
    wrapped = max(0, 2 * length - 1 - n)
    effect = (f"{wrapped} of the {length} outputs receive wrapped-around terms; outputs before it can change"
              if wrapped else "no output receives a wrapped-around term, and no output before it changes")
    return (f"Bars of content v and gate g for {length} tokens, and of their circular convolution on {n} "
            f"FFT points. Token {token} of v is changed: {effect}. Drag a bar or use the arrow keys to change "
            f"it; a slider sets the number of points from {length} to {2 * length + 1}.")
