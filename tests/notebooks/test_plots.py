"""Plots in the build: without their ground, in the colours of both themes, none of them faint, each with a caption."""

import io
import re

import matplotlib
import nbformat
import numpy as np
import pytest
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from caracal_book import viz
from caracal_book.rules import drawings
from caracal_book.viz import svg as stills
from caracal_book.viz.style import dark, palette

COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")
THEMES = pytest.mark.parametrize("theme", [palette, dark], ids=["light", "dark"])


@pytest.fixture
def draw():
    """A function that hands axes in the book's style to another one, and returns what that drew, as SVG."""

    def start(paint) -> str:
        with matplotlib.rc_context():
            viz.use_style()
            figure = Figure()
            paint(figure.add_subplot())
            out = io.StringIO()
            figure.savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()

    return start


def everything(ax):
    """Paint a line, a hollow mark, letters in three colours, something filled, and an image that fades."""
    ax.plot([0, 1], [0, 1], color=palette.content)
    ax.plot([1], [0], "D", color=palette.ink, mfc="white")
    ax.fill_between([0, 1], [0, 1], color=palette.result, alpha=0.3)
    ax.text(0, 0, "black", color="black")
    ax.text(0, 1, "ink")
    ax.text(1, 1, "paper", color="white")
    fades = LinearSegmentedColormap.from_list("", [palette.gate + "00", palette.gate])
    ax.imshow(np.linspace(0, 1, 16).reshape(4, 4), cmap=fades, extent=(0, 1, 0, 1))


def without_rasters(svg):
    return re.sub(r"base64,[^\"]*", "", svg)


def test_a_plot_loses_its_ground_and_keeps_what_else_is_white(draw):
    svg = draw(everything)
    bare = drawings.without_ground(svg)
    grounds = r'<g id="patch_[12]">\s*<path d="[^"]*" style="fill: {}"/>'
    assert len(re.findall(grounds.format("#ffffff"), svg)) == 2  # of the figure and of its axes
    assert len(re.findall(grounds.format("none"), bare)) == 2
    assert bare.count("#ffffff") == svg.count("#ffffff") - 2 > 0
    still = stills.frame(40, 30, stills.rect(1, 1, 5, 5, fill=palette.paper))
    assert drawings.without_ground(still).count(palette.paper) == still.count(palette.paper) - 1 == 1


def test_in_the_dark_every_colour_is_its_counterpart(draw):
    light = drawings.without_ground(draw(everything))
    night = drawings.on_dark(light)
    assert {c.lower() for c in COLOUR.findall(without_rasters(night))} <= set(drawings.colours(dark))
    assert night.count(dark.content.lower()) == light.count(palette.content.lower()) > 0
    assert re.search(r"<svg\b[^>]*", night)[0].count(f'fill="{dark.ink}"') == 1, "black letters carry no colour"
    nothing = COLOUR.sub("", without_rasters(light))
    assert COLOUR.sub("", without_rasters(night)).replace(' fill=""', "", 1) == nothing, "nothing but colours changes"


@THEMES
@pytest.mark.parametrize("paint, says", [
    (lambda ax: ax.axhline(0, color=palette.rule), "a line in .*, opacity 1: 1.[47] to 1, where 3 is needed"),
    (lambda ax: ax.plot([0, 1], color=palette.result, alpha=0.4), "a line in .*, opacity 0.4"),
    (lambda ax: ax.grid(), "a line in"),
    (lambda ax: ax.text(0, 0, "x", color=palette.rule), "letters in .* where 4.5 is needed"),
    (lambda ax: ax.text(0, 0, "x", alpha=0.3), "letters in .*, opacity 0.3"),
])
def test_what_is_faint_is_named(theme, paint, says, draw):
    svg = draw(paint)
    (problem,) = drawings.faint(svg if theme is palette else drawings.on_dark(svg), theme)
    assert re.match(says, problem)


@pytest.fixture
def build(build_book, make_notebook, make_code):
    """A function that builds a page with a drawing and a text below it; returns warnings, page and images by name."""

    def run(svg, below):
        cell = make_code("draw()", alt="a drawing")
        cell["outputs"] = [nbformat.v4.new_output("display_data", {"image/svg+xml": svg, "text/plain": "<Figure>"})]
        notebook = make_notebook(cell, below, title="# Book", setup=False)
        warnings, html = build_book({"index.ipynb": notebook}, "measured", "plots", "boxes")
        images = {path.name.rpartition("-")[2]: path.read_text("utf-8") for path in (html / "_images").iterdir()}
        return warnings, (html / "index.html").read_text(encoding="utf-8"), images

    return run


def test_a_page_has_a_plot_for_each_theme_in_one_figure(build, draw):
    svg = draw(everything)
    warnings, page, images = build(svg, "**Figure 1.1.** It rises, since $a<b$.\n\nText.")
    assert warnings == ""
    assert set(images) == {"light.svg", "dark.svg"} and images["dark.svg"] == drawings.on_dark(images["light.svg"])
    figure = re.search(r'<figure class="book-figure" id="figure-1-1">.*?</figure>', page, re.DOTALL)[0]
    tags = re.findall(r"<img [^>]*>", figure)
    assert [re.search(r"on-(light|dark)\b", tag)[1] for tag in tags] == ["light", "dark"]
    assert all('alt="a drawing"' in tag and 'loading="lazy"' in tag and "width: 574px" in tag for tag in tags)
    assert "It rises" in figure and "Text." not in figure


@pytest.mark.parametrize("colour, says", [(palette.rule, "a drawing has a line in"),
                                          ("#123456", "a drawing has the colours #123456")])
def test_a_plot_that_is_faint_or_of_another_colour_is_a_warning(colour, says, build, draw):
    warnings, *_ = build(draw(lambda ax: ax.axhline(0, color=colour)), "Text.")
    assert says in warnings
