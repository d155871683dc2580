"""A page on paper, from the dark theme, and a page without scripts: read back, and looked at."""

import io
import re
import unicodedata

import pytest
from page_checks import DESK
from pypdf import PdfReader
from test_access import violations
from test_pages import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.built]

SHEET = {"width": 658, "height": 970}  # A4 within its margins, in pixels
MARGINS = dict.fromkeys(("top", "right", "bottom", "left"), "18mm")
# Chapters are alike on paper, so that one stands for all.
PRINTED = next((name for name in PAGES if "02_multiplying" in name), PAGES[0])

_FOLDED = """() => [...document.querySelectorAll('article details:not(.caracal-words)')]
    .map(node => [...node.querySelectorAll('p, pre')].at(-1)?.innerText ?? '').filter(Boolean)"""
_WORDS = """() => [...document.querySelectorAll('article h1, article h2')].map(node => node.innerText)"""
_WITH_LETTERS = """() => [...document.querySelectorAll('article math')]
    .filter(node => [...node.querySelectorAll('mi')].some(letter => letter.textContent.length === 1)).length"""
_CLIPPED = """() => [...document.querySelectorAll('article :is(pre, table, div.math, img, .highlight, .cell_output)')]
    .filter(node => node.checkVisibility() && node.getClientRects().length)
    .filter(node => node.scrollWidth > node.clientWidth + 1 && !['TABLE', 'IMG'].includes(node.tagName)
        || node.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(node => `${node.tagName} ${node.className} ${node.textContent.slice(0, 40)}`)"""
_TOO_TALL = """height => [...document.querySelectorAll('article :is(img, svg, .book-figure .cell_output)')]
    .map(node => node.getBoundingClientRect().height).filter(tall => tall > height)"""


def words(text: str) -> str:
    """Return a text without ligatures, and without the spaces and hyphens that a line break may have changed.

    A typeface may draw the apostrophe by the letter U+02BC, and that is then what is read back.
    """
    return re.sub(r"[\s\u00ad\u2010-]+", "", unicodedata.normalize("NFKC", text)).replace("\u02bc", "\u2019")


def test_a_page_prints_whole_and_dark_on_white(look, site):
    """Nothing is missing on paper: headings, what is folded on the screen, formulas, a still for each figure."""
    page = look(f"{site}/{PRINTED}", theme="dark")
    page.evaluate("document.fonts.ready")
    reader = PdfReader(io.BytesIO(page.pdf(format="A4", margin=MARGINS, print_background=True)))
    text = "".join(sheet.extract_text() for sheet in reader.pages)
    said, letters = words(text), sum("\U0001d400" <= character <= "\U0001d7ff" for character in text)
    page.emulate_media(media="print")
    page.set_viewport_size(SHEET)
    for part in page.evaluate(_WORDS) + page.evaluate(_FOLDED):
        assert words(part.splitlines()[0])[:30] in said, part
    assert letters >= page.evaluate(_WITH_LETTERS), "letters of formulas are read as such"
    assert page.locator(".caracal-still:visible").count() == page.locator(".caracal-figure").count()
    assert page.locator(".caracal-live:visible").count() == 0
    assert page.evaluate(_CLIPPED) == [] and page.evaluate(_TOO_TALL, SHEET["height"]) == []
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert violations(page, ["color-contrast"]) == []


def test_a_page_reads_whole_without_scripts(browser, site):
    context = browser.new_context(viewport=DESK, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site}/{PRINTED}")
    figures = page.locator(".caracal-figure").count()
    assert page.locator(".caracal-still:visible").count() == figures
    assert page.locator(".caracal-live:visible, .ledger-filter:visible").count() == 0
    formulas = page.locator("article math:visible")
    assert page.locator(".math").count() == page.locator(".math math").count()
    if formulas.count():
        assert formulas.first.bounding_box()["height"] > 8
    closed = page.locator("article details:not(details details):visible:not([open])")  # opened, one shows those in it
    for left in range(closed.count(), max(0, closed.count() - 3), -1):
        closed.first.locator("summary").first.click()
        assert closed.count() == left - 1
    context.close()
