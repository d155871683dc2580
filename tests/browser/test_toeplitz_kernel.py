"""The kernel and its matrix in a real browser: bars, squares, keys and pointer, and the arithmetic behind them."""

import pytest
import torch
from figure_pages import data, drag_up, tensor

from caracal_book import viz
from caracal_min.convolution import causal_conv_direct, toeplitz

pytestmark = pytest.mark.browser

V = torch.tensor([0.8, -0.6, 1.2, 0.4, -1.0, 0.9, 0.5, -0.7, 1.1], dtype=torch.float64)
G = torch.tensor([1.4, 0.6, -0.8, -1.2, 1.0, 0.4, -0.3, 0.8, -0.5], dtype=torch.float64)
L = len(V)
FIGURE = viz.toeplitz_kernel(V, G, row=6, column=2)


def bar(page, lag):
    return page.get_by_role("slider", name=f"kernel g, lag {lag}", exact=True)


def square(page, t, j):
    return page.locator(f".toe-entry[aria-label^='row {t}, column {j}:']")


def assert_agrees_with_the_package(shown):
    g, t, j = tensor(shown["g"]), shown["row"], shown["column"]
    A, r = toeplitz(g), causal_conv_direct(V, g)
    assert torch.allclose(tensor(shown["r"]), r, atol=1e-3)
    assert shown["entry"] == pytest.approx(A[t, j].item()) and shown["lag"] == t - j
    assert shown["sum"] == pytest.approx(r[t].item(), abs=1e-3)


def sides(page):
    """The sides of the squares of the matrix as drawn, by row and column."""
    widths = page.eval_on_selector_all(".toe-square", "nodes => nodes.map(n => Number(n.getAttribute('width')))")
    full = torch.zeros(L, L, dtype=torch.float64)
    full[tuple(torch.tril_indices(L, L))] = tensor(widths)
    return full


def test_a_bar_changes_its_diagonal_and_no_other(page):
    before = sides(page)
    bar(page, 3).focus()
    page.keyboard.press("PageDown")
    after = sides(page)
    lag = torch.arange(L)[:, None] - torch.arange(L)
    assert (after != before)[lag == 3].all() and torch.equal(after[lag != 3], before[lag != 3])
    shown = data(page)
    assert shown["g"][3] == pytest.approx(-1.7) and shown["lag"] == 3 and shown["row"] == 6
    assert_agrees_with_the_package(shown)


def test_dragging_a_bar(page):
    drag_up(page, bar(page, 5), 27, "g")    # a unit on a phone
    assert data(page)["g"][5] == pytest.approx(1.4, abs=0.06)
    assert_agrees_with_the_package(data(page))


def test_picking_a_square_by_pointer_and_by_keys(page):
    square(page, 5, 1).click()
    assert (data(page)["row"], data(page)["column"], data(page)["lag"]) == (5, 1, 4)
    for key, place in (("ArrowDown", (6, 1)), ("ArrowRight", (6, 2)), ("End", (6, 6)), ("ArrowUp", (5, 5)),
                       ("ArrowRight", (5, 5)), ("Home", (5, 0)), ("ArrowLeft", (5, 0))):
        page.keyboard.press(key)
        assert (data(page)["row"], data(page)["column"]) == place
        assert_agrees_with_the_package(data(page))
