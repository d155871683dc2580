"""The figure of chapter 3: a clock with N hours, on which the products of two sequences pile up."""

import math

import torch
from torch import Tensor

from caracal_min.convolution import linear_conv

from . import svg
from .figure import Figure
from .sequences import require_two, rounded
from .style import palette

__all__ = ["clock"]

LARGEST = 2.0  # value of an entry that the figure can show
_UNITS = {1: ("1", "1"), -1: ("-1", "−1"), 1j: ("i", "i")}  # what z^N is: name in the model, name in words
_TURNS = {1: 0, -1: 180, 1j: -90}  # by which it turns what wraps around, in degrees
_WIDTH, _BARS, _RADIUS = 360, 56, 168  # of the still, in its own units


def clock(v: Tensor, g: Tensor, n: int | None = None, *, unit: complex = 1, hour: int = 0) -> Figure:
    """Show the products v_j g_i at hour (j + i) mod n, and what wraps around arriving as +1, -1 or i.

    The reader drags entries of v and g, slides n from L to 2L, turns a hand to an hour to read what stands
    there, and chooses what z^n is.  At each hour the outward direction is real; at z^n = i whatever wraps
    around stands at a right angle to it.

    Args:
        v: content, `[L]`, entries from 0 to 2 so that lengths add up, 3 <= L <= 6 to stay legible.
        g: gate, `[L]`, likewise.
        n: hours at the start, L to 2L; default L.
        unit: what z^n is at the start: 1 (cyclic), -1 (negacyclic) or 1j (right angle).
        hour: where the hand stands at the start, 0 to n - 1.

    Raises:
        ValueError: shapes differ; L, n, unit, hour or an entry out of range.
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
    if unit not in _UNITS:
        raise ValueError(f"unit={unit}; give 1, -1 or 1j")
    if not 0 <= hour < n:
        raise ValueError(f"hour={hour}; on a clock of {n} hours give 0 to {n - 1}")
    model = {"v": v.tolist(), "g": g.tolist(), "n": n, "unit": _UNITS[unit][0], "hour": hour}
    return Figure("clock", model, _still(v, g, n, unit, hour), _alt(length, n, unit),
                  state=("v", "g", "n", "unit", "hour"))


def _alt(length: int, n: int, unit: complex) -> str:
    wrapped = max(0, 2 * length - 1 - n)
    if not wrapped:
        effect = "every degree of the product has an hour of its own"
    elif unit == 1j:
        effect = f"at hours 0 to {wrapped - 1} what wraps around stands at a right angle to the causal sum"
    else:
        effect = (f"hours 0 to {wrapped - 1} also receive what wraps around, "
                  f"{'added to' if unit == 1 else 'subtracted from'} the causal sum")
    return (f"Content v and gate g of {length} tokens, and a clock with {n} hours where z to the {n} is "
            f"{_UNITS[unit][1]}: the product of v_j and g_i stands at hour j + i modulo {n}; {effect}. "
            f"The entries, the number of hours from {length} to {2 * length}, the hour to read and the power of z "
            "can be changed.")


def _still(v: Tensor, g: Tensor, n: int, unit: complex, hour: int) -> str:
    """Draw the first frame as SVG: both sequences, the clock, and the chosen hour in words."""
    length, p = len(v), linear_conv(v, g)
    own, wrapped = p[:n], torch.nn.functional.pad(p[n:], (0, max(0, 2 * n - len(p))))
    real = own + complex(unit).real * wrapped[:len(own)]
    spoilt = max(0, 2 * length - 1 - n) if unit != 1j else 0
    middle = _BARS + 52 + _RADIUS
    name = _UNITS[unit][1]
    facts = [f"A clock with N = {n} hours, z^{n} = {name}.", f"The hand is at hour {hour}:",
             f"{'causal sum' if hour < length else 'after the text'} {svg.said(_at(own, hour))}, "
             f"wrapped {svg.said(_at(wrapped, hour))}, real part {svg.said(_at(real, hour))}",
             f"Contaminated outputs: {spoilt} of {length}"]
    bottom = middle + _RADIUS + 26
    face = svg.element("g", *_face(v, g, n, unit, hour, spoilt), transform=f"translate({_WIDTH / 2} {middle})")
    return svg.frame(_WIDTH, bottom + 19 * len(facts), *_panel("content v", v, palette.content, 12),
                     *_panel("gate g", g, palette.gate, _WIDTH / 2 + 8), face, svg.lines(12, bottom, facts))


def _at(x: Tensor, hour: int) -> float:
    return float(x[hour]) if hour < len(x) else 0.0


def _panel(title: str, x: Tensor, colour: str, left: float) -> list[str]:
    pitch, floor = (_WIDTH / 2 - 20) / len(x), _BARS + 26
    parts = [svg.text(left, 16, title, weight=600),
             svg.path("M", left, floor, "h", _WIDTH / 2 - 20, stroke=palette.muted)]
    for t, value in enumerate(x.tolist()):
        parts += [svg.bar(left + pitch * (t + 0.18), pitch * 0.64, floor, floor - value / LARGEST * _BARS, fill=colour),
                  svg.text(left + pitch * (t + 0.5), floor + 15, t, "middle", fill=palette.muted)]
    return parts


def _face(v: Tensor, g: Tensor, n: int, unit: complex, hour: int, spoilt: int) -> list[str]:
    """Draw the clock around the origin, the way clock.js does."""
    length, p = len(v), linear_conv(v, g).tolist()
    sums = [p[t] + (p[t + length] if t + length < len(p) else 0.0) for t in range(length)]
    rim, inner = _RADIUS - 16, _RADIUS * 0.38
    scale, wide = (rim - 18 - inner) / max(length / 2, *sums), inner * 0.3

    def at_hour(t: int, far: float) -> str:
        """Move the origin away from the middle, towards an hour."""
        return f"rotate({svg.number(360 * t / n)}) translate(0 {svg.number(-far)})"

    parts = [svg.circle(0, 0, inner, fill="none", stroke=palette.muted),
             svg.circle(0, 0, rim, fill="none", stroke=palette.rule)]
    for d in range(len(p)):
        wraps, tail = d >= n, length <= d < n
        colour = palette.wrapped if d >= length else palette.result
        across = wide * (0.55 if wraps else 1)
        aside = across / 2 + 2.5 if wraps and unit == 1j else 0.0  # turned aside, it lies on the line
        foot = inner + (p[d - n] * scale if wraps else 0.0) + aside
        rects, high = [], 0.0
        for j in range(max(0, d - length + 1), min(d, length - 1) + 1):
            size = float(v[j] * g[d - j]) * scale
            rects.append(svg.bar(-across / 2, across, -high, -high - size, fill=colour,
                                 fill_opacity=0.25 if tail else 1, stroke=colour if tail else palette.paper))
            high += size
        turn = f" rotate({_TURNS[unit] if wraps else 0})"
        parts.append(svg.element("g", *rects, transform=at_hour(d, foot) + turn))
    for t in range(length):
        real = p[t] + complex(unit).real * (p[t + n] if t + n < len(p) else 0.0)
        parts.append(svg.path("M", -wide * 0.75, 0, "h", wide * 1.5, stroke=palette.ink, stroke_width=3,
                              transform=at_hour(t, inner + real * scale)))
    for t in range(n):
        x, y = rim * math.sin(2 * math.pi * t / n), -rim * math.cos(2 * math.pi * t / n)
        ring = palette.rule if t >= length else palette.wrapped if t < spoilt else palette.result
        parts += [svg.circle(x, y, 12.5, fill=palette.paper, stroke=ring, stroke_width=4 if t == hour else 2),
                  svg.text(x, y + 4.5, t, "middle", 700 if t == hour else 400)]
    return [*parts, svg.path("M-4 0L0", -inner * 0.5, "L4 0Z", fill=palette.ink, transform=at_hour(hour, 0)),
            svg.circle(0, 0, 5)]
