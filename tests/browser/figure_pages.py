"""A page that holds nothing but a figure, as a file, what it shows, and the contrast of its colours."""

import json
from pathlib import Path

import torch

PAGE = ('<!doctype html><html lang="en"{theme}><meta charset="utf-8"><title>a figure</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><body>{body}</body></html>')


def write_page(folder: Path, body: str, theme: str = "") -> str:
    """Write a page to a file and return its address; `theme` is an attribute such as data-theme="dark"."""
    path = folder / "figure.html"
    path.write_text(PAGE.format(theme=theme and f" {theme}", body=body), encoding="utf-8")
    return path.as_uri()


def data(page, number: int = 0) -> dict:
    """Return what a figure of a page, or of a frame, says that it shows; what is no JSON stays text."""
    raw = page.locator(".caracal-figure").nth(number).evaluate("host => ({...host.dataset})")
    return {key: _parsed(value) for key, value in raw.items()}


def _parsed(text: str):
    try:
        return json.loads(text)
    except ValueError:
        return text


def page_width(page) -> int:
    """Return how wide a page is, in pixels; more than its window where something sticks out."""
    return page.evaluate("document.documentElement.scrollWidth")


def focused(page) -> str:
    """Return the name of what has the keyboard's focus."""
    return page.evaluate("document.activeElement.getAttribute('aria-label')")


def drag_up(page, bar, pixels: float, name: str) -> None:
    """Drag the middle of a bar; what the data hold under `name` moves with the pointer while it is down, only then."""
    box, before = bar.bounding_box(), data(page)[name]
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    assert data(page)[name] == before, "touching a bar does not move it"
    page.mouse.move(x, y - pixels, steps=4)
    after = data(page)[name]
    page.mouse.up()
    page.mouse.move(x, y)
    assert data(page)[name] == after != before, "a bar that is released stays"


def tensor(numbers) -> torch.Tensor:
    """Return numbers of a page as float64, the precision of JavaScript."""
    return torch.tensor(numbers, dtype=torch.float64)


def luminance(rgb: str) -> float:
    """Return the relative luminance, from 0 to 1, of a colour that a browser gives as rgb(...) or rgba(...)."""
    channels = [int(part) / 255 for part in rgb[rgb.index("(") + 1:rgb.index(")")].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21, as the WCAG defines it."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)
