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
CLAIMS_PAGE = "# Ledger\n\n```{claims-ledger} claims.yml\n```\n"

SOURCE = 'points = 2047\nprint(f"points = {points}\\nleak = 3.1e-06")\nassert points'


@pytest.fixture
def build(build_book, make_notebook, make_code):
    """A function that builds a book of one notebook and one ledger; returns warnings and pages by name."""

    def run(text="2047<!-- = points -->, see [claim 1](claims.md)", ledger=LEDGER, tags=("claim-1",),
            mode="off", also="", code=""):
        prints = f"points = 2047\nleak = 3.1e-06\n{also}" if mode == "off" else None
        source = f"{code}{SOURCE}\nprint({also!r})" if also else code + SOURCE
        notebook = make_notebook(text, make_code(source, tags=list(tags), prints=prints), setup=False)
        files = {"index.md": f"# Book\n\n```{{toctree}}\n{STEM}\nclaims\n```\n", f"{STEM}.ipynb": notebook,
                 "claims.yml": ledger, "claims.md": CLAIMS_PAGE}
        warnings, html = build_book(files, "execution", "kernel", "measured", "claims", mode=mode)
        return warnings, {name: (html / f"{name}.html").read_text(encoding="utf-8") for name in (STEM, "claims")}

    return run


def test_a_sound_book_builds_without_a_warning(build):
    warnings, pages = build()
    assert warnings == ""
    chapter, claims = pages[STEM], pages["claims"]
    assert f'data-notebook="{STEM}" data-name="points" data-value="2047">2047</span>' in claims
    assert 'data-value="3.1e-06">3.1 × 10<sup>−6</sup></span>' in claims
    assert "<details><summary>More</summary><p>It is proved.</p>" in "".join(claims.splitlines())
    assert 'id="ledger-1"' in claims and f'href="{STEM}.html#claim-1"' in claims
    assert ">holds under a condition</span> (1): it stands where" in claims and "Both are" in claims
    assert 'id="claim-1"' in chapter
    assert chapter.count('href="claims.html#ledger-1"') == 2, "the link in the text and the one below the cell"


def test_a_notebook_is_executed_again_when_a_file_that_it_is_made_of_changes(build, tmp_path, capfd):
    module = tmp_path / "source" / "caracal_min" / "__init__.py"
    module.parent.mkdir(parents=True)
    for change, executed in (("x = 1", 1), ("x = 1", 0), ("x = 2", 1)):
        module.write_text(change)
        warnings, _ = build(mode="cache", code="from caracal_min import x\n")
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
