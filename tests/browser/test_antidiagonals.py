"""The figure of the anti-diagonals in a real browser: its sums against the package, by keyboard and by pointer."""

import pytest
import torch
from figure_pages import data, focused

from caracal_book import viz
from caracal_min.convolution import linear_conv

pytestmark = pytest.mark.browser

L = 6
V, G = torch.tensor([2, -1, 3, 1, 0, 2]), torch.tensor([1, 2, -2, 0, 1, 3])
FIGURE = viz.antidiagonals(V, G, t=4)


def entry(page, name, k):
    return page.get_by_role("slider", name=f"{name}, entry {k}", exact=True)


def assert_agrees_with_the_package(page):
    """Compare data, cells, bars and the written sum with linear_conv of the entries that are shown."""
    shown = data(page)
    v, g, t = torch.tensor(shown["v"]).double(), torch.tensor(shown["g"]).double(), shown["t"]
    product = linear_conv(v, g).round().int().tolist()
    assert shown["product"] == product
    assert shown["sum"] == product[t]
    assert shown["beyond"] == (t >= L)
    assert shown["pairs"] == [[j, t - j] for j in range(L) if 0 <= t - j < L]
    cells = page.eval_on_selector_all(".anti-cell + .anti-value", "nodes => nodes.map(n => n.textContent)")
    assert [int(c.replace("−", "-")) for c in cells] == torch.outer(v, g).int().flatten().tolist()
    lit = page.eval_on_selector_all(".anti-cell", "nodes => nodes.map(n => n.classList.contains('lit'))")
    assert [k for k, is_lit in enumerate(lit) if is_lit] == [j * L + i for j, i in shown["pairs"]]
    written = page.locator(".anti-line").nth(1).inner_text().replace("−", "-")
    terms = [[int(x.strip(" ()")) for x in term.split("·")] for term in written.split("=")[1].split(" + ")]
    assert terms == [[shown["v"][j], shown["g"][i]] for j, i in shown["pairs"]]
    assert int(written.split("=")[2]) == product[t] == sum(a * b for a, b in terms)


def test_every_antidiagonal(page):
    colours = {}
    for t in range(2 * L - 1):
        page.locator("input[type=range]").fill(str(t))
        assert data(page)["t"] == t
        assert_agrees_with_the_package(page)
        words = page.locator("[aria-live]").inner_text()
        assert ("has not reached" in words) == (t >= L) and ("an output of the text" in words) == (t < L)
        colour = page.eval_on_selector(".anti-cell.lit", "node => getComputedStyle(node).fill")
        colours.setdefault(t >= L, set()).add(colour)
    assert len(colours[True]) == len(colours[False]) == 1 and colours[True] != colours[False]


def test_entries_by_keyboard(page):
    entry(page, "content v", 0).focus()
    page.keyboard.press("ArrowRight")
    assert focused(page) == "content v, entry 1"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("PageUp")
    assert data(page)["v"] == [2, 3, 3, 1, 0, 2]
    assert entry(page, "content v", 1).get_attribute("aria-valuenow") == "3"
    assert_agrees_with_the_package(page)
    page.keyboard.press("Tab")
    assert focused(page) == "gate g, entry 0"
    page.keyboard.press("End")
    for _ in range(12):
        page.keyboard.press("ArrowDown")
    assert data(page)["g"] == [1, 2, -2, 0, 1, -9]  # one digit
    assert_agrees_with_the_package(page)


def test_choosing_t_by_pointer(page):
    page.locator(".anti-cell").nth(3 * L + 5).click()
    assert data(page)["t"] == 8
    box = page.locator(".anti-bars").bounding_box()
    pitch, y = box["width"] / (2 * L - 1), box["y"] + 30
    page.mouse.move(box["x"] + 1.5 * pitch, y)
    page.mouse.down()
    assert data(page)["t"] == 1
    page.mouse.move(box["x"] + 9.5 * pitch, y, steps=5)
    assert data(page)["t"] == 9
    page.mouse.up()
    page.mouse.move(box["x"] + 4.5 * pitch, y)
    assert data(page)["t"] == 9
    assert_agrees_with_the_package(page)
