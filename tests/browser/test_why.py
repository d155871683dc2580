"""Why a token is likely, in a real browser from a file: the recording, what is chosen in it, and the model itself."""

import re

import pytest
from engine_pages import go_live, small_model
from figure_pages import data

from caracal_book import viz
from caracal_book.viz.trace import trace

pytestmark = pytest.mark.browser

PIECES = "JSON.parse(document.querySelector('.caracal-figure').dataset.trace).pieces.length"
TEXT = "The cat and the thing"
MODEL = small_model(n_layers=3)
FIGURE = viz.why(MODEL, TEXT, name="nimble", folder="weights")


def far(found, expected) -> float:
    """How far two traces are from each other; infinitely, if one has what the other lacks."""
    if isinstance(expected, dict):
        same = expected.keys() <= found.keys()
        return max(far(found[key], value) for key, value in expected.items()) if same else float("inf")
    if isinstance(expected, list):
        same = len(found) == len(expected)
        return max((far(*pair) for pair in zip(found, expected, strict=True)), default=0) if same else float("inf")
    return abs(found - expected) if isinstance(expected, float) else 0.0 if found == expected else float("inf")


def read(page, text: str) -> dict:
    """Let the page read a sentence, and return what it found."""
    ids = MODEL.tokenizer.encode(text)
    page.get_by_label("Your sentence").fill(text)
    page.wait_for_function(f"{PIECES} === {len(ids)}")
    return data(page)["trace"]


def says(page) -> str:
    return page.locator(".why-says").inner_text()


def test_what_is_drawn_are_the_parts_of_the_score(page):
    best, layer = FIGURE.model["trace"]["next"][0], FIGURE.model["layer"]
    drawn = page.locator(".why-layers > button").evaluate_all(
        "nodes => nodes.map(node => Number(node.innerText.replace('−', '-')))")
    assert drawn == pytest.approx(best["parts"][1::2], abs=0.0051)
    unit = best["layers"][layer]["units"][0]
    values = [unit["scale"] * v * g for v, g in zip(unit["content"], unit["gate"][::-1], strict=True)]
    assert data(page)["values"] == pytest.approx(values, abs=1e-6)
    widths = page.locator(".why-terms .why-bar").evaluate_all(
        "nodes => nodes.map(node => parseFloat(getComputedStyle(node, '::before').width))")
    largest = max(values, key=abs)
    room = max(widths) / abs(largest)
    assert widths == pytest.approx([max(1, room * abs(value)) for value in values], abs=1.2) and max(widths) > 20


def test_the_model_in_the_page_finds_what_the_package_finds(weights, visit):
    page = visit(weights)
    go_live(page)
    for text in ("An ocean in the north, and then the rest of it in the south", "In"):
        assert far(read(page, text), trace(MODEL, MODEL.tokenizer.encode(text))) < 2e-4
    best = data(page)["trace"]["next"][0]["piece"]
    page.get_by_role("button", name=re.compile("Go on with")).click()
    page.wait_for_function(f"{PIECES} > {len(MODEL.tokenizer.encode('In'))}")
    assert "".join(data(page)["trace"]["pieces"]) == f"In{best}"
    page.get_by_label("Your sentence").fill("")
    page.wait_for_function("document.querySelector('.why-says').innerText === 'Write at least one character.'")
