"""What a stack sees, in a real browser: cells against gradients of real layers, keys, pointer, phone, themes."""

import pytest
import torch
from figure_pages import contrast, data, focused, page_width
from torch import nn

from caracal_book import viz
from caracal_min.modules import Block, MultiHeadFourier, SlidingWindowAttention

L, LAYERS, D = 20, 6, 8
FIGURE = viz.sight("WWWWWW", window=4, length=L)


def seen_by_gradient(pattern, window, output, pre_conv):
    """For every level, which cells the output depends on, by autograd through real blocks in float64."""
    torch.manual_seed(7)
    mixers = [MultiHeadFourier(D, 2, pre_conv) if kind == "F" else SlidingWindowAttention(D, 2, window)
              for kind in pattern]
    blocks = nn.ModuleList(Block(mixer, 16) for mixer in mixers).double()
    levels = [torch.randn(1, L, D, dtype=torch.float64, requires_grad=True)]
    for block in blocks:
        levels.append(block(levels[-1]))
    mix = levels[-1][0, output] @ torch.randn(D, dtype=torch.float64)
    sizes = [g[0].norm(dim=-1) for g in torch.autograd.grad(mix, levels)]
    return [(size > 1e-9 * size.max()).tolist() for size in sizes]


def assert_agrees_with_real_layers(shown, pre_conv=True):
    lit = [[n > 0 for n in row] for row in shown["paths"]]
    assert lit == seen_by_gradient(shown["pattern"], shown["window"], shown["output"], pre_conv)
    assert shown["seen"] == sum(lit[0]) and shown["oldest"] == lit[0].index(True)
    back = torch.arange(L)[:, None] - torch.arange(L)
    masks = {"F": (back >= 0).long(), "W": ((back >= 0) & (back < shown["window"])).long()}
    for kind, below, above in zip(shown["pattern"], shown["paths"], shown["paths"][1:], strict=False):
        assert (torch.tensor(above) @ masks[kind]).tolist() == below


def layer(page, k):
    return page.get_by_role("button", name=f"mixer {k},")


def cells(page):
    """The fill of every cell, from the tokens up."""
    fills = page.eval_on_selector_all("svg rect", "nodes => nodes.map(n => n.style.fill)")
    return [fills[k:k + L] for k in range(0, len(fills), L)]


def test_without_scripts_the_still_is_shown(still):
    assert "19 of 20 tokens" in still.get_attribute("alt")


def test_first_frame(page):
    shown = data(page)
    assert (shown["pattern"], shown["window"], shown["output"]) == ("WWWWWW", 4, L - 1)
    assert (shown["seen"], shown["oldest"]) == (19, 1)
    assert_agrees_with_real_layers(shown)
    words = page.locator("[aria-live]").inner_text()
    assert "19 of 20" in words and "token 1, 18 back" in words and str(max(shown["paths"][0])) in words


@pytest.mark.parametrize("pre_conv", [True, False])
def test_layers_change_by_keyboard_and_see_what_real_layers_see(page, pre_conv):
    patterns = set()
    page.get_by_role("slider", name="window w").fill("3")
    for step, k in enumerate((0, 5, 2, 0, 4, 3, 1)):
        layer(page, k).focus()
        page.keyboard.press("Enter" if step % 2 else "Space")
        assert focused(page).startswith(f"mixer {k}, ")
        page.get_by_role("slider", name="output t").fill(str(19 - 2 * step))
        patterns.add(data(page)["pattern"])
        assert_agrees_with_real_layers(data(page), pre_conv)
    assert len(patterns) == 7


def test_every_window_and_output(page):
    layer(page, 4).click()
    layer(page, 4).click()
    window, output = (page.get_by_role("slider", name=name) for name in ("window w", "output t"))
    for w in (1, 2, 5, 10):
        for t in (0, 7, 19):
            window.fill(str(w))
            output.fill(str(t))
            shown = data(page)
            assert (shown["window"], shown["output"]) == (w, t)
            assert shown["seen"] == min(t, LAYERS * (w - 1)) + 1
            if (w, t) != (1, 0):
                assert_agrees_with_real_layers(shown)


def test_arrows_go_from_layer_to_layer(page):
    layer(page, 5).focus()
    for k in (4, 3):
        page.keyboard.press("ArrowDown")
        assert focused(page).startswith(f"mixer {k}, window")
    page.keyboard.press("ArrowUp")
    assert focused(page).startswith("mixer 4, window")
    page.keyboard.press("Enter")
    assert data(page)["pattern"] == "WWWWFW" and focused(page) == "mixer 4, Fourier; press for window"


def test_stacks_to_start_from(page):
    for name, pattern in (("2 : 1", "FFWFFW"), ("all Fourier", "FFFFFF"), ("all windows", "WWWWWW")):
        button = page.get_by_role("button", name=name)
        button.click()
        assert data(page)["pattern"] == pattern and button.get_attribute("aria-pressed") == "true"
        assert_agrees_with_real_layers(data(page))
    layer(page, 0).click()
    assert page.locator("[aria-pressed=true]").count() == 0


def test_the_drawing_shows_the_data(page):
    page.get_by_role("button", name="2 : 1").click()
    page.get_by_role("slider", name="output t").fill("12")
    drawn, shown = cells(page), data(page)
    assert len(drawn) == LAYERS + 1
    for level, (row, paths) in enumerate(zip(drawn, shown["paths"], strict=True)):
        colour = "var(--result)" if level == LAYERS else "var(--ink)" if level else "var(--content)"
        assert row == [colour if n else "none" for n in paths]
    shades = page.eval_on_selector_all("svg rect", "nodes => nodes.map(n => Number(n.style.fillOpacity))")[:13]
    expected = torch.tensor(shown["paths"][0][:13]).double().log1p()
    assert torch.allclose(torch.tensor(shades).double(), 0.25 + 0.75 * expected / expected.max(), atol=2e-3)
    places = page.eval_on_selector_all("svg path", """nodes => nodes.map(n =>
        [n.getBBox().x, n.getBBox().x + n.getBBox().width])""")
    boxes = page.eval_on_selector_all("svg rect", "nodes => nodes.map(n => [n.getBBox().x, n.getBBox().width])")
    for level, (start, end) in enumerate(places):
        oldest = next(j for j, n in enumerate(shown["paths"][level]) if n)
        assert start == pytest.approx(boxes[oldest][0], abs=0.1)
        assert end == pytest.approx(sum(boxes[12]), abs=0.1)


def test_the_output_is_dragged(page):
    boxes = [page.locator("svg rect").nth(LAYERS * L + t).bounding_box() for t in (15, 8, 3)]
    middles = [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes]
    page.mouse.move(*middles[0])
    assert data(page)["output"] == 19
    page.mouse.down()
    assert data(page)["output"] == 15
    page.mouse.move(*middles[1], steps=3)
    assert data(page)["output"] == 8
    page.mouse.up()
    page.mouse.move(*middles[2])
    assert data(page)["output"] == 8
    assert_agrees_with_real_layers(data(page))


@pytest.mark.parametrize("width", [320, 390])
def test_it_fits_a_phone_and_stands_still(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    heights = set()
    for name in ("all windows", "2 : 1", "all Fourier"):
        page.get_by_role("button", name=name).click()
        for t in ("19", "4"):
            page.get_by_role("slider", name="output t").fill(t)
            assert page_width(page) <= width
            heights.add(page.locator(".caracal-live").bounding_box()["height"])
    assert len(heights) == 1
    assert layer(page, 0).bounding_box()["height"] >= 32
    button, cell = layer(page, 3).bounding_box(), page.locator("svg rect").nth(0).bounding_box()
    assert button["x"] + button["width"] < cell["x"]


def test_two_on_one_page_are_independent(framed_twins):
    frame = framed_twins(FIGURE)
    frame.get_by_role("button", name="all Fourier").nth(1).click()
    assert [data(frame, k)["pattern"] for k in (0, 1)] == ["WWWWWW", "FFFFFF"]


def test_text_is_readable_in_every_theme(show_themed):
    page, paper = show_themed(viz.sight("WFWWWW", 4, L))
    css = "([selector, name]) => getComputedStyle(document.querySelector(selector))[name]"
    ink, muted, help_, window, fourier, face = (page.evaluate(css, list(pair)) for pair in [
        (".caracal-facts", "color"), ("svg .muted", "fill"), (".caracal-help", "color"),
        (".sight-layer[data-kind=W]", "color"), (".sight-layer[data-kind=F]", "color"),
        (".sight-layer[data-kind=F]", "backgroundColor")])
    assert min(contrast(ink, paper), contrast(window, paper), contrast(fourier, face)) > 7
    assert min(contrast(muted, paper), contrast(help_, paper)) > 4.5
    unseen = page.eval_on_selector_all("svg rect", "nodes => nodes.map(n => getComputedStyle(n).stroke)")
    assert contrast(next(s for s in unseen if s.startswith("rgb")), paper) > 3
