"""What a stack sees, in a real browser: cells against gradients of real layers, keys, pointer, phone, themes."""

import pytest
import torch
from figure_pages import data, focused
from torch import nn

from caracal_book import viz
from caracal_min.layers import Block, MultiHeadFourier, SlidingWindowAttention

pytestmark = pytest.mark.browser

L, LAYERS, D = 20, 6, 8
FIGURE = viz.sight("AAAAAA", window=4, length=L)


def seen_by_gradient(pattern, window, output):
    """For every level, which cells the output depends on, by autograd through real blocks in float64."""
    torch.manual_seed(7)
    mixers = [MultiHeadFourier(D, 2) if kind == "F" else SlidingWindowAttention(D, 2, window)
              for kind in pattern]
    blocks = nn.ModuleList(Block(mixer, 16) for mixer in mixers).double()
    levels = [torch.randn(1, L, D, dtype=torch.float64, requires_grad=True)]
    for block in blocks:
        levels.append(block(levels[-1]))
    mix = levels[-1][0, output] @ torch.randn(D, dtype=torch.float64)
    sizes = [g[0].norm(dim=-1) for g in torch.autograd.grad(mix, levels)]
    return [(size > 1e-9 * size.max()).tolist() for size in sizes]


def assert_agrees_with_real_layers(shown):
    lit = [[n > 0 for n in row] for row in shown["paths"]]
    assert lit == seen_by_gradient(shown["pattern"], shown["window"], shown["output"])
    assert shown["seen"] == sum(lit[0]) and shown["oldest"] == lit[0].index(True)
    back = torch.arange(L)[:, None] - torch.arange(L)
    masks = {"F": (back >= 0).long(), "A": ((back >= 0) & (back < shown["window"])).long()}
    for kind, below, above in zip(shown["pattern"], shown["paths"], shown["paths"][1:], strict=False):
        assert (torch.tensor(above) @ masks[kind]).tolist() == below


def layer(page, k):
    return page.get_by_role("button", name=f"mixer {k},")


def test_layers_change_by_keyboard_and_see_what_real_layers_see(page):
    patterns = set()
    page.get_by_role("slider", name="window w").fill("3")
    for step, k in enumerate((0, 5, 2, 0, 4, 3, 1)):
        layer(page, k).focus()
        page.keyboard.press("Enter" if step % 2 else "Space")
        assert focused(page).startswith(f"mixer {k}, ")
        page.get_by_role("slider", name="output t").fill(str(19 - 2 * step))
        patterns.add(data(page)["pattern"])
        assert_agrees_with_real_layers(data(page))
    assert len(patterns) == 7


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
