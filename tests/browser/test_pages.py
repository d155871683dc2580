"""Every built page, in a real browser: opened once on a desk, and asked everything; a chapter once on a phone, too."""

from decimal import Decimal
from pathlib import Path

import figure_checks as of_figures
import page_checks as ask
import pytest
from page_checks import DESK, PHONE, Visit
from test_access import OF_COLOUR, show_theme, violations

from caracal_book.rules.cells import heading_of, number_of
from caracal_book.rules.ledger import read_ledger

pytestmark = [pytest.mark.browser, pytest.mark.built]

SCREEN = {"width": 390, "height": 780}
ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "_build" / "html"
VERDICTS = {claim.id: claim.verdict for claim in read_ledger(ROOT / "book" / "claims.yml")}
CLAIMS, MINIMAL = "book/claims.html", ("book/api/minimal.html", "_modules/caracal_min/minimal.html")
# One entry stands in where nothing is built, so that the fixtures can say so.
HTML = {path.relative_to(BOOK).as_posix(): path for path in BOOK.rglob("*.html") if "_static" not in path.parts}
MOVED = sorted(name for name, path in HTML.items() if 'http-equiv="refresh"' in path.read_text("utf-8")[:400])
PAGES = sorted(HTML.keys() - set(MOVED)) or [CLAIMS]

CHAPTERS = [name for name in PAGES if name.startswith("notebooks/")] or [CLAIMS]
# The pages of source code are written by one template: one of them stands for all, beside the one that readers print.
SOURCES = [name for name in PAGES if name.startswith("_modules/")]
ASKED = [name for name in PAGES if name not in SOURCES[1:] or name in MINIMAL]
OF_A_KIND = ("index.html", CLAIMS, CHAPTERS[0], "book/api/minimal.html", *SOURCES[:1])


@pytest.mark.parametrize("name", ASKED)
def test_a_page_on_a_desk(name, look, site, book):
    """What depends on colour is asked in both themes, everything else once a width: a theme changes no element.

    What a phone alone shows is the same on every page, so that its colours are asked of one page of a kind.
    """
    page = look()
    asked = {"loading": ask.page_problems(Visit(page, f"{site}/{name}"))}
    if name in CHAPTERS:
        asked["face"] = of_figures.face_problems(page, heading_of(name[10:]), VERDICTS)
    if name not in SOURCES[1:]:
        asked["axe"] = violations(page)
        show_theme(page, "dark")
        asked["axe, dark"] = violations(page, OF_COLOUR)
        page.set_viewport_size(PHONE)
        page.reload()  # what scrolls is put within reach of the keyboard when a page is loaded
        if name in OF_A_KIND:
            asked["axe, dark, phone"] = violations(page, OF_COLOUR)
        show_theme(page, "light")
        asked["axe, phone"] = violations(page, but=[] if name in OF_A_KIND else OF_COLOUR)
    if name in (*CHAPTERS, *MINIMAL):
        page.set_viewport_size(DESK)
        page.reload()
    if name in CHAPTERS:
        shown = page.locator(".caracal-figure").count()
        written = (book / name).read_text(encoding="utf-8").count('class="caracal-figure"')
        asked["figures are shown"] = [] if shown == written else [f"{shown} of {written}"]
        ask.unfold(page)  # a figure in an answer is asked, too
        asked["keyboard"] = ask.figure_problems(page)
        for theme in ("dark", "light"):
            show_theme(page, theme)
            asked[f"frames, {theme}"] = of_figures.frame_problems(page)
        asked["captions"] = of_figures.caption_problems(page, number_of(name[10:]))
        asked["plots"] = of_figures.plot_problems(page)
    if name in (*CHAPTERS, *MINIMAL):
        asked["code"] = of_figures.code_problems(page)
    assert {question: found for question, found in asked.items() if found} == {}


@pytest.fixture
def phone(browser):
    """A page on a phone, which is touched and has no keys."""
    context = browser.new_context(viewport=SCREEN, has_touch=True, is_mobile=True, reduced_motion="reduce")
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_on_a_phone(name, phone, site):
    Visit(phone, f"{site}/{name}")
    assert of_figures.screen_problems(phone, SCREEN["height"]) == []


def test_a_page_loads_cleanly_from_a_file(page, book):
    visit = Visit(page, (book / CLAIMS).as_uri())
    assert visit.problems == []


def test_no_link_is_broken(book):
    pages = {path.relative_to(book).as_posix(): path.read_text(encoding="utf-8")
             for path in book.rglob("*.html") if "_static" not in path.relative_to(book).parts}
    assert ask.link_problems(pages, lambda path: (book / path).exists()) == []
    assert [name for name, text in pages.items() if "widget-view" in text] == [], "no kernel runs in a page"


def test_an_old_address_leads_to_the_new_page(page, site):
    for name in MOVED:
        page.goto(f"{site}/{name}")
        page.wait_for_url(lambda url, name=name: not url.endswith(name))
        assert page.url.removeprefix(f"{site}/") in CHAPTERS


def test_numbers_of_the_ledger_are_those_that_the_chapters_print(page, site):
    Visit(page, f"{site}/{CLAIMS}")
    numbers = ask.measured_numbers(page)
    assert numbers
    for notebook in {entry[0] for entry in numbers}:
        page.goto(f"{site}/notebooks/{notebook}.html")
        # Of folded outputs too, which have no inner text.
        printed = "\n".join(page.locator(".cell_output .output.stream").all_text_contents()).splitlines()
        for _, name, number, shown in (entry for entry in numbers if entry[0] == notebook):
            assert any(f"{line} ".startswith(f"{name} = {number} ") for line in printed), f"{name} = {number}"
            assert Decimal(ask.shown_number(shown).replace(",", "").rstrip("%")) == Decimal(
                number.replace(",", "").rstrip("%"))


def test_every_chapter_is_listed_once_by_its_number(page, site):
    Visit(page, f"{site}/index.html")
    listed = page.locator("nav.bd-links li.toctree-l1 > a").evaluate_all(
        "links => links.map(link => new URL(link.href).pathname.slice(1))")
    chapters = [name for name in listed if name.startswith("notebooks/")]
    assert sorted(chapters) == CHAPTERS
    assert [number_of(name[10:].removesuffix(".html")) for name in chapters] == [*map(str, range(1, 12)), *"ABC", "12"]
    for name in CHAPTERS:
        (title,) = page.locator(f"nav.bd-links a[href$='{name}']").all_inner_texts()
        assert title.startswith(f"{number_of(name[10:])}. ")


def test_ledger_and_chapters_link_to_each_other(page, site):
    Visit(page, f"{site}/{CLAIMS}")
    rows = page.locator("table.claims-ledger tbody tr").count()
    assert rows == page.locator("table.claims-ledger a[href*='#claim-']").count() > 0
    page.locator("#ledger-1 a[href*='#claim-1']").click()
    page.wait_for_url("**/notebooks/*.html#claim-1")
    assert page.locator("#claim-1.asserts-claim").count() == 1
    page.locator(".claim-backlink a[href$='#ledger-1']").click()
    page.wait_for_url("**/book/claims.html#ledger-1")
