"""The search, on pages opened from a file: it quotes what it finds, and finds chapters before symbols."""

import json
from urllib.parse import quote

import pytest
from page_checks import PHONE, Visit
from test_pages import PAGES

TEXTS = "_static/search_texts.js"


@pytest.fixture
def search(page, book):
    """A function that asks a question of the search page and returns the kinds of pages found, in their order."""

    def ask(question: str) -> list[str]:
        visit = Visit(page, f"{(book / 'search.html').as_uri()}?q={quote(question)}")
        assert visit.problems == []
        return page.locator(".search-results h2").all_inner_texts()

    return ask


def results(page) -> list[tuple[str, str, list[str]]]:
    """Address, excerpt and marked words of each result that is shown."""
    return [(item.locator("a").get_attribute("href"), item.locator("p").inner_text(),
             item.locator("p mark").all_inner_texts()) for item in page.locator(".search-results > ul > li").all()]


def test_a_phrase_is_quoted_and_marked(search, page, book):
    assert search("roots of unity")[0] == "Chapters"
    address, excerpt, marked = results(page)[0]
    assert address.startswith("notebooks/02_") and set(marked) == {"roots of unity"}
    assert "roots of unity" in excerpt and 40 < len(excerpt) < 300
    page.locator(".search-results a").first.click()
    page.wait_for_url(f"**/{address}")
    assert "roots of unity" in page.locator(f"#{address.split('#')[1]}").inner_text()


def test_chapters_come_before_symbols(search, page):
    found = search("causal convolution")
    assert found == sorted(found, key=["Chapters", "Pages", "Solutions", "API"].index)
    assert found[0] == "Chapters" and found[-1] == "API"


def test_a_symbol_is_found_where_it_is_described(search, page):
    search("causal_conv_fft")
    assert "book/api/convolution.html#caracal_min.convolution.causal_conv_fft" in [found[0] for found in results(page)]


def test_words_that_stand_apart_are_all_marked(search, page):
    search("padding wrap")
    _, excerpt, marked = results(page)[0]
    assert {word.lower() for word in marked} == {"padding", "wrap"} or len(excerpt) < 300 and marked


def test_nothing_found_is_said(search, page):
    assert search("<b>zeppelin</b>") == []
    assert page.get_by_role("status").inner_text() == "Nothing was found for “<b>zeppelin</b>”."
    assert search("") == []
    assert page.locator(".book-search input").evaluate("node => node === document.activeElement")


def test_it_is_reached_from_a_page_and_fits_a_phone(page, book):
    page.set_viewport_size(PHONE)
    Visit(page, (book / "search.html").as_uri())
    page.get_by_role("searchbox", name="Words to search for").fill("window")
    page.keyboard.press("Enter")
    page.wait_for_selector(".search-results mark")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_the_texts_hold_every_page_and_are_loaded_by_the_search_alone(book):
    texts = (book / TEXTS).read_text(encoding="utf-8")
    pages = json.loads(texts.removeprefix("const SEARCH_TEXTS = ").removesuffix(";\n"))
    assert {page[0] for page in pages} == {name for name in PAGES if name not in ("404.html", "search.html")
                                           and not name.startswith("_modules")}
    assert all(sections for *_, sections in pages)
    assert len(texts) < 1_000_000
    loading = [name for name in PAGES if "search_texts.js" in (book / name).read_text(encoding="utf-8")]
    assert loading == ["search.html"] and not (book / "searchindex.js").exists()
