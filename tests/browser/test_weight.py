"""What a page costs: bytes that block it, bytes and requests in all, and nothing from another host.

Counts, not times.  With formulas drawn by a script and icons from another, a chapter loaded 5.0 to 5.3 MB, of which
1.5 MB were a script that blocked.
"""

import re
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from page_checks import PHONE, Visit
from test_pages import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.built]

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


def test_no_script_blocks(book):
    for path in (book / name for name in PAGES):
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
