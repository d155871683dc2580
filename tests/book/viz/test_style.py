"""The palette: it stands out on its grounds, stays apart for colour-blind readers, and is written once."""

import itertools
import re

import numpy as np
import pytest

from caracal_book.viz.style import Palette, dark, palette

SERIES = ("content", "gate", "result", "wrapped", "other-0", "other-1")
PAGES = {"light": "#FFFFFF", "dark": "#121212"}  # the grounds of the book's pages, in sphinx-book-theme
THEMES = {"light": palette, "dark": dark}
HEX = r"#[0-9a-fA-F]{3,8}\b"

# How eyes without one kind of cone see linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.
EYES = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array([[0.412456, 0.357576, 0.180438], [0.212673, 0.715152, 0.072175], [0.019334, 0.119192, 0.950304]])


def colours(chosen: Palette) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#\w{6});", chosen.css()))


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[k:k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    low, high = sorted(float(XYZ[1] @ linear(colour)) for colour in (a, b))
    return (high + 0.05) / (low + 0.05)


def lab(colour: str, eyes: str) -> np.ndarray:
    """Return CIE L*, a* and b* of a colour as such eyes see it."""
    share = XYZ @ np.clip(EYES[eyes] @ linear(colour), 0, 1) / XYZ.sum(1)
    f = np.where(share > (6 / 29) ** 3, np.cbrt(share), share / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def closest(series, eyes: str) -> float:
    """Return the CIE 1976 difference of the two colours that are nearest to each other."""
    return min(np.linalg.norm(lab(a, eyes) - lab(b, eyes)) for a, b in itertools.combinations(series, 2))


@pytest.mark.parametrize("theme, measured", [
    ("light", {"content": 6.3, "gate": 3.1, "result": 4.5, "wrapped": 5.4, "other-0": 3.2, "other-1": 3.2}),
    ("dark", {"content": 6.5, "gate": 10.6, "result": 9.1, "wrapped": 5.8, "other-0": 12.9, "other-1": 6.6}),
])
def test_every_series_stands_out_on_the_page_and_on_the_paper(theme, measured):
    shown = colours(THEMES[theme])
    on_page = {name: contrast(shown[name], PAGES[theme]) for name in SERIES}
    assert {name: round(ratio, 1) for name, ratio in on_page.items()} == measured
    assert min(on_page.values()) >= 3
    assert min(contrast(shown[name], shown["paper"]) for name in SERIES) >= 3
    assert contrast(shown["ink"], shown["shade"]) >= 7 and contrast(shown["muted"], shown["shade"]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
# Okabe and Ito's own six colours keep 26, 18, 21 and 16 apart, with two of them at 2.3 to 1 on white.
@pytest.mark.parametrize("eyes, least", [("normal", 20), ("deuteranopia", 18), ("protanopia", 18), ("tritanopia", 14)])
def test_colour_blind_readers_tell_the_series_apart(theme, eyes, least):
    shown = colours(THEMES[theme])
    assert closest([shown[name] for name in SERIES], eyes) >= least


def test_the_book_has_the_colours_of_both_themes(root):
    css = (root / "book/_static/book.css").read_text(encoding="utf-8")
    for rule in (f"html {{ {palette.css()} }}\n", f'html[data-theme="dark"] {{ {dark.css()} }}\n'):
        assert rule in css, f"put into book/_static/book.css, for its present line:\n{rule}"
        css = css.replace(rule, "")
    assert not {colour.lower() for colour in re.findall(HEX, css)} & {
        colour.lower() for theme in THEMES.values() for colour in colours(theme).values()}
