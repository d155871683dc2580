"""What a page costs: bytes that block it, bytes and requests in all, and nothing from another host.

Counts, not times.  With formulas drawn by a script and icons from another, a chapter loaded 5.0 to 5.3 MB, of which
1.5 MB were a script that blocked.
"""

import re
from urllib.parse import urlsplit

import pytest
from page_checks import PHONE, Visit
from test_pages import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.built]

BLOCKING = 1_000           # bytes of script files that hold up a page
LARGEST, REQUESTS = 1_450_000, 45
HEAVIEST = next((name for name in PAGES if name.startswith("notebooks/05")), PAGES[0])

# Scripts that a page waits for.
_BLOCKING = re.compile(r"""<script\b(?![^>]*(?:\bdefer|\basync|type="module"))[^>]*\bsrc="([^"]+)\"""")


def test_no_script_blocks(book):
    for path in (book / name for name in PAGES):
        files = [(path.parent / urlsplit(source).path).resolve()
                 for source in _BLOCKING.findall(path.read_text(encoding="utf-8"))]
        assert sum(file.stat().st_size for file in files) <= BLOCKING, files


def test_the_heaviest_chapter_is_light(page, site):
    """Bytes as they lie on the disk, before a server packs them; the whole page, scrolled to its end."""
    bodies = []
    page.on("response", lambda response: bodies.append((response.url, len(response.body()))))
    page.set_viewport_size(PHONE)
    visit = Visit(page, f"{site}/{HEAVIEST}")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_load_state("networkidle")
    assert visit.problems == []
    listed = sorted(((size, url.rsplit("/", 1)[1]) for url, size in bodies if not url.startswith("data:")),
                    reverse=True)
    assert len(listed) <= REQUESTS and sum(size for size, _ in listed) <= LARGEST, listed[:12]
    assert not re.search("mathjax|fontawesome|thebe", " ".join(name for _, name in listed), re.IGNORECASE)
