"""The figure of chapter 2: the product of two polynomials as the anti-diagonals of a table."""

import torch
from torch import Tensor

from ..convolution import linear_conv
from .figure import Figure
from .style import palette

__all__ = ["antidiagonals"]

_LARGEST = 9  # of an entry: one digit, so that every product fits into its cell
_WIDTH, _BARS = 420, 80  # of the still and its bars, in its own units


def antidiagonals(v: Tensor, g: Tensor, t: int | None = None) -> Figure:
    """Show every product v_j g_i in a table turned by 45 degrees, and the sums of its anti-diagonals as bars.

    The reader moves t; the anti-diagonal j + i = t lights up and its sum is written out.  Entries of v and g
    are dragged, or changed with the arrow keys, in whole numbers.  What has j + i >= L is drawn in vermillion.

    Args:
        v: content, `[L]`, any dtype, whole numbers from -9 to 9, 2 <= L <= 8 to stay legible.
        g: gate, `[L]`, likewise.
        t: the coefficient that is lit at the start, 0 to 2L - 2; default L - 1, the longest anti-diagonal.

    Raises:
        ValueError: shapes differ, L or t out of range, an entry that is no whole number from -9 to 9.

    Source: Caracal, Section 4.2 and Appendix C (a).
    """
    if v.ndim != 1 or v.shape != g.shape or not 2 <= len(v) <= 8:
        raise ValueError(f"v has shape {tuple(v.shape)} and g has shape {tuple(g.shape)}; "
                         "give two sequences of one length between 2 and 8")
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
    return Figure("antidiagonals", model, _still(content, gate, product, t), _alt(content, gate, product, t))


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
    middle, left = 30 + length * pitch, 2.2 * pitch
    base = middle + length * pitch + 34 + _BARS / 2
    height = base + _BARS / 2 + 52

    def colour(s: int) -> str:
        return palette.result if s < length else palette.wrapped

    def diamond(j: float, i: float, half: float, style: str) -> str:
        x, y = left + pitch * (j + i), middle + pitch * (j - i)
        return (f'<path d="M{x - half:.1f} {y:.1f}L{x:.1f} {y - half:.1f}L{x + half:.1f} {y:.1f}'
                f'L{x:.1f} {y + half:.1f}Z" {style}/>')

    def text(x: float, y: float, words: object, style: str = 'text-anchor="middle"') -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{words}</text>'

    parts = []
    for j, a in enumerate(v):
        for i, b in enumerate(g):
            lit = j + i == t
            look = f'fill="{colour(j + i)}" fill-opacity="{0.4 if lit else 0.1}"'
            look += f' stroke="{colour(j + i)}" stroke-width="2.5"' if lit else ""
            parts.append(diamond(j, i, pitch * 0.94, look))
            parts.append(text(left + pitch * (j + i), middle + pitch * (j - i) + 4, _minus(a * b)))
    for k in range(length):
        for j, i, value, name, shade in ((k, -1, v[k], "v", palette.content), (-1, k, g[k], "g", palette.gate)):
            x, y = left + pitch * (j + i), middle + pitch * (j - i)
            parts.append(diamond(j, i, pitch * 0.72, f'fill="white" stroke="{shade}" stroke-width="2"'))
            parts.append(text(x, y + 4, _minus(value), 'text-anchor="middle" font-weight="700"'))
            parts.append(text(x - pitch * 0.62, y + pitch * (0.62 if name == "v" else -0.5) + 4,
                              f'{name}<tspan dy="3" font-size="9">{k}</tspan>'))
    reach = max(1, *map(abs, product))
    for s, value in enumerate(product):
        x, tall = left + pitch * s, abs(value) / reach * _BARS / 2
        parts.append(f'<rect x="{x - pitch * 0.35:.1f}" y="{base - tall if value > 0 else base:.1f}" '
                     f'width="{pitch * 0.7:.1f}" height="{tall:.1f}" fill="{colour(s)}" '
                     f'fill-opacity="{1 if s == t else 0.55}"/>')
        parts.append(text(x, base + _BARS / 2 + 18, _minus(value),
                          f'text-anchor="middle" font-weight="{700 if s == t else 400}"'))
    parts.append(f'<path d="M{left - pitch / 2:.1f} {base}H{left + pitch * (2 * length - 1.5):.1f}" '
                 f'stroke="{palette.muted}"/>')
    pairs = [(j, t - j) for j in range(length) if 0 <= t - j < length]
    terms = " + ".join(f"{_signed(v[j])}·{_signed(g[i])}" for j, i in pairs)
    sentence = f"coefficient {t}:  {terms} = {_minus(product[t])}"
    parts.append(text(12, base + _BARS / 2 + 44, sentence, 'font-weight="600"'))
    size = f'viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" height="{height:.0f}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" font-size="12.5" '
            f'fill="{palette.ink}"><rect width="{_WIDTH}" height="{height:.0f}" fill="white"/>{"".join(parts)}</svg>')


def _minus(x: int) -> str:
    return str(x).replace("-", "−")


def _signed(x: int) -> str:
    return f"({_minus(x)})" if x < 0 else str(x)
