"""The poke figure in a real browser, from a file: its still, its keys and pointer, and its arithmetic."""

import pytest
import torch
from figure_pages import data, drag_up, focused, tensor

from caracal_book import viz
from caracal_min.convolution import causal_conv_direct, circular_conv

pytestmark = pytest.mark.browser

L = 12
V, G = torch.randn(2, L, generator=torch.Generator().manual_seed(4)).clamp(-2, 2).round(decimals=1).double()
FIGURE = viz.poke(V, G, n=L, token=8)


def bar(page, name, token):
    return page.get_by_role("slider", name=f"{name}, token {token}", exact=True)


def set_points(page, n):
    page.locator("input[type=range]").fill(str(n))


def assert_agrees_with_the_package(shown, before_v=V, before_g=G):
    """Compare what the figure shows with circular_conv of its own bars, and of the bars before the poke."""
    v, g, values, shown_change = (tensor(shown[name]) for name in ("v", "g", "values", "change"))
    now = circular_conv(v, g, shown["n"])[:L]
    change = now - circular_conv(before_v, before_g, shown["n"])[:L]
    wrong = (values - causal_conv_direct(v, g)).abs() > 1e-6
    past = change[:shown["token"]].abs().max().item() if shown["token"] else 0.0
    assert torch.allclose(values, now, atol=1e-6)
    assert torch.allclose(shown_change, change, atol=1e-6)
    assert shown["contaminated"] == max(0, 2 * L - 1 - shown["n"])
    assert not wrong[shown["contaminated"]:].any() and wrong.any() == (shown["contaminated"] > 0)
    assert shown["pastChange"] == pytest.approx(past, abs=1e-6)


def test_outputs_equal_the_package_for_every_number_of_points(page):
    page.get_by_role("slider", name="content v, token 8").focus()
    for key in ("ArrowDown", "PageDown", "ArrowDown"):
        page.keyboard.press(key)
    for n in (12, 13, 17, 22, 23, 24, 25):
        set_points(page, n)
        shown = data(page)
        assert shown["v"][8] == pytest.approx(V[8].item() + 0.3)
        assert shown["n"] == n
        assert_agrees_with_the_package(shown)
    assert "0 of 12" in page.locator("[aria-live]").inner_text()


def test_arrow_keys_choose_the_token_and_change_its_value(page):
    bar(page, "content v", 8).focus()
    page.keyboard.press("ArrowRight")
    assert focused(page) == "content v, token 9"
    start = data(page)
    assert start["pastChange"] == 0 and start["token"] == 9  # a new token: nothing has been poked yet
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowDown")
    assert data(page)["v"][9] == pytest.approx(start["v"][9] + 0.1)
    assert float(bar(page, "content v", 9).get_attribute("aria-valuenow")) == data(page)["v"][9]
    for key, token in (("Home", 0), ("ArrowLeft", 0), ("End", 11), ("ArrowRight", 11), ("ArrowLeft", 10)):
        page.keyboard.press(key)
        assert data(page)["token"] == token
    page.keyboard.press("Tab")
    assert data(page)["stream"] == "g"


def test_dragging_a_bar(page):
    start = data(page)
    grip = bar(page, "gate g", 3)
    drag_up(page, grip, (grip.bounding_box()["height"] - 8) / 4, "g")    # a panel is four units high
    shown = data(page)
    assert (shown["stream"], shown["token"]) == ("g", 3)
    assert shown["g"][3] == pytest.approx(start["g"][3] + 1.0, abs=0.06)
    assert_agrees_with_the_package(shown, tensor(start["v"]))
