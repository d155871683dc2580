"""The weighted-sum figure in a real browser, from a file: still, mixers, mask, keys and pointer, and its arithmetic."""

import math

import pytest
import torch
from figure_pages import contrast, data, drag_up, focused, page_width, scale_of, tensor

from caracal_book import viz

WORDS = ["the", "cat", "sat", "on", "the", "mat"]
X = [0.6, 1.4, -1.1, -0.4, 0.6, 1.0]
L = len(X)
SPILLED = """() => {
  const live = document.querySelector('.caracal-live').getBoundingClientRect();
  const outside = (box) => box.right > live.right || box.left < live.left;
  return [...document.querySelectorAll('.caracal-live svg text')]
    .filter((node) => outside(node.getBoundingClientRect())).map((node) => node.textContent);
}"""
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


def test_without_scripts_the_still_is_shown(still):
    assert "6 by 6 weights of a mixer (attention, no mask), 15 of them on later tokens" in still.get_attribute("alt")
    assert still.bounding_box()["height"] > 400
    assert still.evaluate("image => image.naturalWidth") == 420


def test_first_frame_is_what_python_asked_for(page):
    shown = data(page)
    assert (shown["mixer"], shown["masked"], shown["row"], shown["token"]) == ("attention", False, 2, L - 1)
    assert shown["x"] == X and page.get_by_role("radio", name="attention").is_checked()
    assert_agrees(shown, tensor(X))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("mixer, from_data", [("average", False), ("attention", True), ("dft", False)])
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


def test_facts_in_words(page):
    assert "weights of later words, row 2\n3 of 6" in facts(page) and "15 of 36" in facts(page)
    assert "outputs before “mat” changed\n–" in facts(page)
    token(page, 5).focus()
    page.keyboard.press("PageUp")
    assert "weights changed with “mat”\n" in facts(page) and "outputs before “mat” changed\n5 of 5" in facts(page)
    assert page.locator(".sum-alarm").count() == 3
    page.get_by_label("causal mask").check()
    assert "outputs before “mat” changed\n0 of 5" in facts(page) and page.locator(".sum-alarm").count() == 0


def test_the_row_by_keyboard(page):
    slider = page.locator("input[type=range]")
    slider.focus()
    for key, row in (("ArrowRight", 3), ("End", 5), ("ArrowRight", 5), ("ArrowLeft", 4), ("Home", 0)):
        page.keyboard.press(key)
        assert data(page)["row"] == row
        assert slider.get_attribute("aria-valuetext") == f"t = {row}, {WORDS[row]}"
        assert f"row {row} of A: the weights" in page.locator("svg").nth(1).text_content()
        assert_agrees(data(page))
    assert "row 0\n5 of 6" in facts(page)


def test_mixer_and_mask_by_keyboard(page):
    page.get_by_role("radio", name="attention").focus()
    page.keyboard.press("ArrowRight")
    assert data(page)["mixer"] == "dft"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert data(page)["mixer"] == "average"
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert data(page)["masked"] is True
    assert_agrees(data(page))


def test_the_row_by_pointer_on_the_matrix_and_on_the_outputs(page):
    box = page.locator(".sum-pick").first.bounding_box()
    page.mouse.move(box["x"] + 90, box["y"] + box["height"] * 0.95)
    assert data(page)["row"] == 2  # passing over it does nothing
    page.mouse.down()
    assert data(page)["row"] == 5
    page.mouse.move(box["x"] + 90, box["y"] + box["height"] * 0.25, steps=3)
    page.mouse.up()
    page.mouse.move(box["x"] + 90, box["y"] + box["height"] * 0.6)
    assert data(page)["row"] == 1
    box = page.locator(".sum-pick").nth(1).bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + 30)
    assert data(page)["row"] == 3
    assert_agrees(data(page))


def test_token_keys(page):
    token(page, 5).focus()
    for key, j in (("Home", 0), ("ArrowLeft", 0), ("ArrowRight", 1), ("End", 5), ("ArrowRight", 5), ("ArrowLeft", 4)):
        page.keyboard.press(key)
        assert data(page)["token"] == j
        assert focused(page) == f"content of token {j}, {WORDS[j]}"
    before = tensor(data(page)["x"])
    for _ in range(9):
        page.keyboard.press("PageUp")
    assert data(page)["x"][4] == 2  # stays within the scale
    assert float(token(page, 4).get_attribute("aria-valuenow")) == 2
    assert_agrees(data(page), before)


def test_dragging_a_token(page):
    drag_up(page, token(page, 3), (token(page, 3).bounding_box()["height"] - 6) / 4, "x")  # a quarter: a unit
    shown = data(page)
    assert shown["token"] == 3 and shown["x"][3] == pytest.approx(X[3] + 1.0, abs=0.06)
    assert_agrees(shown, tensor(X))


def test_start_again(page):
    first = data(page)
    choose(page, "dft", True)
    token(page, 1).focus()
    page.keyboard.press("PageDown")
    assert data(page) != first
    page.get_by_role("button", name="Start again").click()
    assert data(page) == first


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


def test_ghosts_appear_only_where_something_moved(page):
    ticks = "svg:nth-of-type(2) g g line"  # the bars of the panel of weights
    shown = """nodes => nodes.filter(node => getComputedStyle(node).display !== 'none').length"""
    choose(page, "dft", False)
    token(page, 5).focus()
    page.keyboard.press("PageDown")
    assert page.eval_on_selector_all(ticks, shown) == 0
    choose(page, "attention", False)
    assert page.eval_on_selector_all(ticks, shown) == L


@pytest.mark.parametrize("width", [320, 390])
def test_it_fits_a_phone_and_stands_still(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    token(page, 5).focus()
    heights = set()
    for mixer in LABELS:
        for masked in (False, True):
            choose(page, mixer, masked)
            token(page, 5).focus()
            page.keyboard.press("PageDown")
            page.keyboard.press("PageUp")
            assert page_width(page) <= width
            assert page.evaluate(SPILLED) == []
            heights.add(page.locator(".caracal-live").bounding_box()["height"])
    assert len(heights) == 1  # the page below stands still
    assert token(page, 0).bounding_box()["width"] >= 34  # wide enough for a finger


def test_it_works_in_a_sandboxed_frame_and_beside_its_twin(framed_twins):
    frame = framed_twins(viz.weighted_sum(WORDS, X))
    frame.get_by_text("average", exact=True).nth(1).click()
    second = frame.get_by_role("slider", name="content of token 1, cat", exact=True).nth(1)
    second.focus()
    second.press("ArrowUp")
    states = [data(frame, k) for k in (0, 1)]
    assert [state["mixer"] for state in states] == ["attention", "average"]
    assert states[0]["x"] == X and states[1]["x"][1] == pytest.approx(X[1] + 0.1)
    assert frame.locator("input[type=radio]:checked").count() == 2


def test_text_is_readable_in_every_theme(show_themed):
    page, paper = show_themed(viz.weighted_sum(WORDS, X))
    css = "([selector, name]) => getComputedStyle(document.querySelector(selector))[name]"
    ink, muted, heads, label, pressed, on, mark, future = (page.evaluate(css, list(pair)) for pair in [
        (".caracal-facts", "color"), (".caracal-help", "color"), ("svg .muted", "fill"),
        (".sum-mixers span", "color"), ("input:checked + span", "backgroundColor"), ("input:checked + span", "color"),
        ("svg rect[rx='1.5'][style*='--ink']", "fill"), ("svg rect[rx='1.5'][style*='--wrapped']", "fill")])
    assert min(contrast(ink, paper), contrast(label, paper), contrast(on, pressed), contrast(mark, paper)) > 7
    assert min(contrast(muted, paper), contrast(heads, paper)) > 4.5 and contrast(future, paper) > 3


@pytest.mark.parametrize("width", [390, 1000])
def test_without_its_matrix_it_shows_the_terms_of_one_output(show, width):
    page = show(viz.weighted_sum(WORDS, X, mixer="dft", row=1, matrix=False))
    page.set_viewport_size({"width": width, "height": 900})
    assert page.get_by_role("radio").count() == 0 and not page.get_by_label("causal mask").is_visible()
    assert [svg.is_visible() for svg in page.locator(".caracal-live > svg").all()] == [False, True]
    assert not page.get_by_text("of A: the weights").is_visible()
    assert "terms of output 1 from later words\n4 of 6" in facts(page)
    assert "outputs changed with “mat”\n–" in facts(page)
    drag_up(page, token(page, 5), -10, "x")
    shown = data(page)
    assert shown["x"][5] < X[5] and "outputs changed with “mat”\n6 of 6" in facts(page)
    assert_agrees(shown, tensor(X))
    low = page.eval_on_selector_all(".caracal-live > svg:nth-of-type(2) > text",
                                    "nodes => nodes.map(node => node.getBoundingClientRect().bottom)")
    box = page.locator(".caracal-live > svg").nth(1).bounding_box()
    assert max(low) <= box["y"] + box["height"]  # nothing is cut off
    assert page_width(page) <= width
    slider = page.locator("input[type=range]")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert data(page)["row"] == 2 and "terms of output 2 from later words\n3 of 6" in facts(page)


def test_the_weights_of_a_dft_of_any_length(show):
    words = [f"w{k}" for k in range(8)]
    page = show(viz.weighted_sum(words, [0.5] * 8, mixer="dft", row=7))
    t = torch.arange(8.0).double()
    assert torch.allclose(tensor(data(page)["weights"]), torch.cos(2 * math.pi * torch.outer(t, t) / 8), atol=1e-9)
    zeros = 28 - int((torch.cos(2 * math.pi * torch.outer(t, t) / 8).triu(1).abs() > 1e-9).sum())
    assert zeros > 0 and data(page)["futureAll"] == 28 - zeros
