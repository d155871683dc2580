"""A model that writes beyond its training length, with its gates whole and cut, in a real browser from a file."""

import re
from dataclasses import replace

import pytest
import torch
from engine_pages import PAGE_ONLY, go_live, small_model, wait
from figure_pages import data
from test_access import violations

from caracal_book import viz
from caracal_min import Caracal

pytestmark = pytest.mark.browser

TEXT = "The cat and the thing"
LENGTH, WORDS = 24, 90
MODEL = small_model(n_layers=3)
FIGURE = viz.remember(MODEL, TEXT, LENGTH, WORDS, name="nimble", folder="weights")
OWN = MODEL.tokenizer.encode(TEXT)
CUT = Caracal(replace(MODEL.config, gate_length=LENGTH)).eval().requires_grad_(False)
CUT.load_state_dict(MODEL.state_dict())
CUT.tokenizer = MODEL.tokenizer
SHIPPED = CUT  # as micro is: the figure, made of the model as trained, asks these weights for all gates

COSTS = [*range(1, 32), 32 + 3 * 64 * 6, *range(2, 64, 2), 64 + 3 * 128 * 7, *range(2, 64, 2), 64 + 5 * 64 * 6]


def sizes(model, ids):
    """The root mean square of each result of the last Fourier layer, by a pass over the whole text."""
    found = []
    hook = model.blocks[1].mixer.to_out.register_forward_pre_hook(lambda _, given: found.append(given[0][0]))
    model.logits(torch.tensor([ids]))
    hook.remove()
    return found[0].square().mean(-1).sqrt().tolist()


def says(page) -> str:
    return page.locator(".rem-says").inner_text()


def has(page, tokens, gate):
    page.wait_for_function("""([tokens, gate]) => { const shown = document.querySelector('.caracal-figure').dataset;
        return shown.mode === 'live' && shown.gate === `${gate}` && JSON.parse(shown.ids).length === tokens; }""",
                           arg=[tokens, gate])
    return data(page)


def test_the_recordings_are_the_package_s(page):
    for gate, model in enumerate((MODEL, CUT)):
        page.get_by_role("button", name=re.compile("cut after" if gate else "as trained")).press("Enter")
        ids = model.generate([OWN], WORDS, temperature=0.8, seed=1)[0].tolist()
        texts = ["".join(FIGURE.model["runs"][gate]["pieces"]), MODEL.tokenizer.decode(ids)]
        assert len({text.rstrip("\N{REPLACEMENT CHARACTER}") for text in texts}) == 1
        assert data(page)["sizes"] == pytest.approx(sizes(model, ids), rel=6e-3)
    whole, cut = (run["sizes"] for run in FIGURE.model["runs"])
    assert whole[:LENGTH] == pytest.approx(cut[:LENGTH], rel=6e-3) and whole[-1] > 1.05 * cut[-1]


def test_the_model_in_the_page_writes_as_the_package_does_with_its_gates_whole_and_cut(weights, visit):
    page = visit(weights)
    go_live(page)
    for gate, model in enumerate((MODEL, CUT)):
        page.get_by_role("button", name=re.compile("cut after" if gate else "as trained")).click()
        ids = has(page, len(OWN), gate)["ids"]
        assert ids == OWN and data(page)["sizes"] == pytest.approx(sizes(model, OWN), rel=1e-3)
        page.get_by_role("button", name="Write").click()
        # On a machine with other work, a click from here could come when the last token is written.
        page.wait_for_function("""Number(document.querySelector('.caracal-figure').dataset.n) > 80 && (
            [...document.querySelectorAll('button')].find((button) => button.textContent === 'Stop').click(), true)""")
        wait(page, "live")
        shown = data(page)
        assert len(shown["ids"]) > 80 and shown["sizes"] == pytest.approx(sizes(model, shown["ids"]), rel=1e-3)
        page.wait_for_timeout(300)
        assert data(page)["ids"] == shown["ids"], "it has stopped"
        assert shown["costs"][:96] == pytest.approx(COSTS[:len(shown["ids"])])
        assert re.search(r"This token took \d+ ms\.", says(page))
        assert page.get_by_text("Write with the other gates, too").count() == 1 - gate
        page.get_by_role("button", name="Next token").click()
        assert has(page, len(shown["ids"]) + 1, gate)["ids"][:-1] == shown["ids"]
    assert [one for one in violations(page) if one[0] not in PAGE_ONLY] == []
    page.get_by_role("button", name="as trained").click()
    page.get_by_label("Your beginning").fill("An ocean")
    assert has(page, len(ocean := MODEL.tokenizer.encode("An ocean")), 0)["ids"] == ocean
