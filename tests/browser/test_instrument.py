"""What the figures with a model share, in a real browser from a file: what is said while the model is asked."""

import re

import pytest
from engine_pages import go_live
from figure_pages import write_page
from figures import model

from caracal_book import viz
from caracal_book.viz.engine import write

pytestmark = pytest.mark.browser

# What the page asks its worker waits in `held`, once that is a list.
HOLD = """
const Own = globalThis.Worker;
globalThis.Worker = class extends Own {
  postMessage(message) {
    if (globalThis.held && message.kind !== "stop") held.push(() => super.postMessage(message));
    else super.postMessage(message);
  }
};"""
DIMMED = """nodes => nodes.map(node =>
    [node.getAttribute('aria-busy') === 'true', getComputedStyle(node).opacity < 0.5])"""


@pytest.fixture
def page(visit, tmp_path):
    write(model(), tmp_path / "weights")
    write_page(tmp_path, viz.continuation(model(), "The cat", name="nimble", words=4, folder="weights").to_html())
    return visit(tmp_path, HOLD)


def says(page):
    return page.locator("p[class$='-says']").inner_text()


def settled(page):
    page.wait_for_function("!document.querySelector('[aria-busy=\"true\"]')")


def own(page):
    return page.get_by_label(re.compile("Your (sentence|beginning)"))


def states(page):
    return {tuple(state) for state in page.locator("[aria-busy]").evaluate_all(DIMMED)}


def test_what_is_not_of_the_sentence_yet_is_dimmed_and_never_said(page):
    go_live(page)
    settled(page)
    assert states(page) == {(False, False)} and not re.search("Comput|Write at", says(page))
    page.evaluate("window.held = []")
    own(page).fill("An ocean")
    assert says(page) == "Computing …" and states(page) == {(True, True)}
    page.wait_for_timeout(1200)
    assert says(page) == page.get_by_role("status").inner_text() == "Computing …"
    page.evaluate("held.splice(0).forEach(send => send())")
    settled(page)
    assert states(page) == {(False, False)} and says(page) != "Computing …"
