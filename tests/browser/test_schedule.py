"""The schedule figure in a real browser, from a file: its still, its keys and pointer, and its arithmetic."""

import pytest
from figure_pages import data

from caracal_book import viz
from caracal_book.viz.schedule import pairs_by_time

pytestmark = pytest.mark.browser

L = 32
FIGURE = viz.schedule(L, 12)

ADDED = {n: {pair for pair, added in pairs_by_time(L).items() if added == n} for n in range(1, L + 1)}


def assert_agrees_with_the_package(shown):
    n = shown["n"]
    m = n & -n
    assert (shown["m"], shown["l"]) == (m, n - m)
    assert {tuple(pair) for pair in shown["lit"]} == ADDED[n]
    so_far = set().union(*(ADDED[k] for k in range(1, n + 1)))
    assert shown["share"] == [sum(j + i == t for j, i in so_far) for t in range(L)]
    assert shown["share"][:n] == list(range(1, n + 1)), "every result that was read is full"
    fed = {j + i for j, i in ADDED[n] if j and i}
    if fed:
        assert (shown["first"], shown["last"]) == (n, min(n + m, L) - 1) and fed <= set(range(n, n + m))


def set_tokens(page, n):
    page.locator("input[type=range]").fill(str(n))


def test_every_step_agrees_with_the_package(page):
    assert data(page)["n"] == 12
    for n in range(1, L + 1):
        set_tokens(page, n)
        assert data(page)["n"] == n
        assert_agrees_with_the_package(data(page))


def test_buttons_and_keys_let_tokens_arrive(page):
    page.get_by_role("button", name="Next token").click()
    assert data(page)["n"] == 13
    page.get_by_role("button", name="Back").press("Enter")
    page.get_by_role("button", name="Back").press("Enter")
    assert data(page)["n"] == 11
    page.locator("input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    assert data(page)["n"] == 12
    page.keyboard.press("Home")
    assert data(page)["n"] == 1 and page.get_by_role("button", name="Back").is_disabled()
    page.keyboard.press("End")
    assert data(page)["n"] == L and page.get_by_role("button", name="Next token").is_disabled()
    assert "the text ends here" in page.locator("[aria-live]").inner_text()
    page.get_by_role("button", name="Start again").click()
    assert data(page)["n"] == 12


def test_dragging_over_a_strip_moves_through_time(page):
    strip = page.locator(".sch-time").nth(1)
    strip.scroll_into_view_if_needed()
    box = strip.bounding_box()
    pitch = box["width"] / L
    page.mouse.move(box["x"] + 7.5 * pitch, box["y"] + 20)
    page.mouse.down()
    assert data(page)["n"] == 8
    page.mouse.move(box["x"] + 23.5 * pitch, box["y"] + 20, steps=3)
    assert data(page)["n"] == 24
    page.mouse.up()
    page.mouse.move(box["x"] + 3 * pitch, box["y"] + 20)
    assert data(page)["n"] == 24
