"""What a page costs: bytes that block it, bytes and requests in all, and nothing from another host.

Counts, not times.  With formulas drawn by a script and icons from another, a chapter loaded 5.0 to 5.3 MB, of which
1.5 MB were a script that blocked.
"""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bookext.search import TEXTS
from figure_pages import data, write_page
from page_checks import PHONE, Visit
from test_pages import PAGES

from caracal_book import viz
from caracal_book.rules.drawings import share_figures
from caracal_min.export import MANIFEST

BLOCKING = 1_000           # bytes of script files that hold up a page
LARGEST = {"index": 1_000_000, "01": 1_150_000, "05": 1_450_000, "08": 1_350_000}
REQUESTS = 45
WEIGHED = {name: next((limit for key, limit in LARGEST.items() if name.split("/")[-1].startswith(key)), None)
           for name in PAGES if name == "index.html" or name.startswith("notebooks/")}
WEIGHED = {name: limit for name, limit in WEIGHED.items() if limit} or {PAGES[0]: LARGEST["index"]}


class _Scripts(HTMLParser):
    """The files of the scripts that a page waits for."""

    def __init__(self, text: str):
        super().__init__()
        self.blocking: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "script" and "src" in attributes and not {"defer", "async"} & set(attributes) \
                and attributes.get("type") != "module":
            self.blocking.append(attributes["src"])


@pytest.mark.parametrize("name", PAGES)
def test_no_script_blocks(name, book):
    path = book / name
    files = [(path.parent / urlsplit(source).path).resolve()
             for source in _Scripts(path.read_text(encoding="utf-8")).blocking]
    assert sum(file.stat().st_size for file in files) <= BLOCKING, files


@pytest.mark.parametrize("name", WEIGHED)
def test_a_page_is_light(name, page, site):
    """Bytes as they lie on the disk, before a server packs them; the whole page, scrolled to its end."""
    bodies = []
    page.on("response", lambda response: bodies.append((response.url, len(response.body()))))
    page.set_viewport_size(PHONE)
    visit = Visit(page, f"{site}/{name}")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_load_state("networkidle")
    assert visit.problems == []
    listed = sorted(((size, url.rsplit("/", 1)[1]) for url, size in bodies if not url.startswith("data:")),
                    reverse=True)
    assert len(listed) <= REQUESTS and sum(size for size, _ in listed) <= WEIGHED[name], listed[:12]
    assert not re.search("mathjax|fontawesome|thebe", " ".join(name for _, name in listed), re.IGNORECASE)


def test_no_page_loads_icons_as_a_script(book):
    assert not (book / "_static" / "vendor" / "fontawesome").exists()
    large = [path.name for path in (book / "_static").rglob("*.js") if path.stat().st_size > 500_000
             and not path.with_name(MANIFEST).exists()]  # weights, which a press loads
    assert set(large) <= {TEXTS}, "what is searched has a limit of its own, and the search alone loads it"


@pytest.mark.parametrize("name", ["index.html"])
def test_buttons_have_icons_and_names(name, page, site):
    """Every icon of the theme is drawn, and what holds nothing else has a name."""
    Visit(page, f"{site}/{name}")
    icons = page.locator("[class*='fa-']:visible").all()
    assert len(icons) >= 5
    for icon in icons:
        mask = icon.evaluate("node => getComputedStyle(node).maskImage")
        assert mask.startswith("url(") and icon.bounding_box()["width"] > 8, icon.get_attribute("class")
    for button in page.locator("button:visible").all():
        assert button.evaluate("node => (node.innerText || node.ariaLabel || node.title || '').trim()")


def test_figures_share_their_programs(open_figure, tmp_path):
    """Each part of a program stands once in a page, for figures of one kind and of others, without comments."""
    figures = [viz.sight(pattern, window=4, length=12) for pattern in ("WWWWWW", "FWFWFW")]
    figures += [viz.schedule(16, 4), viz.schedule(16, 8)]
    whole = "".join(figure.to_html() for figure in figures)
    shared = share_figures(whole)
    once = {line for line in whole.splitlines() if line.startswith(("function ", "class "))}
    assert len(once) > 15 and all(shared.count(f"{line}\n") == 1 < whole.count(line) for line in once)
    assert shared.count("<style>") == 1 and shared.count('class="caracal-still"') == 4
    assert re.search("^ *//", whole, re.MULTILINE) and not re.search("^ *//", shared, re.MULTILINE)
    page = open_figure(write_page(tmp_path, shared))
    page.wait_for_function("document.querySelectorAll('.caracal-figure[data-ready]').length === 4")
    assert [data(page, number).get("pattern") for number in (0, 1)] == ["WWWWWW", "FWFWFW"]
    assert [data(page, number).get("n") for number in (2, 3)] == [4, 8]


@pytest.mark.parametrize("name", ["drawing", *viz.engine.PARTS])
def test_a_shared_part_declares_one_name_in_a_statement(name):
    text = (Path(viz.__file__).parent / f"{name}.js").read_text(encoding="utf-8")
    declared = re.findall(r"^(?:export )?(?:const|let|var) .*", text, re.MULTILINE)
    assert [line for line in declared if not re.match(r"(export )?const \w+ = (?![^(\[{`]*, \w+ = )", line)] == []
