"""Draw the picture of the README and the preface: all products v_j g_k, their anti-diagonals, and two halves.

    python tools/draw_cover.py book/_static/anti_diagonals.svg
    python tools/draw_cover.py --mark book/_static/mark.svg        the book's mark: the table of three by three
    python tools/draw_cover.py --social social.svg                 1200 by 630, for previews of links

The square of products stands on its corner, so that every anti-diagonal (j + k = t) is a column, which
falls into r_t below it.
"""

import argparse
from pathlib import Path

from caracal_book.viz.style import dark, palette

LENGTH = 6
HALF = 31  # half the diagonal of one product's diamond, and the width of one coefficient below
WIDTH, HEIGHT = 760, 566
LEFT, MIDDLE, STRIP = 222, 240, 474

STYLE = f"""
  svg {{ {palette.css()} }}
  @media (prefers-color-scheme: dark) {{ svg {{ {dark.css()} }} }}""" + """
  .paper { fill: var(--paper); stroke: var(--rule); }
  text { font: 17px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--ink); text-anchor: middle; }
  .small { font-size: 13.5px; }
  .sub { font-size: 11px; }
  .note { font-size: 16px; fill: var(--muted); }
  .head { font-size: 18px; font-weight: 600; }
  .v { fill: var(--content); } .g { fill: var(--gate); } .r { fill: var(--result); } .w { fill: var(--wrapped); }
  .cell { stroke: var(--paper); stroke-width: 2; }
  .product { fill-opacity: 0.26; }
  .kept { stroke: var(--result); } .cut { stroke: var(--wrapped); stroke-dasharray: 4 4; }
  .fall { stroke-width: 1.4; fill: none; }
  .bound { stroke: var(--muted); stroke-width: 1.4; stroke-dasharray: 2 5; }
  .on { fill: var(--paper); font-weight: 600; } .on-gate { fill: black; font-weight: 600; }
"""


def symbol(x: float, y: float, letter: str, index: str, css: str = "") -> str:
    """Return a letter with a subscript, centred on x."""
    return (f'<text class="{css}" x="{x}" y="{y}"><tspan font-style="italic">{letter}</tspan>'
            f'<tspan class="sub" dy="4">{index}</tspan></text>')


def diamond(x: float, y: float, css: str) -> str:
    points = f"{x - HALF},{y} {x},{y - HALF} {x + HALF},{y} {x},{y + HALF}"
    return f'<polygon class="cell {css}" points="{points}"/>'


def centre(i: int, j: int) -> tuple[int, int]:
    """Return the centre of the product v_j g_k, k = i: column i + j, higher for larger i, lower for larger j."""
    return LEFT + (i + j) * HALF, MIDDLE + (j - i) * HALF


def streams() -> list[str]:
    """Draw g along the upper left edge and v along the lower left edge."""
    parts = []
    for k in range(LENGTH):
        for letter, sign, ink in (("g", -1, "on-gate"), ("v", 1, "on")):
            x, y = LEFT + k * HALF - HALF - 6, MIDDLE + sign * (k * HALF + HALF + 6)
            parts += [diamond(x, y, letter), symbol(x, y + 4, letter, str(k), ink)]
    return parts


def products() -> list[str]:
    parts = []
    for i in range(LENGTH):
        for j in range(LENGTH):
            x, y = centre(i, j)
            parts += [diamond(x, y, f"product {'r' if i + j < LENGTH else 'w'}"),
                      f'<text class="small" x="{x}" y="{y + 4}"><tspan font-style="italic">v</tspan>'
                      f'<tspan class="sub" dy="3">{j}</tspan><tspan font-style="italic" dy="-3">g</tspan>'
                      f'<tspan class="sub" dy="3">{i}</tspan></text>']
    return parts


def coefficients() -> list[str]:
    """Draw the columns' sums r_t, and the line that each anti-diagonal falls along."""
    parts = []
    for t in range(2 * LENGTH - 1):
        x = LEFT + t * HALF
        lowest = MIDDLE + (LENGTH - 1 - abs(t - LENGTH + 1)) * HALF + HALF
        kept = t < LENGTH
        parts.append(f'<path class="fall {"kept" if kept else "cut"}" d="M{x} {lowest + 3}V{STRIP - 3}"/>')
        parts.append(f'<rect class="cell {"r" if kept else "w"}" x="{x - HALF / 2}" y="{STRIP}" '
                     f'width="{HALF}" height="34" rx="3"/>')
        parts.append(symbol(x, STRIP + 21, "r", str(t), "on"))
    return parts


def words() -> list[str]:
    border = LEFT + (LENGTH - 0.5) * HALF
    left, right = border - 270, border + 184
    return [
        f'<path class="bound" d="M{border} 30V{HEIGHT - 24}"/>',
        f'<text class="head" x="{left}" y="58">causal half</text>',
        f'<text class="note" x="{left}" y="82">j + k = t: tokens up to t</text>',
        f'<text class="head" x="{right}" y="58">truncated half</text>',
        f'<text class="note" x="{right}" y="82">positions after the text</text>',
        f'<text class="note" x="{border - 108}" y="{STRIP + 62}">what the layer returns</text>',
        f'<text class="note" x="{border + 146}" y="{STRIP + 62}">what this text adds to later tokens</text>',
    ]


def draw() -> str:
    """Return the picture as SVG."""
    title = ("All products of content v and gate g. Each anti-diagonal sums to one coefficient r. "
             "The first half is causal, the second half is cut off.")
    body = "\n".join([*coefficients(), *products(), *streams(), *words()])
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n'
            f"<title>{title}</title>\n<style>{STYLE}</style>\n"
            f'<rect class="paper" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="14"/>\n{body}\n</svg>\n')


def mark(size: float = 64, x: float = 0, y: float = 0) -> str:
    """Return the mark: a table of three by three on its corner, v and g along its left edges, two halves."""
    half, parts = size / 8, []
    for i in range(-1, 3):
        for j in range(-1, 3):
            if i >= 0 or j >= 0:
                colour = palette.content if i < 0 else palette.gate if j < 0 else \
                    palette.result if i + j < 3 else palette.wrapped
                cx, cy = x + size * 0.3125 + (i + j) * half, y + size / 2 + (j - i) * half
                points = f"{cx - half:g},{cy:g} {cx:g},{cy - half:g} {cx + half:g},{cy:g} {cx:g},{cy + half:g}"
                parts.append(f'<polygon points="{points}" fill="{colour}" stroke="{palette.paper}" '
                             f'stroke-width="{size / 64:g}"/>')
    return "".join(parts)


def draw_mark() -> str:
    """Return the mark as SVG, for the tab of a browser."""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><rect width="64" height="64" rx="12" '
            f'fill="{palette.paper}"/>{mark()}</svg>\n')


def draw_social() -> str:
    """Return the picture of link previews as SVG: the mark, the title, and what the book is."""
    words = (("Caracal", 250, 96, 700, palette.ink), ("from Scratch", 350, 96, 700, palette.ink),
             ("A language model built on", 430, 38, 400, palette.muted),
             ("polynomial multiplication", 480, 38, 400, palette.muted))
    lines = "".join(f'<text x="80" y="{y}" font-size="{size}" font-weight="{weight}" fill="{colour}">{text}</text>'
                    for text, y, size, weight, colour in words)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 630" width="1200" height="630" '
            f'font-family="Bricolage Grotesque, sans-serif"><rect width="1200" height="630" fill="{palette.paper}"/>'
            f"{mark(420, 740, 105)}{lines}</svg>\n")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Draw the book's pictures as SVG files.")
    parser.add_argument("target", type=Path, help="file to write")
    which = parser.add_mutually_exclusive_group()
    for name, function in (("--mark", draw_mark), ("--social", draw_social)):
        which.add_argument(name, dest="draw", action="store_const", const=function, default=draw)
    options = parser.parse_args(argv)
    options.target.write_text(options.draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
