"""The list of pages at the side: what comes first, what is folded, and that it names only what is there."""

import re

from page_checks import DESK, Visit
from test_pages import CLAIMS, PAGES

from caracal_book.rules.cells import number_of


def first_level(page) -> list[str]:
    return page.locator("nav.bd-links li.toctree-l1 > a").evaluate_all(
        "links => links.map(link => new URL(link.href).pathname.slice(1))")


def test_the_ledger_stands_below_the_preface(page, site):
    Visit(page, f"{site}/index.html")
    listed = first_level(page)
    assert listed.index(CLAIMS) == listed.index("book/preface.html") + 1


def test_solutions_and_rooms_are_folded(page, site):
    page.set_viewport_size(DESK)
    Visit(page, f"{site}/{CLAIMS}")
    for parent, children in (("book/solutions/index.html", "book/solutions/"), ("book/api.html", "book/api/")):
        item = page.locator(f"nav.bd-links li:has(> a[href='{parent[5:]}'])")
        inner = item.locator("li a")
        assert inner.count() == len([name for name in PAGES if name.startswith(children) and name != parent])
        assert not inner.first.is_visible()
        item.locator(".toctree-toggle").click()
        assert inner.first.is_visible()


def test_every_chapter_is_listed_once_by_its_number(page, site):
    Visit(page, f"{site}/index.html")
    chapters = [name for name in PAGES if name.startswith("notebooks/")]
    assert [name for name in first_level(page) if name.startswith("notebooks/")] == chapters
    for name in chapters:
        (title,) = page.locator(f"nav.bd-links a[href$='{name}']").all_inner_texts()
        assert re.match(rf"{number_of(name[10:])}\. ", title)
