"""Why a token is likely, in a real browser from a file: the recording, what is chosen in it, and the model itself."""

import re

import pytest
from engine_pages import PAGE_ONLY, go_live, rounded, small_model
from figure_pages import data, least_contrast, page_width, write_page
from test_access import violations
from test_matrices import written

from caracal_book import viz
from caracal_book.viz.engine import write
from caracal_book.viz.trace import shown, trace

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


def test_without_scripts_the_still_is_shown(still):
    said = still.get_attribute("alt")
    best = FIGURE.model["trace"]["next"][0]
    assert said.startswith(f"After “{TEXT}” nimble finds “{shown(best['piece'])}” likeliest, ")
    assert "block 2, MLP " in said and "Its logit is " in said and "A button loads the model's weights, 0." in said


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


def test_a_product_is_said_with_its_two_tokens(page):
    length, layer = len(FIGURE.model["trace"]["pieces"]), FIGURE.model["layer"]
    unit = FIGURE.model["trace"]["next"][0]["layers"][layer]["units"][0]
    page.get_by_role("slider", name=re.compile("tokens back")).focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    lag = length - 2
    assert f"(1) has the content {unit['content'][1]:.2f}".replace("-", "−") in says(page)
    assert re.search(rf"\({lag}\) the gate {written(unit['gate'][lag])}\. .* \(how channel {unit['name']} counts for “",
                     says(page))
    marks = page.locator(".ins-text span").evaluate_all("nodes => nodes.map(node => node.className)")
    assert "ins-content" in marks[1] and "ins-gate" in marks[lag] and "ins-result" in marks[-1]
    page.locator(".why-terms > div").nth(1).click()
    assert data(page)["lag"] == lag + 1 and "(0) has the content" in says(page)


def test_candidate_layer_and_part_are_chosen_by_key(page):
    candidate = page.locator(".why-next button").nth(2)
    candidate.press("Enter")
    assert data(page)["candidate"] == 2 and candidate.get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name=re.compile("block 2, attention")).press("Enter")
    page.get_by_role("button", name="all", exact=True).press("Enter")
    found = FIGURE.model["trace"]["next"][2]
    assert data(page)["values"] == pytest.approx(found["layers"][2]["terms"])
    page.get_by_role("button", name=re.compile("head")).first.press("Enter")
    assert "gives “" in says(page) and data(page)["unit"] == 1


def test_a_press_on_the_matrix_chooses_a_token(page):
    board, length = page.locator(".ins-matrix"), len(FIGURE.model["trace"]["pieces"])
    wide = board.bounding_box()["width"] / 340
    board.click(position={"x": (62 + 2.5 * 278 / length) * wide, "y": (length - 0.5) * 278 / length * wide})
    assert data(page)["lag"] == length - 3
    board.click(position={"x": (62 + 1.5 * 278 / length) * wide, "y": (length - 1.5) * 278 / length * wide})
    assert data(page)["lag"] == length - 3, "an entry of an earlier row is no part of this logit"
    assert page.locator(".ins-matrix g rect").count() > length


def test_it_fits_a_phone(page):
    assert page_width(page) <= 360


def test_text_is_readable_in_every_theme(show_themed):
    page, paper = show_themed(FIGURE)
    assert least_contrast(page, paper, ".why-says", ".why-next b", ".why-v", ".why-head span", ".ins-text span") > 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_in_any_state(theme, weights, visit):
    page = visit(weights)
    page.emulate_media(color_scheme=theme)
    found = violations(page)
    go_live(page)
    read(page, "An ocean")
    found += violations(page)
    assert [one for one in found if one[0] not in PAGE_ONLY] == []


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


def test_going_on_takes_any_token_as_it_is(visit, tmp_path):
    """A line end, half a character and the end of a text, none of which a field for text can hold."""
    model, words = small_model(n_layers=3), MODEL.tokenizer
    wanted = [words.encode("\n")[0], words.encode("’")[0], words.end_of_text]
    model.norm.bias += 80 * model.embedding.weight[wanted].pinverse().sum(1)  # 80 more for the logit of each
    write(rounded(model), tmp_path / "weights")
    write_page(tmp_path, viz.why(model, TEXT, name="nimble", folder="weights").to_html())
    page, ids = visit(tmp_path), words.encode("In")
    go_live(page)
    read(page, "In")
    for taken in wanted:
        candidates = [candidate["id"] for candidate in data(page)["trace"]["next"]]
        page.locator(".why-next button").nth(candidates.index(taken)).click()
        page.get_by_role("button", name=re.compile("Go on with")).click()
        ids = [*ids, taken]
        page.wait_for_function(f"{PIECES} === {len(ids)}")
        assert far(data(page)["trace"], trace(model, ids)) < 2e-4
    assert page.get_by_label("Your sentence").input_value() == "In\N{REPLACEMENT CHARACTER}<|endoftext|>"


@pytest.mark.parametrize("changes", [dict(pre_conv=False, gate="single_stage", gate_length=3), dict(n_heads=1),
                                     dict(positional_encoding="learned", fourier_per_attention=None)])
def test_other_configurations_agree(changes, visit, tmp_path):
    model = small_model(n_layers=3, **changes)
    write(model, tmp_path / "weights")
    write_page(tmp_path, viz.why(model, TEXT, name="nimble", folder="weights").to_html())
    page = visit(tmp_path)
    go_live(page)
    text = "An ocean in the north"
    assert far(read(page, text), trace(model, model.tokenizer.encode(text))) < 2e-4


def test_no_text_is_refused():
    with pytest.raises(ValueError, match="give at least one character"):
        viz.why(MODEL, "")
