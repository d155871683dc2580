"""The figure of chapter 10: which pairs the schedule of relaxed multiplication adds when a token arrives."""

from collections.abc import Mapping

from . import svg
from .figure import Figure
from .style import palette

__all__ = ["pairs_by_time", "schedule"]

_WIDTH, _LABEL, _TOP = 420, 30, 40  # of the still, in its own units
_EARLIER = {"fill": palette.muted, "fill_opacity": 0.55}  # what was counted earlier


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
    return Figure("schedule", {"length": length, "n": n}, _still(length, n), _alt(length, n), state=("n",))


def pairs_by_time(length: int) -> dict[tuple[int, int], int]:
    """Run the schedule of `caracal_min.relaxed` with blocks from one token on, and note when each pair is added.

    Returns:
        for each pair of indices (i, j) with i + j < length, the number of tokens that have arrived by then; a pair with
        an index 0 is added by hand, when the token of the other arrives.
    """
    after = {}
    for n in range(1, length + 1):
        m = n & -n
        after[n - 1, 0] = after[0, n - 1] = n
        for new in range(n - m, n):
            for old in range(m if n == m else 2 * m):
                if n <= new + old < min(n + m, length):
                    after[new, old] = after[old, new] = n
    return after


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
            f"{n - 1} is outlined, and all its pairs have been added. Buttons and a slider let tokens arrive; below, "
            "how full each result is and what each step costs.")


def _still(length: int, n: int) -> str:
    """Draw the first frame as SVG: the pairs by when they are counted, the present result, the block in words."""
    cell = (_WIDTH - _LABEL - 12) / length
    after = pairs_by_time(length)
    x, y = (lambda i: _LABEL + cell * i), (lambda j: _TOP + cell * j)
    parts = [svg.text(12, 18, f"content j ↓, gate i →; {n} tokens have arrived", weight=600)]
    for (j, i), when in sorted(after.items()):
        both = when == n and (j == i or (n & -n == n and min(j, i) > 0))
        if when == n:
            look = {"fill": palette.content if both or j > i else palette.gate}
        elif when < n:
            look = _EARLIER
        elif max(j, i) < n:
            look = {"fill": palette.paper, "stroke": palette.muted}
        else:
            look = {"fill": palette.shade}
        parts.append(_square(x(i), y(j), cell, 0.15 if "stroke" in look else 0.08, look))
        if both:
            parts.append(_square(x(i), y(j), cell, 0.27, {"fill": palette.gate}))
    down = [step for j in range(n) for step in ("V", y(j + 1), "H", x(max(0, n - 2 - j)))]
    up = [step for j in reversed(range(n)) for step in ("H", x(n - j), "V", y(j))]
    parts.append(svg.path("M", x(n - 1), y(0), *down, "V", y(n - 1), *up, "z", stroke=palette.result, stroke_width=2.5))
    for k in range(0, length, 4):
        parts += [svg.text(x(k + 0.5), _TOP - 5, k, "middle", font_size=11, fill=palette.muted),
                  svg.text(_LABEL - 5, y(k + 0.5) + 4, k, "end", font_size=11, fill=palette.muted)]
    bottom = y(length) + 22
    block, _, results = _block(n, length).partition(" for ")
    words = [f"added now: {block}", f"{results and f'for {results}; '}result {n - 1} is read: {n} of {n} pairs are in"]
    return svg.frame(_WIDTH, bottom + 54, *parts, svg.lines(12, bottom, words, 20),
                     svg.key(12, bottom + 40, svg.entry("new content", fill=palette.content),
                             svg.entry("new gate", fill=palette.gate), svg.entry("earlier", **_EARLIER),
                             svg.entry("read now", "□", fill=palette.result)))


def _square(x: float, y: float, cell: float, inset: float, look: Mapping[str, object]) -> str:
    side = cell * (1 - 2 * inset)
    return svg.rect(x + cell * inset, y + cell * inset, side, side, **look)
