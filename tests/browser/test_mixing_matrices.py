"""The matrices of two mixers in a real browser: choosing frames, rows and columns, and what the tokens carry."""

import pytest
import torch
from figure_pages import data

from caracal_book import viz
from caracal_min.convolution import toeplitz

pytestmark = pytest.mark.browser

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


def test_frames_are_chosen_by_keyboard(page):
    heads, channels = page.get_by_label("attention: head"), page.get_by_label("Fourier: channel")
    heads.focus()
    page.keyboard.press("ArrowDown")
    channels.select_option("3")
    shown = data(page)
    assert (shown["head"], shown["channel"]) == (1, 3)
    assert_agrees_with_the_package(shown)


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
