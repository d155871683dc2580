"""The search, on pages opened from a file: it quotes what it finds, and finds chapters before symbols."""

import json
import re
from urllib.parse import quote

import pytest
from bookext.search import TEXTS
from figure_pages import page_width
from page_checks import PHONE, Visit
from test_pages import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.built]


@pytest.fixture
def search(page, book):
    """A function that asks a question of the search page and returns the addresses of what it finds, in order."""

    def ask(question: str) -> list[str]:
        visit = Visit(page, f"{(book / 'search.html').as_uri()}?q={quote(question)}")
        page.wait_for_function("/found|did not match/.test(document.querySelector('.search-summary')?.innerText)")
        assert visit.problems == []
        return page.locator("ul.search > li > a").evaluate_all("links => links.map(link => link.getAttribute('href'))")

    return ask


def test_what_is_found_is_quoted_in_order_and_led_to(search, page):
    page.set_viewport_size(PHONE)
    found = search("causal convolution")
    kinds = [0 if name.startswith("notebooks/") else 2 if name.startswith("book/api") else 1 for name in found]
    assert kinds == sorted(kinds) and {0, 2} <= {*kinds}, "chapters come before symbols"
    assert page_width(page) <= PHONE["width"]
    first = page.locator("ul.search > li").filter(has=page.locator("p.context")).first
    assert 40 < len(first.locator("p.context").inner_text()) < 300
    assert {word.lower() for word in first.locator(".highlighted").all_inner_texts()} & {"causal", "convolution"}
    page.locator("ul.search a").first.click()
    page.wait_for_url(re.compile(re.escape(found[0].split("#")[0])))
    assert page.locator(".highlighted").count()


def test_a_symbol_is_found_where_it_is_described_and_nothing_is_said(search, page):
    assert "book/api/convolution.html#caracal_min.convolution.causal_conv_fft" in search("causal_conv_fft")
    assert search("zeppelin") == []
    assert page.get_by_role("status").inner_text().startswith("Your search did not match any documents")


def test_the_texts_hold_every_page_and_are_loaded_by_the_search_alone(book):
    text = (book / "_static" / TEXTS).read_text(encoding="utf-8")
    texts = json.loads(text.removeprefix("const SEARCH_TEXTS = ").removesuffix(";\n"))
    assert {f"{name}.html" for name in texts} == {name for name in PAGES if name not in ("404.html", "search.html")
                                                  and not name.startswith("_modules")}
    assert all(texts.values()) and len(text) < 1_000_000
    loading = [name for name in PAGES if TEXTS in (book / name).read_text(encoding="utf-8")]
    assert loading == ["search.html"]
