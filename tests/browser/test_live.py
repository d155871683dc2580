"""A function behind controls, on a page where no Python runs: the answers are those that it gave beforehand."""

import pytest
from figure_pages import data

from caracal_min import viz


def powers(base=2, shown="bars"):
    numbers = {f"{base}^{k}": float(base**k) for k in range(4)}
    return numbers if shown == "bars" else ", ".join(f"{x:g}" for x in numbers.values())


FIGURE = viz.live(powers, "Four powers of a number, as bars or as a text.", base=range(1, 6), shown=("bars", "text"))


@pytest.mark.parametrize("base", [1, 3, 5])
def test_the_page_shows_what_the_function_gave(page, base):
    page.get_by_role("slider").fill(str(base - 1))
    assert data(page)["values"] == [base - 1, 0]
    (part,) = data(page)["answer"]
    assert dict(part["bars"]) == powers(base)
    page.get_by_role("combobox").select_option("text")
    assert page.locator(".live-answer pre").inner_text() == powers(base, "text")


def test_bars_are_as_long_as_their_numbers(page):
    page.get_by_role("slider").fill("1")
    lengths = [bar.bounding_box()["width"] for bar in page.locator(".live-bars i").all()]
    assert lengths == pytest.approx([lengths[0] * 2**k for k in range(4)], rel=0.2) and lengths[3] > 3


def test_what_is_chosen_and_what_came_of_it_is_said(page):
    assert page.get_by_role("status").inner_text() == "base 2, shown bars: 4 bars, the longest 2^3."
    page.get_by_role("combobox").select_option("text")
    page.wait_for_timeout(1200)
    assert page.get_by_role("status").inner_text() == "base 2, shown text: 1, 2, 4, 8."


def test_without_scripts_the_still_is_shown(still):
    assert still.get_attribute("alt") == FIGURE.alt
