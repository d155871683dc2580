"""The face of the book: what stands on the first screen of a page, how wide a line is, and how boxes differ."""

import re

import pytest
from figure_pages import contrast
from page_checks import DESK, PHONE, Visit
from test_pages import CLAIMS, PAGES

pytestmark = [pytest.mark.browser, pytest.mark.built]

CHAPTERS = [name for name in PAGES if name.startswith("notebooks/")] or [CLAIMS]

_TOP = "node => node.getBoundingClientRect().top + scrollY"


def test_the_ledger_is_filtered_by_verdict_and_chapter(page, site):
    Visit(page, f"{site}/{CLAIMS}")
    rows = page.locator("table.claims-ledger tbody tr")
    everything = rows.count()
    verdict, chapter = page.locator(".ledger-filter select").all()
    verdict.select_option("holds")
    kept = [row for row in rows.all() if row.is_visible()]
    assert 0 < len(kept) < everything and {row.locator(".verdict").inner_text() for row in kept} == {"holds"}
    assert page.locator(".ledger-filter output").inner_text() == f"{len(kept)} of {everything} claims"
    topics = page.locator(".ledger-topic")
    assert 0 < len([topic for topic in topics.all() if topic.is_visible()]) < topics.count()
    chapter.select_option(index=1)
    assert 0 < len([row for row in rows.all() if row.is_visible()]) < len(kept)
    page.get_by_role("link", name="Order without encodings").click()  # its rows are hidden now
    topics.first.wait_for()
    assert len([row for row in rows.all() if row.is_visible()]) == everything


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_the_landing_page_says_what_it_is_and_what_to_do(size, page, site):
    page.set_viewport_size(size)
    visit = Visit(page, f"{site}/index.html")
    assert visit.problems == []
    for words in ("Start reading", "What holds of the paper"):
        button = page.get_by_role("link", name=words)
        assert button.evaluate("node => node.getBoundingClientRect().bottom") < size["height"]
        colours = button.evaluate("n => [getComputedStyle(n).color, getComputedStyle(n).backgroundColor]")
        assert "0, 0, 0, 0" in colours[1] or contrast(*colours) >= 4.5
    assert page.locator(".cover-figure .caracal-figure[data-ready]").evaluate(_TOP) < size["height"] - 200


def test_micro_is_in_the_page_when_the_reader_asks(page, site):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    Visit(page, f"{site}/book/in_the_page.html")
    figure = page.locator(".caracal-figure[id^='caracal-why-'][data-ready]")
    figure.scroll_into_view_if_needed()
    page.wait_for_load_state("networkidle")
    assert not [url for url in asked if "/_static/micro/" in url]
    figure.get_by_role("button", name=re.compile("Load micro")).click()
    page.wait_for_function("document.querySelector('[id^=caracal-why-]').dataset.mode === 'live'", timeout=120_000)
    assert {url.rpartition("/_static/")[0] for url in asked if "/micro/" in url} == {site}


def test_the_landing_page_counts_the_ledger_and_shows_every_chapter(page, site):
    Visit(page, f"{site}/{CLAIMS}")
    verdicts = page.locator("table.claims-ledger tbody .verdict").all_inner_texts()
    Visit(page, f"{site}/index.html")
    strip = page.locator(".verdict-strip li").all_inner_texts()
    assert {words: int(count) for count, words in (line.split(maxsplit=1) for line in strip)} == {
        verdict: verdicts.count(verdict) for verdict in verdicts}
    cards = page.locator("ul.chapter-cards a")
    assert sorted(card.get_attribute("href") for card in cards.all()) == CHAPTERS
    page.locator(".verdict-strip li a").first.click()
    page.wait_for_url("**/book/claims.html#*")
    assert page.locator(".ledger-filter output").inner_text() == f"{verdicts.count('holds')} of {len(verdicts)} claims"
