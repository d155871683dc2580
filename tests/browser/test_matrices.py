"""The matrix of a channel beside that of a head, in a real browser from a file: recorded, and of the reader's text."""

import math

import pytest
from engine_pages import PAGE_ONLY, go_live, small_model
from figure_pages import data
from test_access import violations

from caracal_book import viz
from caracal_book.viz.trace import trace

pytestmark = pytest.mark.browser

TEXT, OTHER = "The cat and the thing", "An ocean in the north"
MODEL = small_model(n_layers=3)
FIGURE = viz.matrices(MODEL, TEXT, OTHER, name="nimble", folder="weights")
CHANNELS = dict(FIGURE.model["channels"])


def says(page) -> str:
    return page.locator(".mat-says").inner_text()


def written(number: float) -> str:
    digits = 2 if abs(number) >= 0.1 else min(6, 1 - math.floor(math.log10(abs(number))))
    return f"{number:.{digits}f}".replace("-", "−")


def test_what_is_shown_is_the_package_s(page):
    found = trace(MODEL, MODEL.tokenizer.encode(TEXT), CHANNELS)
    state = data(page)
    assert state["gate"] == pytest.approx(found["gates"][1][0], rel=1e-3)
    assert sum(state["weights"], []) == pytest.approx(sum(found["heads"][2][0], []), abs=1e-3)
    squares = page.locator(".ins-matrix").first.locator("g rect").evaluate_all(
        "nodes => nodes.map(node => [Number(node.getAttribute('width')) + Number(node.getAttribute('stroke-width')),"
        " node.getAttribute('fill') !== 'none'])")
    length = len(state["pieces"])
    weights = [state["gate"][t - j] for t in range(length) for j in range(t + 1)]
    largest, side = max(map(abs, weights)), max(width for width, _ in squares)
    expected = [(side * (abs(w) / largest) ** 0.5, w > 0) for w in weights if side * (abs(w) / largest) ** 0.5 >= 0.5]
    assert len(squares) == pytest.approx(len(expected), abs=2)
    assert sorted(width for width, _ in squares)[-9:] == pytest.approx(sorted(w for w, _ in expected)[-9:], abs=0.02)
    assert abs(sum(filled for _, filled in squares) - sum(filled for _, filled in expected)) <= 2


def test_the_model_in_the_page_draws_the_reader_s_text(weights, visit):
    page = visit(weights)
    go_live(page)
    ids = MODEL.tokenizer.encode(OTHER)
    page.get_by_label("Your sentence").fill(OTHER)
    page.wait_for_function("n => JSON.parse(document.querySelector('.caracal-figure').dataset.gate).length === n",
                           arg=len(ids))
    expected = trace(MODEL, ids, CHANNELS)
    assert data(page)["gate"] == pytest.approx(expected["gates"][1][0], abs=2e-5)
    assert sum(data(page)["weights"], []) == pytest.approx(sum(expected["heads"][2][0], []), abs=2e-5)
    assert [one for one in violations(page) if one[0] not in PAGE_ONLY] == []
