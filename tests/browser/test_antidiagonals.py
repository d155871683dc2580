"""The figure of the anti-diagonals in a real browser: its sums against the package, by keyboard and by pointer."""

import pytest
import torch
from figure_pages import contrast, data, drag_up, focused, page_width

from caracal_book import viz
from caracal_min.convolution import linear_conv

L = 6
V, G = torch.tensor([2, -1, 3, 1, 0, 2]), torch.tensor([1, 2, -2, 0, 1, 3])
FIGURE = viz.antidiagonals(V, G, t=4)


def entry(page, name, k):
    return page.get_by_role("slider", name=f"{name}, entry {k}", exact=True)


def set_t(page, t):
    page.locator("input[type=range]").fill(str(t))


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


def test_without_scripts_the_still_is_shown(still):
    assert still.get_attribute("alt").startswith("The 6 times 6 table")
    assert still.bounding_box()["height"] > 300


def test_first_frame_is_what_python_asked_for(page):
    shown = data(page)
    assert (shown["v"], shown["g"], shown["t"]) == (V.tolist(), G.tolist(), 4)
    assert_agrees_with_the_package(page)


@pytest.mark.parametrize("t", range(2 * L - 1))
def test_every_antidiagonal(page, t):
    set_t(page, t)
    assert data(page)["t"] == t
    assert_agrees_with_the_package(page)
    words = page.locator("[aria-live]").inner_text()
    assert ("has not reached" in words) == (t >= L) and ("an output of the text" in words) == (t < L)
    colour = page.eval_on_selector(".anti-cell.lit", "node => getComputedStyle(node).fill")
    assert colour == page.eval_on_selector(".caracal-live", """(live, name) => {
      const probe = document.createElement('i');
      probe.style.color = `var(--${name})`;
      live.append(probe);
      return getComputedStyle(probe).color;
    }""", "wrapped" if t >= L else "result")


def test_t_by_keyboard(page):
    page.locator("input[type=range]").focus()
    for key, t in (("ArrowRight", 5), ("ArrowRight", 6), ("End", 10), ("ArrowRight", 10), ("Home", 0)):
        page.keyboard.press(key)
        assert data(page)["t"] == t
        assert_agrees_with_the_package(page)


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


def test_the_first_gate_moves_the_outputs_of_the_text_and_only_those(page):
    """The prose: g_0 stands in every output at lag 0, as the factor of v_t."""
    before = data(page)["product"]
    entry(page, "gate g", 0).focus()
    page.keyboard.press("ArrowUp")
    after = data(page)["product"]
    assert [b - a for a, b in zip(before, after, strict=True)] == [*V.tolist(), *[0] * (L - 1)]


def test_dragging_an_entry(page):
    drag_up(page, entry(page, "gate g", 3), 29, "g")
    assert data(page)["g"] == [1, 2, -2, 2, 1, 3]
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


def test_cells_stand_above_their_bars(page):
    middles = page.evaluate("""() => {
      const middle = (node) => { const box = node.getBoundingClientRect(); return box.left + box.width / 2; };
      const bars = [...document.querySelectorAll('line ~ rect:not(.anti-bars)')];
      return [[...document.querySelectorAll('.anti-cell')].map(middle), bars.map(middle)];
    }""")
    cells, bars = middles
    assert len(bars) == 2 * L - 1
    assert all(abs(x - bars[k // L + k % L]) < 0.6 for k, x in enumerate(cells))


def test_bars_have_the_height_of_the_sums(page):
    heights = torch.tensor([float(h) for h in page.eval_on_selector_all(
        "line ~ rect:not(.anti-bars)", "nodes => nodes.map(n => n.getAttribute('height'))")])
    sizes = torch.tensor(data(page)["product"]).abs()
    assert torch.allclose(heights / heights.max(), sizes / sizes.max(), atol=1e-4)


def test_start_again(page):
    first = data(page)
    set_t(page, 9)
    entry(page, "gate g", 5).focus()
    page.keyboard.press("PageDown")
    assert data(page) != first
    page.get_by_role("button", name="Start again").click()
    assert data(page) == first


def test_two_figures_on_a_page_are_independent(show):
    page = show(FIGURE, FIGURE)
    page.locator("input[type=range]").nth(1).fill("7")
    assert [data(page, k)["t"] for k in (0, 1)] == [4, 7]


@pytest.mark.parametrize("length", [2, 8])
def test_it_fits_a_phone(show, length):
    v = torch.full((length,), -9)
    page = show(viz.antidiagonals(v, v))
    assert page_width(page) <= 360
    left, right = page.evaluate("""() => {
      const boxes = [...document.querySelectorAll('.caracal-live svg *')].map((node) => node.getBoundingClientRect());
      return [Math.min(...boxes.map((box) => box.left)), Math.max(...boxes.map((box) => box.right))];
    }""")
    assert left >= 0 and right <= 360


def test_text_is_readable_in_every_theme(show_themed):
    page, paper = show_themed(viz.antidiagonals(V, G))
    texts = page.evaluate("""() => {
      const paint = (node, of) => getComputedStyle(node)[of];
      const over = (cell, paper) => {      // the colour of a cell: its fill, at its opacity, on the paper
        const parts = (text) => text.match(/[\\d.]+/g).map(Number), share = Number(cell.getAttribute('fill-opacity'));
        const mixed = parts(paint(cell, 'fill')).map((c, k) => Math.round(share * c + (1 - share) * parts(paper)[k]));
        return `rgb(${mixed.slice(0, 3)})`;
      };
      const live = document.querySelector('.caracal-live'), paper = paint(live, 'backgroundColor');
      const cells = [...document.querySelectorAll('.anti-cell')];
      return [[paint(document.querySelector('.caracal-help'), 'color'), paper],
        ...cells.map((cell) => [paint(cell.nextSibling, 'fill'), over(cell, paper)])];
    }""")
    assert min(contrast(text, ground) for text, ground in texts) >= 4.5
