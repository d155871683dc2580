"""The figure of chapter 2: the product of two polynomials as the anti-diagonals of a table."""

import torch
from torch import Tensor

from caracal_min.convolution import linear_conv

from . import svg
from .figure import Figure
from .sequences import require_two
from .style import palette

__all__ = ["antidiagonals"]

_LARGEST = 9  # of an entry: one digit, so that every product fits into its cell
_WIDTH, _BARS = 420, 80  # of the still and its bars, in its own units


def antidiagonals(v: Tensor, g: Tensor, t: int | None = None) -> Figure:
    """Show every product v_j g_i in a table turned by 45 degrees, and the sums of its anti-diagonals as bars.

    The reader moves t; the anti-diagonal j + i = t lights up and its sum is written out.  Entries of v and g
    are dragged, or changed with the arrow keys, in whole numbers.  What has j + i >= L is drawn in vermilion.

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
    return Figure("antidiagonals", model, _still(content, gate, product, t), _alt(content, gate, product, t),
                  state=("v", "g", "t"))


def _alt(v: list[int], g: list[int], product: list[int], t: int) -> str:
    length = len(v)
    where = "an output of the text" if t < length else "beyond the text"
    return (f"The {length} times {length} table of products of v = {v} and g = {g}, turned so that its anti-diagonals "
            f"stand upright over bars of the {len(product)} coefficients of the product, which are {product}. "
            f"Anti-diagonal {t}, {where}, is lit; its sum is {product[t]}. A slider moves t; drag an entry of v or g, "
            "or use the arrow keys, to change it.")


def _still(v: list[int], g: list[int], product: list[int], t: int) -> str:
    """Draw the first frame as SVG: the turned table, the bars under it, the lit sum in words."""
    length, pitch = len(v), _WIDTH / (2 * len(v) + 1.4)
    half, left = (length + 0.72) * pitch, 2.2 * pitch  # of the table with the entries at its edges
    middle = 11 + half
    base = middle + half + 12 + _BARS / 2

    def colour(s: int) -> str:
        return palette.result if s < length else palette.wrapped

    def at(j: float, i: float) -> tuple[float, float]:
        return left + pitch * (j + i), middle + pitch * (j - i)

    def diamond(j: float, i: float, half: float, **look: object) -> str:
        x, y = at(j, i)
        return svg.path("M", x - half, y, "L", x, y - half, "L", x + half, y, "L", x, y + half, "Z", **look)

    parts = []
    for j, a in enumerate(v):
        for i, b in enumerate(g):
            lit, (x, y) = j + i == t, at(j, i)
            edge = {"stroke": colour(j + i), "stroke_width": 2.5} if lit else {}
            parts += [diamond(j, i, pitch * 0.94, fill=colour(j + i), fill_opacity=0.4 if lit else 0.1, **edge),
                      svg.text(x, y + 4, svg.minus(a * b), "middle")]
    for k in range(length):
        for j, i, value, name, shade in ((k, -1, v[k], "v", palette.content), (-1, k, g[k], "g", palette.gate)):
            (x, y), away = at(j, i), pitch * 0.66 + (0 if name == "v" else 4)  # an index below g is nearer to the edge
            parts += [diamond(j, i, pitch * 0.72, fill=palette.paper, stroke=shade, stroke_width=2),
                      svg.text(x, y + 4, svg.minus(value), "middle", 700),
                      svg.element("text", name, svg.element("tspan", str(k), dy=3, font_size=9),
                                  x=x - away, y=y + (away if name == "v" else -away) + 4,
                                  text_anchor="middle")]
    reach = max(1, *map(abs, product))
    for s, value in enumerate(product):
        x = left + pitch * s
        parts += [svg.bar(x - pitch * 0.35, pitch * 0.7, base, base - value / reach * _BARS / 2, fill=colour(s),
                          fill_opacity=1 if s == t else 0.55),
                  svg.text(x, base + _BARS / 2 + 18, svg.minus(value), "middle", 700 if s == t else 400)]
    parts.append(svg.path("M", left - pitch / 2, base, "H", left + pitch * (2 * length - 1.5), stroke=palette.muted))
    pairs = [(j, t - j) for j in range(length) if 0 <= t - j < length]
    terms = " + ".join(f"{_signed(v[j])}·{_signed(g[i])}" for j, i in pairs)
    sentence = f"coefficient {t}:  {terms} = {svg.minus(product[t])}"
    parts.append(svg.text(12, base + _BARS / 2 + 44, sentence, weight=600,
                          font_size=min(12.5, 680 / len(sentence))))
    return svg.frame(_WIDTH, base + _BARS / 2 + 52, *parts, size=12.5)


def _signed(x: int) -> str:
    return f"({svg.minus(x)})" if x < 0 else str(x)
