"""The figure of chapter 3: a clock with N hours, on which the products of two sequences pile up."""

from torch import Tensor

from .figure import Figure
from .sequences import require_two, rounded

__all__ = ["clock"]

LARGEST = 2.0  # value of an entry that the figure can show


def clock(v: Tensor, g: Tensor, n: int | None = None) -> Figure:
    """Show the products v_j g_k at hour (j + k) mod n, and what wraps around arriving as +1, -1 or i; at first as +1.

    The reader drags entries of v and g, slides n from L to 2L, turns a hand to an hour to read what stands
    there, and chooses what z^n is.  At each hour the outward direction is real; at z^n = i whatever wraps
    around stands at a right angle to it.

    Args:
        v: content, `[L]`, entries from 0 to 2 so that lengths add up, 3 <= L <= 6 to stay legible.
        g: gate, `[L]`, likewise.
        n: hours at the start, L to 2L; default L.

    Raises:
        ValueError: shapes differ; L, n or an entry out of range.
    """
    require_two(v, g, 3, 6)
    v, g = rounded(v), rounded(g)
    length = len(v)
    n = length if n is None else n
    for name, x in (("v", v), ("g", g)):
        if not bool(((x >= 0) & (x <= LARGEST)).all()):
            raise ValueError(f"{name} = {x.tolist()}; give entries from 0 to {LARGEST:g}, so that lengths add up")
    if not length <= n <= 2 * length:
        raise ValueError(f"n={n} hours; for length {length} give {length} to {2 * length}")
    model = {"v": v.tolist(), "g": g.tolist(), "n": n, "unit": "1", "hour": 0}
    return Figure("clock", model, None, _alt(length, n), state=("v", "g", "n", "unit", "hour"))


def _alt(length: int, n: int) -> str:
    wrapped = max(0, 2 * length - 1 - n)
    effect = (f"hours 0 to {wrapped - 1} also receive what wraps around, added to the causal sum" if wrapped else
              "every degree of the product has an hour of its own")
    return (f"Content v and gate g of {length} tokens, and a clock with {n} hours where z to the {n} is "
            f"1: the product of v_j and g_k stands at hour j + k modulo {n}; {effect}. "
            f"The entries, the number of hours from {length} to {2 * length}, the hour to read and the power of z "
            "can be changed.")
