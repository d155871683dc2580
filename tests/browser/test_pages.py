"""Every built page, in a real browser."""

from decimal import Decimal
from pathlib import Path

import pytest
from page_checks import Visit, figure_problems, link_problems, measured_numbers, page_problems, shown_number

BOOK = Path(__file__).resolve().parents[2] / "_build" / "html"
CLAIMS = "book/claims.html"
# One entry stands in where nothing is built, so that the fixtures can say so.
PAGES = sorted(path.relative_to(BOOK).as_posix() for path in BOOK.rglob("*.html")
               if "_static" not in path.parts) or [CLAIMS]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_cleanly(name, page, site):
    assert page_problems(Visit(page, f"{site}/{name}")) == []


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("notebooks/")] or [CLAIMS])
def test_figures_react_to_the_keyboard(name, page, site, book):
    Visit(page, f"{site}/{name}")
    figures = page.locator(".caracal-figure").count()
    assert figures == (book / name).read_text(encoding="utf-8").count('class="caracal-figure"')
    assert figure_problems(page) == []


def test_a_page_loads_cleanly_from_a_file(page, book):
    visit = Visit(page, (book / CLAIMS).as_uri())
    assert visit.problems == []


def test_no_link_is_broken(book):
    pages = {path.relative_to(book).as_posix(): path.read_text(encoding="utf-8")
             for path in book.rglob("*.html") if "_static" not in path.relative_to(book).parts}
    assert link_problems(pages, lambda path: (book / path).exists()) == []


def test_numbers_of_the_ledger_are_those_that_the_chapters_print(page, site):
    Visit(page, f"{site}/{CLAIMS}")
    numbers = measured_numbers(page)
    assert numbers
    for notebook in {entry[0] for entry in numbers}:
        page.goto(f"{site}/notebooks/{notebook}.html")
        # Of folded outputs too, which have no inner text.
        printed = "\n".join(page.locator(".cell_output .output.stream").all_text_contents()).splitlines()
        for _, name, number, shown in (entry for entry in numbers if entry[0] == notebook):
            assert any(f"{line} ".startswith(f"{name} = {number} ") for line in printed), f"{name} = {number}"
            assert Decimal(shown_number(shown).replace(",", "").rstrip("%")) == Decimal(
                number.replace(",", "").rstrip("%"))


def test_ledger_and_chapters_link_to_each_other(page, site):
    Visit(page, f"{site}/{CLAIMS}")
    rows = page.locator("table.claims-ledger tbody tr").count()
    assert rows == page.locator("table.claims-ledger a[href*='#claim-']").count() > 0
    page.locator("#ledger-1 a[href*='#claim-1']").click()
    page.wait_for_url("**/notebooks/*.html#claim-1")
    assert page.locator("#claim-1.asserts-claim").count() == 1
    page.locator(".claim-backlink a[href$='#ledger-1']").click()
    page.wait_for_url("**/book/claims.html#ledger-1")
