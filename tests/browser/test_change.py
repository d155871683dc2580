"""What a change of the text or of the model does to each prediction, in a real browser from a file."""

import re

import pytest
from engine_pages import PAGE_ONLY, go_live, small_model
from figure_pages import data, write_page
from test_access import violations

from caracal_book import viz
from caracal_book.viz.trace import compare

pytestmark = pytest.mark.browser

TEXT = "The cat and the thing"
OTHERS = ["An ocean in the north, and in it", "It is another one of the rest"]
MODEL = small_model(n_layers=3, embedding_std=0.3)  # no prediction of which is certain
FIGURE = viz.change_gates(MODEL, TEXT, OTHERS, name="nimble", folder="weights")
POINTS = viz.change_points(MODEL, TEXT, name="nimble", folder="weights")
encode = MODEL.tokenizer.encode


def says(page) -> str:
    return page.locator(".cha-says").inner_text()


def option(page, name):
    return page.get_by_role("button", name=name, exact=True)


def answered(page, pieces: int, choices: str):
    """Wait until a text of so many tokens, under some choices, is what is shown."""
    page.wait_for_function("""([pieces, choices]) => {
        const shown = document.querySelector('.caracal-figure').dataset;
        return JSON.parse(shown.pieces).length === pieces && shown.choices === choices; }""", arg=[pieces, choices])
    page.wait_for_timeout(400)
    return data(page)


def agree(found, expected, tolerance=2e-4):
    assert found["moved"] == pytest.approx(expected["moved"], abs=tolerance)
    for one, other in zip(found["bits"], expected["bits"], strict=True):
        assert one == pytest.approx(other, abs=10 * tolerance)


def test_the_recording_is_the_package_s(page):
    assert re.fullmatch(r"Mean: (\d+\.\d\d) bits a token; as trained, \1\.", says(page))
    page.get_by_role("slider").press("End")
    option(page, "mean of 2 texts").press("Enter")
    assert data(page)["choices"] == [5, 2]
    expected = compare(MODEL, (encode(TEXT), {}), (encode(TEXT), {"lags": 1, "texts": [*map(encode, OTHERS)]}))
    agree(data(page), expected, 1e-3)
    before, after = (sum(bits) / len(bits) for bits in expected["bits"])
    said = re.fullmatch(r"Mean: (\S+) bits a token; as trained, (\S+)\.", says(page)).groups()
    said = [float(number) for number in said]
    assert abs(before - after) > 0.05 and said == pytest.approx([after, before], abs=0.011)
    widths = page.locator(".cha-bars i").evaluate_all("nodes => nodes.map(node => node.getBoundingClientRect().width)")
    values = [value for pair in zip(*expected["bits"], strict=True) for value in pair]
    scale = max(widths) / max(values)
    assert widths == pytest.approx([scale * value for value in values], abs=3.2)
    page.get_by_role("button", name="Start again").click()
    assert data(page)["choices"] == [0, 0]


def test_the_model_in_the_page_finds_what_the_package_finds(weights, visit):
    page = visit(weights)
    go_live(page)
    ids = encode(OTHERS[1])
    page.get_by_label("Your sentence").fill(OTHERS[1])
    answered(page, len(ids), "[0,0]")
    for key, name, edit in (("[0,1]", "another text's", {"texts": [encode(OTHERS[0])]}),
                            ("[0,2]", "mean of 2 texts", {"texts": [*map(encode, OTHERS)]})):
        option(page, name).click()
        agree(answered(page, len(ids), key), compare(MODEL, (ids, {}), (ids, edit)))
    page.get_by_role("slider").press("End")
    agree(answered(page, len(ids), "[5,2]"), compare(MODEL, (ids, {}), (ids, edit | {"lags": 1})))
    assert [one for one in violations(page) if one[0] not in PAGE_ONLY] == []


@pytest.mark.parametrize("figure, name, edit", [
    (POINTS, "L", {"points": 1}),
    (viz.change_windows(MODEL, TEXT, name="nimble", folder="weights"), "block 2", {"off": ["blocks.2.mixer"]})])
def test_padding_and_windows_are_taken_away_as_the_package_does(figure, name, edit, visit, tmp_path):
    viz.engine.write(MODEL, tmp_path / "weights")
    write_page(tmp_path, figure.to_html())
    page = visit(tmp_path)
    ids, last = encode(TEXT), len(figure.model["controls"][0]["options"]) - 1
    for agreement in (1e-3, 2e-4):
        if name == "L":
            page.get_by_role("slider").press("End")
        else:
            option(page, name).press("Enter")
        expected = compare(MODEL, (ids, {}), (ids, edit))
        agree(answered(page, len(ids), f"[{last}]"), expected, agreement)
        assert max(abs(a - b) for a, b in zip(*expected["bits"], strict=True)) > 0.05
        if agreement > 2e-4:
            page.get_by_role("button", name="Start again").click()
            go_live(page)
