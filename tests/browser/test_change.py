"""What a change of the text or of the model does to each prediction, in a real browser from a file."""

import math
import re
from contextlib import nullcontext

import pytest
import torch
from engine_pages import PAGE_ONLY, go_live, small_model
from figure_pages import data, write_page
from test_access import violations

from caracal_book import viz
from caracal_book.experiments.nine_numbers import weights_and_sum
from caracal_book.experiments.surgery import gate_as, mean_gates
from caracal_book.fineweb import TRAIN
from caracal_book.viz import trace
from caracal_book.web_export import dequantize_rows, quantize_rows
from caracal_min.data.batches import sequential_windows, tokens_of

pytestmark = pytest.mark.browser

TEXT = "The cat and the thing"
OTHER, OWN = "An ocean in the north, and in it", "It is another one of the rest"
LONG = " and ".join([TEXT, OTHER, OWN] * 2)
MODEL = small_model(n_layers=3, embedding_std=0.3, init_std=0.25)  # no prediction of which is certain
FIGURE = viz.change_gates(MODEL, TEXT, OTHER, name="nimble", folder="weights")
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


def compare(*takes):
    return trace.compare(*(trace.read(MODEL, *take) for take in takes))


def agree(found, expected, tolerance=2e-4):
    assert found["moved"] == pytest.approx(expected["moved"], abs=tolerance)
    for one, other in zip(found["bits"], expected["bits"], strict=True):
        assert one == pytest.approx(other, abs=10 * tolerance)


def test_the_recording_is_the_package_s(page):
    assert re.fullmatch(r"Mean: (\d+\.\d\d) bits a token; as trained, \1\.", says(page))
    page.get_by_role("slider").press("End")
    option(page, "another text's").press("Enter")
    assert data(page)["choices"] == [5, 1]
    expected = compare((encode(TEXT), {}), (encode(TEXT), {"lags": 1, "texts": [encode(OTHER)]}))
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
    ids, edit = encode(OWN), {"texts": [encode(OTHER)]}
    page.get_by_label("Your sentence").fill(OWN)
    answered(page, len(ids), "[0,0]")
    option(page, "another text's").click()
    agree(answered(page, len(ids), "[0,1]"), compare((ids, {}), (ids, edit)))
    page.get_by_role("slider").press("End")
    agree(answered(page, len(ids), "[5,1]"), compare((ids, {}), (ids, edit | {"lags": 1})))
    assert [one for one in violations(page) if one[0] not in PAGE_ONLY] == []


@pytest.fixture(scope="module")
def means():
    """Mean gates of training text by the experiments, `[D, L]`, in eight bits and with one number for the late lags."""
    length = MODEL.config.max_positions
    tokens = tokens_of(TRAIN, MODEL.tokenizer, max_tokens=150_000, progress=False)
    found = []
    for m in mean_gates(MODEL, sequential_windows(tokens, length, 24)[:, :-1]):
        stored = torch.cat([m[:, :63], m[:, 63:].mean(1, keepdim=True)], 1)
        rounded = dequantize_rows(quantize_rows({"m": stored}))["m"]
        found.append(rounded[:, torch.arange(length).clamp(max=63)])
    return found


def cost(ids, ablation) -> tuple[list[float], str]:
    """What each token costs the package under an ablation, in bits, and what it writes next."""
    with ablation:
        log, more = MODEL.logits(torch.tensor([ids]))[0].log_softmax(-1), [*ids]
        while len(more) < len(ids) + 8:  # all anew: an ablation is of the parallel pass
            more.append(MODEL.logits(torch.tensor([more]))[0, -1].argmax().item())
    return (-log[range(len(ids) - 1), ids[1:]] / math.log(2)).tolist(), MODEL.tokenizer.decode(more[len(ids):])


@pytest.mark.parametrize("text", ["It is", LONG])
def test_the_mean_gate_and_nine_numbers_are_those_of_the_experiment(text, means, weights, visit):
    def few(count):
        return cost(ids, gate_as(MODEL, [weights_and_sum(m, count, m.shape[1]) for m in means]))

    ids, page = encode(text), visit(weights)
    assert len(encode(LONG)) > 63
    go_live(page)
    page.get_by_label("Your sentence").fill(text)
    answered(page, len(ids), "[0,0]")
    trained, before = cost(ids, nullcontext())
    for key, name, count in (("[0,2]", "mean gate", 63), ("[0,3]", "nine numbers", 8)):
        option(page, name).press("Enter")
        found, (bits, after) = answered(page, len(ids), key), few(count)
        assert found["bits"] == [pytest.approx(trained, abs=2e-3), pytest.approx(bits, abs=2e-3)]
        assert found["written"] == [before, after] and before != after
        said = [trace.shown(text).removeprefix("+") for text in (after, before)]
        assert f"nimble writes “{said[0]}”; as trained, “{said[1]}”." in page.locator(".caracal-live").inner_text()
        if len(ids) > count:
            assert bits != pytest.approx(few(count - 1)[0], abs=2e-2), "one weight less is another kernel"


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
        expected = compare((ids, {}), (ids, edit))
        agree(answered(page, len(ids), f"[{last}]"), expected, agreement)
        assert max(abs(a - b) for a, b in zip(*expected["bits"], strict=True)) > 0.05
        if agreement > 2e-4:
            page.get_by_role("button", name="Start again").click()
            go_live(page)
