"""The book's Sphinx extension: small books built with it, and its parts that need no build."""

import pytest

STEM = "04_causal_convolution"
LEDGER = """
Speed:
- id: 1
  paper: Section 1
  says: It is $N=2L$.
  verdict: holds under a condition
  condition: Both are $L$ long.
  found: "It is {measured}`04_causal_convolution: points`, with {measured}`04_causal_convolution: leak`."
  more: It is proved.
  notebook: 04_causal_convolution
"""
TEXT = """2047<!-- = points -->, see [claim 1](../book/claims.md)

> **What the paper says** (Section 1): it is so. **What we found:** it holds under a condition
> ([claim 1](../book/claims.md)).

## Exercises
"""
SOURCE = 'points = 2047\nprint(f"points = {points}\\nleak = 3.1e-06")\nassert points'


@pytest.fixture
def build(build_book, make_notebook, make_code, root):
    """A function that builds a book of one notebook and one ledger; returns warnings and pages by name."""

    def run(text=TEXT, ledger=LEDGER, tags=("claim-1",), mode="off", also="", below=()):
        prints = f"points = 2047\nleak = 3.1e-06\n{also}" if mode == "off" else None
        source = f"{SOURCE}\nprint({also!r})" if also else SOURCE
        notebook = make_notebook(text, make_code(source, tags=list(tags), prints=prints), *below,
                                 setup=False)
        ledger_page = (root / "book" / "claims.md").read_text(encoding="utf-8")
        files = {"index.md": f"# Book\n\n```{{toctree}}\nnotebooks/{STEM}\nbook/claims\n```\n",
                 f"notebooks/{STEM}.ipynb": notebook, "book/claims.yml": ledger,
                 "book/claims.md": ledger_page.replace("(where_it_stands.md)", "(../index.md)")}
        warnings, html = build_book(files, "execution", "measured", "pages", "boxes", "access", mode=mode)
        return warnings, {path.stem: path.read_text(encoding="utf-8") for path in html.glob("*/*.html")}

    return run


def test_a_sound_book_builds_without_a_warning(build):
    warnings, pages = build()
    assert warnings == ""
    chapter, claims = pages[STEM], pages["claims"]
    assert f'data-notebook="{STEM}" data-name="points" data-value="2047">2047</span>' in claims
    assert 'data-value="3.1e-06">3.1 × 10<sup>−6</sup></span>' in claims
    assert "<details><summary>More</summary><p>It is proved.</p>" in "".join(claims.splitlines())
    assert 'id="ledger-1"' in claims and f'href="../notebooks/{STEM}.html#claim-1">Cell in A chapter' in claims
    assert ">holds under a condition</span> (1): it stands where" in claims and "Both are" in claims
    assert 'id="claim-1"' in chapter
    assert chapter.count('href="../book/claims.html#ledger-1"') == 4, "two in the text, a chip, and one below the cell"
    assert '<blockquote class="claim-box claim-holds-under-a-condition">' in chapter
    assert 'verdict-holds-under-a-condition">Claim 1: holds under a condition</span></a>' in chapter
    assert '<h1><span class="chapter-number">Chapter 4 </span>A chapter' in chapter
    assert f'href="../book/solutions/{STEM}.html">Solutions to these exercises' in chapter


def test_a_cell_whose_claim_the_text_below_names_has_no_line_to_it_and_lines_of_code_are_apart(build):
    chapter = build(below=["So it is ([claim 1](../book/claims.md))."])[1][STEM]
    assert "claim-backlink" not in chapter and 'id="claim-1"' in chapter
    code = chapter.split('<div class="highlight"><pre>')[1].split("</pre>")[0]
    assert code.count('<span class="line" style="--indent: 0ch">') == code.count("\n") == len(SOURCE.splitlines()) == 3


def test_a_notebook_is_executed_again_when_a_file_that_it_is_made_of_changes(build, tmp_path, capfd):
    module = tmp_path / "source" / "caracal_min" / "__init__.py"
    module.parent.mkdir(parents=True)
    for change, executed in (("x = 1", 1), ("x = 1", 0), ("x = 2", 1)):
        module.write_text(change)
        warnings, _ = build(mode="cache")
        assert warnings == "" and capfd.readouterr().out.count(": executed in") == executed, change


@pytest.mark.parametrize("change, says", [
    ({"text": "2048<!-- = points -->"}, "the text says 2048, the cell prints 'points = 2047'"),
    ({"ledger": LEDGER.replace("leak", "lake")}, "prints a value named 'lake'"),
    ({"tags": ()}, "claim 1 needs exactly one cell tagged claim-1"),
    ({"also": "not tested here: no x\n"}, "the cell of claim 1 prints 'not tested here: no x'"),
])
def test_a_book_that_contradicts_itself_warns(change, says, build):
    warnings, _ = build(**change)
    assert says in warnings


def test_a_moved_page_and_a_missing_one_lead_home(build_book, root, monkeypatch):
    monkeypatch.setenv("BOOK_URL", "https://pages.example.org/a/book")
    warnings, html = build_book(
        {"index.md": "# Book"}, "site", "measured", "access", html_theme="sphinx_book_theme",
        templates_path=[str(root / "book" / "_templates")], html_additional_pages={"404": "404.html"},
        moved_pages={"notebooks/old": "index"})
    assert warnings == ""
    assert 'url=../index.html"' in (html / "notebooks" / "old.html").read_text(encoding="utf-8")
    assert 'href="/a/book/search.html"' in (html / "404.html").read_text(encoding="utf-8")
    assert 'content="https://pages.example.org/a/book/_static/social.png"' in (html / "index.html").read_text("utf-8")
