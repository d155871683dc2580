"""The weighted-sum figure in a real browser, from a file: still, mixers, mask, keys and pointer, and its arithmetic."""


import pytest
import torch
from figure_pages import data, drag_up, scale_of, tensor

from caracal_book import viz

pytestmark = pytest.mark.browser

WORDS = ["the", "cat", "sat", "on", "the", "mat"]
X = [0.6, 1.4, -1.1, -0.4, 0.6, 1.0]
L = len(X)


LABELS = {"average": "average", "attention": "attention", "dft": "DFT, real part"}
FIGURE = viz.weighted_sum(WORDS, X, row=2)


def token(page, j):
    return page.get_by_role("slider", name=f"content of token {j}, {WORDS[j]}", exact=True)


def choose(page, mixer, masked):
    page.get_by_text(LABELS[mixer], exact=True).click()
    page.get_by_label("causal mask").set_checked(masked)


def expected_weights(mixer, masked, x):
    """The same three mixers from torch's own softmax and FFT."""
    eye = torch.eye(len(x), dtype=torch.float64)
    if mixer == "dft":
        weights = torch.fft.fft(eye).real
        return weights.tril() if masked else weights
    if masked:
        logits = torch.outer(x, x) if mixer == "attention" else torch.zeros(len(x), len(x)).double()
        rows = [torch.nn.functional.pad(logits[t, :t + 1].softmax(0), (0, len(x) - 1 - t)) for t in range(len(x))]
        return torch.stack(rows)
    if mixer == "average":
        return torch.full_like(eye, 1 / len(x))
    head = x[None, None, :, None]
    return torch.nn.functional.scaled_dot_product_attention(head, head, eye[None, None], scale=1.0)[0, 0]


def assert_agrees(shown, before=None):
    x = tensor(shown["x"])
    weights = expected_weights(shown["mixer"], shown["masked"], x)
    assert torch.allclose(tensor(shown["weights"]), weights, atol=1e-9)
    assert torch.allclose(tensor(shown["outputs"]), weights @ x, atol=1e-9)
    future = weights.triu(1).abs() > 1e-9
    assert shown["futureRow"] == int(future[shown["row"]].sum()) and shown["futureAll"] == int(future.sum())
    if before is not None:
        earlier = expected_weights(shown["mixer"], shown["masked"], before)
        moved = ((weights @ x) - (earlier @ before)).abs() > 1e-9
        assert shown["weightsMoved"] == int(((weights - earlier).abs() > 1e-9).sum())
        assert shown["outputsMoved"] == int(moved.sum())
        assert shown["outputsEarly"] == int(moved[:shown["token"]].sum())


def facts(page):
    return page.locator("[aria-live]").inner_text()


@pytest.mark.parametrize("mixer, from_data, masked", [("average", False, True), ("attention", True, False),
                                                      ("attention", True, True), ("dft", False, False)])
def test_every_mixer_with_and_without_mask(page, mixer, from_data, masked):
    choose(page, mixer, masked)
    assert_agrees(data(page), tensor(X))
    token(page, L - 1).focus()
    for key in ("ArrowDown", "PageDown", "ArrowUp"):
        page.keyboard.press(key)
    shown = data(page)
    assert shown["x"][-1] == pytest.approx(X[-1] - 0.5)
    assert_agrees(shown, tensor(X))
    assert (shown["weightsMoved"] > 0) == from_data  # what the figure is for
    assert shown["futureAll"] == (0 if masked else 15)
    assert shown["outputsEarly"] == (0 if masked else L - 1) and shown["outputsMoved"] == (1 if masked else L)


def test_dragging_a_token(page):
    drag_up(page, token(page, 3), (token(page, 3).bounding_box()["height"] - 6) / 4, "x")  # a quarter: a unit
    shown = data(page)
    assert shown["token"] == 3 and shown["x"][3] == pytest.approx(X[3] + 1.0, abs=0.06)
    assert_agrees(shown, tensor(X))


@pytest.mark.parametrize("mixer", LABELS)
def test_the_drawing_shows_the_numbers(page, mixer):
    """Areas and colours of the marks are the weights; the black lines stand at the height of the outputs."""
    choose(page, mixer, mixer == "average")  # without its mask all of its outputs are alike
    marks = page.eval_on_selector_all("svg:first-of-type rect[rx='1.5']", """nodes => nodes.map(node =>
        [Number(node.getAttribute("width")), node.getAttribute("style")])""")
    weights = tensor(data(page)["weights"]).flatten()
    sides = tensor([side for side, _ in marks])
    assert torch.allclose((sides / sides.max()) ** 2, weights.abs() / weights.abs().max(), atol=1e-6)
    for k, (_, style) in enumerate(marks):
        assert ("--wrapped" in style) == (k % L > k // L)
        assert ("stroke" in style) == (weights[k] < 0)
    heights = page.eval_on_selector_all("svg:nth-of-type(2) line[style*='--ink']",
                                        "nodes => nodes.map(node => Number(node.getAttribute('y1')))")
    slope, _ = scale_of(heights, data(page)["outputs"])
    assert len(heights) == L and slope < -3


def test_without_its_matrix_it_shows_the_terms_of_one_output(show):
    page = show(viz.weighted_sum(WORDS, X, mixer="dft", row=1, matrix=False))
    assert page.get_by_role("radio").count() == 0 and not page.get_by_label("causal mask").is_visible()
    assert [svg.is_visible() for svg in page.locator(".caracal-live > svg").all()] == [False, True]
    assert not page.get_by_text("of A: the weights").is_visible()
    assert "terms of output 1 from later words\n4 of 6" in facts(page)
    assert "outputs changed with “mat”\n–" in facts(page)
    drag_up(page, token(page, 5), -10, "x")
    shown = data(page)
    assert shown["x"][5] < X[5] and "outputs changed with “mat”\n6 of 6" in facts(page)
    assert_agrees(shown, tensor(X))
    slider = page.locator("input[type=range]")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert data(page)["row"] == 2 and "terms of output 2 from later words\n3 of 6" in facts(page)
