"""A sentence and what a model goes on with, in a real browser from a file: the recording, and the model itself."""

import json
import re

import pytest
import torch
from engine_pages import go_live, small_model, wait
from figure_pages import data, write_page

from caracal_book import viz
from caracal_book.viz.engine import write

pytestmark = pytest.mark.browser

TEXT = "The cat and the thing"
MODEL = small_model(n_layers=3)
FIGURE = viz.continuation(MODEL, TEXT, name="nimble", words=12, folder="weights")
OWN = MODEL.tokenizer.encode(TEXT)


def shown_next(page) -> list[tuple[str, float]]:
    return [(piece, p) for piece, p in data(page)["next"]]


def likeliest(ids: list[int], temperature: float = 0.8) -> list[tuple[str, float]]:
    """The five likeliest tokens after some ids, by the package."""
    found = (MODEL.logits(torch.tensor([ids]))[0, -1] / (temperature or 1)).softmax(-1).topk(5)
    return [*zip([MODEL.tokenizer.decode([i]) for i in found.indices.tolist()], found.values.tolist(), strict=True)]


def agrees(page, ids: list[int], temperature: float = 0.8) -> bool:
    found, expected = shown_next(page), likeliest(ids, temperature)
    return [w for w, _ in found] == [w for w, _ in expected] and \
        all(abs(a - b) < 2e-4 for (_, a), (_, b) in zip(found, expected, strict=True))


def load(page):
    go_live(page)
    page.wait_for_function("document.querySelector('.caracal-figure').dataset.ids !== '[]'")


def has_tokens(page, count):
    page.wait_for_function("n => JSON.parse(document.querySelector('.caracal-figure').dataset.ids).length === n",
                           arg=count)


def test_the_recording_is_the_package_s(page):
    ids = [*OWN]
    generated = MODEL.generate([OWN], 12, temperature=0.8, seed=1, stop=MODEL.tokenizer.end_of_text)[0].tolist()
    for n in range(len(FIGURE.model["steps"])):
        assert data(page)["n"] == n and "".join(data(page)["pieces"]) == MODEL.tokenizer.decode(ids)
        assert agrees(page, ids)
        ids = generated[:len(ids) + 1]
        if n < 12:
            page.get_by_role("button", name="Next token").click()
    assert n == 12 and page.get_by_role("button", name="Next token").is_disabled()


def test_the_model_in_the_page_is_the_package_s(weights, visit):
    page = visit(weights)
    load(page)
    assert data(page)["ids"] == OWN and agrees(page, OWN)
    page.get_by_label("Your beginning").fill("An ocean in the ")
    ids = MODEL.tokenizer.encode("An ocean in the ")
    page.wait_for_function("ids => document.querySelector('.caracal-figure').dataset.ids === ids",
                           arg=json.dumps(ids, separators=(",", ":")))
    assert agrees(page, ids)
    page.locator(".con-next button").nth(1).click()
    has_tokens(page, len(ids) + 1)
    assert agrees(page, data(page)["ids"]) and data(page)["own"] == len(ids)
    page.get_by_label("temperature").fill("0")
    page.wait_for_function("JSON.parse(document.querySelector('.caracal-figure').dataset.next)[0][1] === 1")
    assert [p for _, p in shown_next(page)] == [1, 0, 0, 0, 0]
    assert page.locator(".con-next u").all_inner_texts() == ["100 %", *["0 %"] * 4]
    assert page.get_by_text("temperature: 0.0, always the likeliest").is_visible()
    page.get_by_role("button", name="Write").click()
    wait(page, "live")
    written = data(page)["ids"]
    start = torch.tensor([written[:len(ids) + 1]])
    stop = MODEL.tokenizer.end_of_text
    expected = MODEL.generate(start, 40, temperature=0.0, stop=stop)[0].tolist()
    assert written == [i for i in expected if i != stop]
    assert re.search(r"Live on this computer\. \d+ tokens a second", page.locator(".con-says").inner_text())


def test_without_a_worker_the_page_s_own_thread_writes_in_slices(weights, visit):
    page = visit(weights, "delete globalThis.Worker;")
    load(page)
    assert agrees(page, OWN) and "on the page's own thread" in page.locator(".con-says").inner_text()


def test_what_does_not_arrive_is_said_and_tried_again(weights, visit, tmp_path):
    write(MODEL, tmp_path / "weights")
    write_page(tmp_path, FIGURE.to_html())
    lost, kept = tmp_path / "weights" / "part2.js", (tmp_path / "weights" / "part2.js").read_text(encoding="utf-8")
    lost.unlink()
    page = visit(tmp_path, errors=True)
    says = page.locator(".con-says")
    page.get_by_role("button", name=re.compile("Load")).click()
    wait(page, "failed")
    assert says.inner_text() == "Part 3 did not arrive. The recording still works."
    page.get_by_role("button", name="Next token").click()
    assert data(page)["n"] == 1
    lost.write_text(kept.replace("A", "B", 1), encoding="utf-8")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_function("document.querySelector('.con-says').innerText.includes('damaged')")
    lost.write_text(kept, encoding="utf-8")
    page.get_by_role("button", name="Try again").click()
    wait(page, "live")
