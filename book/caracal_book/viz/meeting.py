"""The figure of investigation A: which tokens meet in one result of a causal convolution."""

from . import svg
from .figure import Figure
from .style import palette

__all__ = ["meeting"]

_SHORTEST, _LONGEST = 4, 14
_WIDTH, _TOP, _ARCS, _BARS = 420, 12, 100, 56  # of the still and its parts, in its own units
_WIDEST = 40  # distance of two letters


def meeting(text: str, t: int | None = None) -> Figure:
    """Show which letters of a text meet in r_t, the sum over j <= t of v_j g_{t-j}: those whose positions add up to t.

    An arc joins the letters j and t - j, thick and green where they are the same; bars show the share of such products
    in every r_t.  A full bar: the text up to t is a palindrome.  The reader moves t, changes letters and swaps two.

    Args:
        text: the letters, one a token, a to z; 4 to 14 to stay legible.
        t: the result that is chosen at the start; default the last.

    Raises:
        ValueError: another character, or a length or t out of range.

    Source: Caracal, Section 4.3.
    """
    if not (text.isascii() and text.isalpha() and text.islower()):
        raise ValueError(f"text={text!r}; give letters a to z")
    length = len(text)
    if not _SHORTEST <= length <= _LONGEST:
        raise ValueError(f"text={text!r} has {length} letters; give {_SHORTEST} to {_LONGEST}")
    t = length - 1 if t is None else t
    if not 0 <= t < length:
        raise ValueError(f"t={t}; for {length} letters give 0 to {length - 1}")
    equal = [sum(text[j] == text[s - j] for j in range(s + 1)) for s in range(length)]
    shares = ", ".join(f"{count} of {s + 1}" for s, count in enumerate(equal))
    alt = (f"The letters {text} in a row. Arcs join those whose positions add up to t = {t}, which meet in one sum: "
           f"{_products(equal[t], t)} join equal letters, so the text up to t is {'' if equal[t] > t else 'not '}a "
           f"palindrome. A bar for every t shows that share; in order, {shares}. A slider moves t; press a letter to "
           "change it.")
    return Figure("meeting", {"text": text, "t": t}, _still(text, t, equal), alt, state=("text", "t"))


def _products(equal: int, t: int) -> str:
    return f"{equal} of {t + 1} {'products' if t else 'product'}"


def _still(text: str, t: int, equal: list[int]) -> str:
    """Draw the first frame as SVG: the arcs, the letters, the shares as bars, the count in words."""
    length = len(text)
    pitch = min(_WIDEST, (_WIDTH - 24) / length)
    left, box = (_WIDTH - pitch * length) / 2, min(28, pitch - 3)
    rise = min(1, _ARCS / (pitch * (length - 1) / 2))  # height of an arc, as a share of half its width
    base = _TOP + rise * pitch * (length - 1) / 2
    floor = base + 86 + _BARS

    def x(j: float) -> float:
        return left + pitch * (j + 0.5)

    parts = []
    for j in range((t + 2) // 2):
        look = ({"stroke": palette.result, "stroke_width": 4} if text[j] == text[t - j]
                else {"stroke": palette.muted, "stroke_width": 1.2})
        half = pitch * (t - 2 * j) / 2
        parts.append(svg.path("M", x(j), base, "A", half, half * rise, 0, 0, 1, x(t - j), base, stroke_linecap="round",
                              **look) if half else svg.circle(x(j), base - 6, 6, fill="none", **look))
    for j, letter in enumerate(text):
        met = j <= t and letter == text[t - j]
        look = ({"stroke": palette.result, "stroke_width": 2} if met else {"stroke": palette.muted} if j <= t
                else {"stroke": palette.muted, "stroke_dasharray": "2 2"})
        parts += [svg.rect(x(j) - box / 2, base + 5, box, 28, rx=4,
                           fill=palette.result if met else "none", fill_opacity=0.14 if met else None, **look),
                  svg.text(x(j), base + 25, letter, "middle", 600 if j <= t else 400, font_size=17,
                           fill=palette.ink if j <= t else palette.muted),
                  svg.text(x(j), base + 49, j, "middle", font_size=11, fill=palette.muted)]
    parts.append(svg.text(min(left, 70), base + 76, "share of equal products in r, at every t", weight=600))
    for s, count in enumerate(equal):
        wide, tall = pitch * 0.62, _BARS * count / (s + 1)
        edge = {"stroke": palette.ink, "stroke_width": 2} if s == t else {}
        parts += [svg.rect(x(s) - wide / 2, floor - _BARS, wide, _BARS, fill=palette.rule, fill_opacity=0.6),
                  svg.bar(x(s) - wide / 2, wide, floor, floor - tall, fill=palette.result,
                          fill_opacity=1 if s == t else 0.55),
                  svg.rect(x(s) - wide / 2 - 2, floor - _BARS - 2, wide + 4, _BARS + 4, fill="none", rx=2, **edge),
                  svg.text(x(s), floor + 18, s, "middle", 700 if s == t else 400, font_size=12,
                           fill=palette.ink if s == t else palette.muted)]
    parts.append(svg.lines(min(left, 70), floor + 44, [
        f"equal in r at t = {t}: {_products(equal[t], t)}",
        f"the text up to t is a palindrome: {'yes' if equal[t] > t else 'no'}"]))
    return svg.frame(_WIDTH, floor + 76, *parts)
