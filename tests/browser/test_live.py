"""A function behind controls, on a page where no Python runs: the answers are those that it gave beforehand."""

import io
from collections import Counter

import numpy as np
import pytest
from figure_pages import data
from matplotlib import pyplot as plt
from PIL import Image

from caracal_book import viz
from caracal_book.viz.style import dark

pytestmark = pytest.mark.browser


def powers(base=2, shown="bars"):
    numbers = {f"{base}^{k}": float(base**k) for k in range(4)}
    return numbers if shown == "bars" else ", ".join(f"{x:g}" for x in numbers.values())


FIGURE = viz.live(powers, "Four powers of a number, as bars or as a text.", base=range(1, 6), shown=("bars", "text"))


@pytest.mark.parametrize("base", [1, 5])
def test_the_page_shows_what_the_function_gave(page, base):
    page.get_by_role("slider").fill(str(base - 1))
    assert data(page)["values"] == [base - 1, 0]
    (part,) = data(page)["answer"]
    assert dict(part["bars"]) == powers(base)
    page.get_by_role("combobox").select_option("text")
    assert page.locator(".live-answer pre").inner_text() == powers(base, "text")


def plotted(bar="result"):
    fig, ax = plt.subplots(figsize=(2, 2), facecolor="white")
    ax.bar([0, 1], [1, 2], color=getattr(viz.palette, bar))
    return fig


@pytest.mark.parametrize("theme, scheme", [("dark", "light"), ("", "light")])
def test_a_plot_is_painted_in_the_colours_of_the_theme(theme, scheme, show):
    page = show(viz.live(plotted, "two bars", bar=("result", "gate")), theme=theme and f'data-theme="{theme}"',
                color_scheme=scheme)
    for bar in ("gate", "result"):
        page.get_by_role("combobox").select_option(bar)
        page.wait_for_timeout(300)
        shown = page.locator(".live-plot:visible")
        assert shown.count() == 1 and shown.evaluate("node => getComputedStyle(node).filter") == "none"
        wide = float(page.locator("img.live-plot").get_attribute("width"))
        assert shown.bounding_box()["width"] == pytest.approx(wide, abs=1)
        pixels = np.asarray(Image.open(io.BytesIO(shown.screenshot())).convert("RGB")).reshape(-1, 3)
        seen = Counter(map(tuple, pixels.tolist()))
        expected = dark if "dark" in (theme or scheme) else viz.palette
        (paper, _), (drawn, _) = seen.most_common(2)
        assert (paper, drawn) == tuple(rgb(getattr(expected, name)) for name in ("paper", bar))


def rgb(colour):
    return tuple(int(colour[k:k + 2], 16) for k in (1, 3, 5))
