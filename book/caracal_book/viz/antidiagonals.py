"""The figure of chapter 2: the product of two polynomials as the anti-diagonals of a table."""

import torch
from torch import Tensor

from caracal_min.convolution import linear_conv

from .figure import Figure
from .sequences import require_two

__all__ = ["antidiagonals"]

_LARGEST = 9  # of an entry: one digit, so that every product fits into its cell


def antidiagonals(v: Tensor, g: Tensor, t: int | None = None) -> Figure:
    """Show every product v_j g_k in a table turned by 45 degrees, and the sums of its anti-diagonals as bars.

    The reader moves t; the anti-diagonal j + k = t lights up and its sum is written out.  Entries of v and g
    are dragged, or changed with the arrow keys, in whole numbers.  What has j + k >= L is drawn in vermilion.

    Args:
        v: content, `[L]`, any dtype, whole numbers from -9 to 9, 2 <= L <= 8 to stay legible.
        g: gate, `[L]`, likewise.
        t: the coefficient that is lit at the start, 0 to 2L - 2; default L - 1, the longest anti-diagonal.

    Raises:
        ValueError: shapes differ, L or t out of range, an entry that is no whole number from -9 to 9.

    Source: Caracal, Section 4.2 and Appendix C (a).
    """
    require_two(v, g, 2, 8)
    for name, x in (("v", v), ("g", g)):
        for j, entry in enumerate(x.tolist()):
            if not (abs(entry) <= _LARGEST and entry == int(entry)):
                raise ValueError(f"{name}[{j}] is {entry:g}; give whole numbers from -{_LARGEST} to {_LARGEST}")
    length = len(v)
    t = length - 1 if t is None else t
    if not 0 <= t <= 2 * length - 2:
        raise ValueError(f"t={t}; for length {length} the product has coefficients 0 to {2 * length - 2}")
    content, gate = ([int(entry) for entry in x.tolist()] for x in (v, g))
    model = {"v": content, "g": gate, "t": t, "limit": _LARGEST}
    product = linear_conv(torch.tensor(content).double(), torch.tensor(gate).double()).round().int().tolist()
    return Figure("antidiagonals", model, None, _alt(content, gate, product, t), state=("v", "g", "t"))


def _alt(v: list[int], g: list[int], product: list[int], t: int) -> str:
    length = len(v)
    where = "an output of the text" if t < length else "beyond the text"
    return (f"The {length} times {length} table of products of v = {v} and g = {g}, turned so that its anti-diagonals "
            f"stand upright over bars of the {len(product)} coefficients of the product, which are {product}. "
            f"Anti-diagonal {t}, {where}, is lit; its sum is {product[t]}. A slider moves t; drag an entry of v or g, "
            "or use the arrow keys, to change it.")
