"""SVG as text: the frame of a drawing, and the marks that it is made of.

A drawing stands on white in every theme.  Its lengths are in pixels of its full width; x grows to the right and y
downwards.  A mark takes further attributes by name, `font_size=11` for font-size, and leaves out those that are None.
"""

from collections.abc import Iterable
from html import escape

from .style import palette

__all__ = ["circle", "element", "frame", "lines", "minus", "number", "path", "rect", "said", "text"]


def number(x: float) -> str:
    """Write a length to two decimals at most, without trailing zeros."""
    return f"{round(x, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def minus(x: object) -> str:
    """Write a whole number with a true minus sign."""
    return str(x).replace("-", "−")


def said(x: float, digits: int = 2) -> str:
    """Write a number to some decimals, with a true minus sign and without one before zero, as the page does."""
    written = f"{x:.{digits}f}"
    return minus(written if float(written) else written.removeprefix("-"))


def element(name: str, *inside: str, **attributes: object) -> str:
    """Return an element that holds markup; the values of its attributes are escaped."""
    written = "".join(f' {key.replace("_", "-")}="{escape(number(value) if isinstance(value, float) else str(value))}"'
                      for key, value in attributes.items() if value is not None)
    return f"<{name}{written}>{''.join(inside)}</{name}>" if inside else f"<{name}{written}/>"


def text(x: float, y: float, words: object, anchor: str | None = None, weight: int | None = None,
         **look: object) -> str:
    """Write words, escaped, on the base line y: from x on, or with their middle or end at x as `anchor` says."""
    return element("text", escape(str(words)), x=x, y=y, text_anchor=anchor, font_weight=weight, **look)


def lines(x: float, y: float, sentences: Iterable[str], pitch: float = 19) -> str:
    """Write sentences one below the other."""
    return "".join(text(x, y + pitch * k, sentence) for k, sentence in enumerate(sentences))


def rect(x: float, y: float, width: float, height: float, **look: object) -> str:
    """Draw a rectangle from its upper left corner."""
    return element("rect", x=x, y=y, width=width, height=height, **look)


def circle(x: float, y: float, radius: float, **look: object) -> str:
    """Draw a circle around a point."""
    return element("circle", cx=x, cy=y, r=radius, **look)


def path(*steps: str | float, fill: str = "none", **look: object) -> str:
    """Draw a path from the letters and numbers of its steps, `path("M", x, y, "H", right)`."""
    d = ""
    for step in steps:
        d += step if isinstance(step, str) else f"{' ' * d[-1:].isdigit()}{number(step)}"
    return element("path", d=d, fill=fill, **look)


def frame(width: float, height: float, *marks: str, size: float = 13) -> str:
    """Return a document of the given size, in pixels, with marks on white; `size` is that of its letters."""
    width, height = round(width), round(height)
    return element("svg", element("rect", width=width, height=height, fill=palette.paper), *marks,
                   xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", width=width, height=height,
                   font_family="system-ui, sans-serif", font_size=size, fill=palette.ink)
