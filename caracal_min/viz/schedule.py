"""The figure of chapter 10: which pairs the schedule of relaxed multiplication adds when a token arrives."""

from ..relaxed import schedule as pairs_by_time
from .figure import Figure
from .style import palette

__all__ = ["schedule"]

_WIDTH, _LABEL, _TOP = 420, 30, 40  # of the still, in its own units


def schedule(length: int = 32, n: int = 12) -> Figure:
    """Show the pairs (j, i), j + i < length, of content j and gate i, and which of them are added after n tokens.

    The reader lets tokens arrive one by one, sees how full each result is and what each step's block costs.

    Args:
        length: tokens L of the text, 4 to 32 to stay legible.
        n: tokens that have arrived at the start, 1 to L.

    Raises:
        ValueError: length or n out of range.

    Source: the rule of `relaxed`, with blocks from one token on.
    """
    if not 4 <= length <= 32:
        raise ValueError(f"length={length}; give 4 to 32")
    if not 1 <= n <= length:
        raise ValueError(f"n={n} tokens of a text of {length}; give 1 to {length}")
    return Figure("schedule", {"length": length, "n": n}, _still(length, n), _alt(length, n))


def _block(n: int, length: int) -> str:
    """Say what is multiplied after n tokens, and for which results."""
    m = n & -n
    last = min(n + m, length) - 1
    if last < n:
        return "no block: the text ends here"
    product = f"v[0:{n}]*g[0:{n}]" if n == m else f"v[{n - m}:{n}]*g[0:{2 * m}] + g[{n - m}:{n}]*v[0:{2 * m}]"
    return f"{product} for " + (f"results {n} to {last}" if last > n else f"result {n}")


def _alt(length: int, n: int) -> str:
    lit = sum(k == n for k in pairs_by_time(length).values())
    return (f"A triangle of squares, one for each pair of a content index and a gate index that add up to less than "
            f"{length}. After {n} tokens, {lit} pairs are added: {_block(n, length)}. The anti-diagonal of result "
            f"{n - 1} is outlined, and all its pairs are counted. Buttons and a slider let tokens arrive; below, "
            "how full each result is and what each step costs.")


def _still(length: int, n: int) -> str:
    """Draw the first frame as SVG: the pairs by when they are counted, the present result, the block in words."""
    cell = (_WIDTH - _LABEL - 12) / length
    after = pairs_by_time(length)
    x, y = (lambda i: _LABEL + cell * i), (lambda j: _TOP + cell * j)
    parts = [f'<text x="12" y="18" font-weight="600">content j ↓, gate i →; {n} tokens have arrived</text>']
    for (j, i), when in sorted(after.items()):
        both = j == i or (n & -n == n and min(j, i) > 0)
        if when == n:
            fill, extra = palette.content if both or j > i else palette.gate, ""
        elif when < n:
            fill, extra = "#b0b0b0", ""
        elif max(j, i) < n:
            fill, extra = "white", f' stroke="{palette.muted}"'
        else:
            fill, extra = "#f1f1f1", ""
        parts.append(_square(x(i), y(j), cell, 0.08 if not extra else 0.15, fill, extra))
        if when == n and both:
            parts.append(_square(x(i), y(j), cell, 0.27, palette.gate))
    stairs = "".join(f"V{y(j + 1):.1f}H{x(max(0, n - 2 - j)):.1f}" for j in range(n))
    stairs += f"V{y(n - 1):.1f}" + "".join(f"H{x(n - j):.1f}V{y(j):.1f}" for j in reversed(range(n)))
    parts.append(f'<path d="M{x(n - 1):.1f} {y(0):.1f}{stairs}z" fill="none" stroke="{palette.result}" '
                 'stroke-width="2.5"/>')
    for k in range(0, length, 4):
        parts.append(f'<text x="{x(k + 0.5):.1f}" y="{_TOP - 5}" font-size="11" text-anchor="middle" '
                     f'fill="{palette.muted}">{k}</text>')
        parts.append(f'<text x="{_LABEL - 5}" y="{y(k + 0.5) + 4:.1f}" font-size="11" text-anchor="end" '
                     f'fill="{palette.muted}">{k}</text>')
    bottom = y(length) + 22
    block, _, results = _block(n, length).partition(" for ")
    words = [f"added now: {block}", f"{results and f'for {results}; '}result {n - 1} is read: {n} of {n} pairs are in",
             f'<tspan fill="{palette.content}">■</tspan> new content  <tspan fill="{palette.gate}">■</tspan> new gate  '
             f'<tspan fill="#b0b0b0">■</tspan> earlier  <tspan fill="{palette.result}">□</tspan> read now']
    parts += [f'<text x="12" y="{bottom + 20 * k:.0f}">{line}</text>' for k, line in enumerate(words)]
    height = round(bottom + 20 * len(words) - 6)
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" font-size="13" '
            f'fill="{palette.ink}"><rect width="{_WIDTH}" height="{height}" fill="white"/>{"".join(parts)}</svg>')


def _square(x: float, y: float, cell: float, inset: float, fill: str, extra: str = "") -> str:
    side = cell * (1 - 2 * inset)
    return (f'<rect x="{x + cell * inset:.1f}" y="{y + cell * inset:.1f}" width="{side:.1f}" height="{side:.1f}" '
            f'fill="{fill}"{extra}/>')
