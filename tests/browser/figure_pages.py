"""A page that holds nothing but a figure, as a file, and the contrast of its colours."""

from pathlib import Path

PAGE = ('<!doctype html><html lang="en"{theme}><meta charset="utf-8"><title>a figure</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><body>{body}</body></html>')


def write_page(folder: Path, body: str, theme: str = "") -> str:
    """Write a page to a file and return its address; `theme` is an attribute such as data-theme="dark"."""
    path = folder / "figure.html"
    path.write_text(PAGE.format(theme=theme and f" {theme}", body=body), encoding="utf-8")
    return path.as_uri()


def luminance(rgb: str) -> float:
    """Return the relative luminance, from 0 to 1, of a colour that a browser gives as rgb(...) or rgba(...)."""
    channels = [int(part) / 255 for part in rgb[rgb.index("(") + 1:rgb.index(")")].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21, as the WCAG defines it."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)
