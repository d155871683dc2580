"""The matrices of two mixers in a real browser: choosing frames, rows and columns, and what the tokens carry."""

from itertools import pairwise

import pytest
import torch
from figure_pages import contrast, data, luminance, page_width

from caracal_book import viz
from caracal_book.viz.style import dark, palette
from caracal_min.convolution import toeplitz

TEXT = "The $list$ of <names>"
L = len(TEXT)
SOURCE = torch.Generator().manual_seed(5)
MASK = torch.ones(L, L).triu(1).bool()
HEADS = {f"layer 2, head {h}": torch.randn(L, L, generator=SOURCE).masked_fill(MASK, -torch.inf).softmax(-1)
         for h in range(3)}
KERNELS = {f"layer 0, channel {c}": 0.1 * torch.randn(L, generator=SOURCE) for c in range(4)}
FIGURE = viz.mixing_matrices(TEXT, HEADS, KERNELS, row=18, column=4)


def assert_agrees_with_the_package(shown):
    A, B = list(HEADS.values())[shown["head"]], toeplitz(list(KERNELS.values())[shown["channel"]])
    t, j = shown["row"], shown["column"]
    assert torch.allclose(torch.tensor(shown["attentionRow"]), A[t, :t + 1], atol=6e-4)
    assert torch.allclose(torch.tensor(shown["fourierRow"]), B[t, :t + 1], atol=1e-5)
    assert shown["attention"] == pytest.approx(A[t, j].item(), abs=6e-4)
    assert shown["fourier"] == pytest.approx(B[t, j].item(), abs=1e-5)
    assert shown["gate"] == t - j


def heights(page, line):
    """The heights of the bars over the tokens, in pixels."""
    return torch.tensor(page.locator(".mix-room").nth(line).locator(".mix-token i").evaluate_all(
        "nodes => nodes.map(n => parseFloat(n.style.getPropertyValue('--h')))"))


def test_without_scripts_the_still_is_shown(still):
    assert len(still.get_attribute("alt")) > 60


def test_first_frame(page):
    shown = data(page)
    assert (shown["row"], shown["column"], shown["head"], shown["channel"]) == (18, 4, 0, 0)
    assert_agrees_with_the_package(shown)
    options = page.locator("select").nth(1).locator("option").all_inner_texts()
    assert options == list(KERNELS)


def test_frames_are_chosen_by_keyboard(page):
    heads, channels = page.get_by_label("attention: head"), page.get_by_label("Fourier: channel")
    heads.focus()
    page.keyboard.press("ArrowDown")
    channels.select_option("3")
    shown = data(page)
    assert (shown["head"], shown["channel"]) == (1, 3)
    assert_agrees_with_the_package(shown)


def test_sliders_stay_in_the_triangle(page):
    rows, columns = page.get_by_label("row t"), page.get_by_label("column j")
    rows.focus()
    page.keyboard.press("ArrowLeft")
    assert data(page)["row"] == 17
    rows.fill("2")
    assert (data(page)["row"], data(page)["column"]) == (2, 2)
    columns.fill("9")  # a later column takes the row along
    assert (data(page)["row"], data(page)["column"]) == (9, 9)
    assert_agrees_with_the_package(data(page))


def test_picking_an_entry_in_a_matrix(page):
    for number in (0, 1):
        matrix = page.locator(".mix-matrix").nth(number)
        matrix.scroll_into_view_if_needed()
        box = matrix.bounding_box()
        cell = box["width"] / L
        page.mouse.click(box["x"] + 3.5 * cell, box["y"] + 11.5 * cell)
        assert (data(page)["row"], data(page)["column"]) == (11, 3)
        page.mouse.click(box["x"] + 12.5 * cell, box["y"] + 5.5 * cell)  # above the diagonal
        assert (data(page)["row"], data(page)["column"]) == (5, 5)


def test_tokens_carry_the_weights_of_the_row(page):
    for line, row in ((0, "attentionRow"), (1, "fourierRow")):
        drawn, weights = heights(page, line), torch.tensor(data(page)[row]).abs()
        assert len(drawn) == L and not drawn[19:].any()
        assert torch.allclose(drawn[:19], 20 * weights / weights.max(), atol=0.06)


def test_shades_are_the_weights(page):
    page.get_by_label("attention: head").select_option("2")
    A = list(HEADS.values())[2][tuple(torch.tril_indices(L, L))]
    shades = page.eval_on_selector_all(".mix-matrix:nth-of-type(1) rect[fill-opacity]",
                                       "nodes => nodes.map(n => Number(n.getAttribute('fill-opacity')))")
    assert torch.allclose(torch.tensor(shades), A.sqrt(), atol=0.02)
    stripes = page.eval_on_selector_all(".mix-matrix path", """nodes => nodes.map(n => [
        n.getAttribute('d').split('M').length - 1, n.getAttribute('d').includes('m'),
        Number(n.getAttribute('fill-opacity'))])""")
    g = list(KERNELS.values())[0]
    for k, (cells, hollow, shade) in enumerate(stripes):
        assert cells == L - k and hollow == (g[k] < 0).item()
        assert shade == pytest.approx(abs(g[k] / g.abs().max()).item(), abs=1e-3)


def test_the_words_name_content_and_gate(page):
    page.get_by_label("row t").fill("10")
    page.get_by_label("column j").fill("3")
    words = page.locator("[aria-live]").inner_text()
    assert "token 3 “␣”" in words and "lag 10 − 3 = 7" in words and f"token 7 “{TEXT[7]}”" in words
    assert page.locator(".mix-gate").count() == 1 and page.locator(".mix-content").count() == 2


def test_the_text_is_text(page):
    assert page.locator(".mix-token names").count() == 0
    assert page.locator(".mix-room").nth(0).inner_text().replace("\n", "").endswith(TEXT.replace(" ", "␣"))
    assert "tex2jax_ignore" in page.locator(".caracal-live").get_attribute("class")


def test_words_stand_apart_and_inside_the_page(show):
    words = "The cat sat on the mat and looked at the dog.".replace(" ", "| ").split("|")
    n = len(words)
    page = show(viz.mixing_matrices(words, {"a": torch.eye(n)}, {"c": torch.ones(n)}, row=10, column=7))
    boxes = [node.bounding_box() for node in page.locator(".mix-room").nth(0).locator(".mix-token").all()]
    for box, after in pairwise(boxes):
        assert after["x"] >= box["x"] + box["width"] - 0.5 or after["y"] > box["y"]
    assert max(box["x"] + box["width"] for box in boxes) <= 360 and page_width(page) <= 360
    assert "made at token 3 “on”" in page.locator("[aria-live]").inner_text()


def test_it_fits_a_phone_and_a_desk(page):
    assert page_width(page) <= 360
    boxes = [page.locator(".mix-matrix").nth(k).bounding_box() for k in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["width"] > 140  # beside each other, on a phone too
    page.set_viewport_size({"width": 1000, "height": 900})
    page.wait_for_function("() => document.querySelector('.mix-matrix').getBoundingClientRect().width > 300")


def test_two_on_one_page_are_independent(show):
    page = show(*(viz.mixing_matrices(TEXT, HEADS, KERNELS, row=t) for t in (5, 6)))
    page.locator(".caracal-figure").nth(1).get_by_label("row t").fill("12")
    assert [data(page, k)["row"] for k in (0, 1)] == [5, 12]


def test_text_is_readable_in_every_theme(show_themed):
    page, paper = show_themed(viz.mixing_matrices(TEXT, HEADS, KERNELS, row=9))
    ink, later, key, gate = page.evaluate("""() => {
      const live = document.querySelector('.caracal-live'), css = (s) => getComputedStyle(live.querySelector(s));
      return [css('.mix-here').color, css('.mix-later').color, css('.mix-key').color,
              css('.mix-matrix path').fill];
    }""")
    orange = (dark if luminance(paper) < 0.1 else palette).gate
    assert gate == f"rgb({', '.join(str(int(orange[k:k + 2], 16)) for k in (1, 3, 5))})"
    assert contrast(ink, paper) > 7 and min(contrast(later, paper), contrast(key, paper)) > 4.5
