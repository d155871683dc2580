"""The checks of the pages themselves: each finds a fault that was planted."""

import pytest
from page_checks import Visit, figure_problems, link_problems, page_problems

pytestmark = pytest.mark.browser

CLEAN = "<!doctype html><html lang='en'><link rel='icon' href='data:,'><title>A page</title><p>Text.</p>"
FIGURE = """<div class="caracal-figure"><input type="range" min="0" max="9" value="5" id="slider"><b id="out">5</b>
</div><script>document.getElementById("slider").oninput = %s</script>"""


@pytest.fixture
def problems(tmp_path, serve, page):
    """A function that serves a page with the given body and returns the problems found on it."""
    address = serve(tmp_path)

    def find(body: str) -> list[str]:
        (tmp_path / "index.html").write_text(CLEAN + body, encoding="utf-8")
        visit = Visit(page, f"{address}/index.html")
        page.wait_for_timeout(200)
        return page_problems(visit) + figure_problems(page)

    return find


@pytest.mark.parametrize("body", [
    "<img alt='A red dot' src='data:image/svg+xml,<svg xmlns=\"http://www.w3.org/2000/svg\"/>'>",
    "<div style='overflow-x: auto'><div style='width: 900px'>x</div></div>",
    FIGURE % "e => { document.getElementById('out').textContent = e.target.value }",
])
def test_a_clean_page_has_no_problems(body, problems):
    assert problems(body) == []


@pytest.mark.parametrize("body, says", [
    ("<script>console.error('broken')</script>", "console error: broken"),
    ("<script>nothing.here()</script>", "page error"),
    ("<script src='https://cdn.example.org/x.js'></script>", "request to another host: https://cdn.example.org/x.js"),
    ("<script src='missing.js'></script>", "missing file"),
    ("<img alt='A red dot' src='missing.png'>", "picture does not load: missing.png"),
    ("<span class='math'><code class='formula-error'>\\foo</code></span>", "formula not read: \\foo"),
    ("<span class='math'>\\(x\\)</span>", "formula not drawn: \\(x\\)"),
    ("<img src='data:,' alt='../_images/5d41402abc4b2a76b9719d911017c592.png'>", "is not a description"),
    ("<div style='width: 600px'>x</div>", "wider than a phone: 6"),
    ("<div class='caracal-figure'><button>Press</button></div>", "does not react to the keyboard"),
])
def test_a_planted_fault_is_found(body, says, problems):
    found = problems(body)
    assert any(says in problem for problem in found), found


@pytest.mark.parametrize("link, says", [
    ("b.html#there", None), ("file.zip", None), ("https://example.org/x", None),
    ("b.html#gone", "nothing has that id"), ("gone.html", "does not exist"),
])
def test_links(link, says):
    pages = {"a.html": f"<a href='{link}'>x</a>", "b.html": "<p id='there'>",
             "sub/c.html": "<a href='../a.html'>x</a>"}
    found = link_problems(pages, lambda path: path == "file.zip")
    assert len(found) == (says is not None)
    assert all(problem.startswith(f"a.html: link to {link},") and says in problem for problem in found)
