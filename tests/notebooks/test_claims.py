"""The claims ledger: what it accepts, and that ledger and notebooks agree."""

import pytest

from caracal_book.rules.ledger import (
    CONDITIONAL,
    LITERATURE,
    Claim,
    check_boxes,
    check_claims,
    parse_ledger,
    read_ledger,
    untested,
)

ENTRY = {"id": 1, "paper": "Section 1", "says": "It is fast.", "verdict": "holds", "found": "It is.",
         "notebook": "04_causal_convolution"}
LOOSE, UNTESTED = "holds in substance, wording loose", "not tested at this scale"


@pytest.fixture
def claim():
    return claim_with()


def claim_with(**change):
    condition = {"condition": "The points are distinct."} if change.get("verdict") == CONDITIONAL else {}
    return Claim(**{**ENTRY, **condition, **change}, topic="Speed")


def test_the_ledger_of_the_book(root, notebooks):
    claims = read_ledger(root / "book" / "claims.yml")
    assert claims
    assert check_claims(claims, notebooks) == []
    assert check_boxes(claims, notebooks) == []
    page = (root / "book" / f"{LITERATURE}.md").read_text(encoding="utf-8")
    assert all(f"\n(claim-{claim.id})=\n" in page for claim in claims if claim.notebook == LITERATURE)


def box(found, link="[claim 1](../book/claims.md)"):
    says = "> **What the paper says** (Section 1): it holds under a condition. **What we\n> found:**"
    return f"Text.\n\n{says} {found}\n> ({link}).\n\nMore"


@pytest.mark.parametrize("verdict, found", [
    ("holds", "the first two hold."), (CONDITIONAL, "both hold under a\n> condition. The rest holds."),
    ("does not hold", "the first holds, the second does not hold."),
])
def test_a_box_that_says_the_verdict_of_the_ledger(verdict, found, make_notebook):
    assert check_boxes([claim_with(verdict=verdict)], {"02_other": make_notebook(box(found))}) == []


@pytest.mark.parametrize("verdict, found, says", [
    ("holds", "it is so.", "the text says no verdict; the ledger has claim 1: holds"),
    (LOOSE, "it holds.", "the text says holds; the ledger has claim 1: holds in substance, wording loose"),
    (CONDITIONAL, "it does not hold.", "the text says does not hold; the ledger has claim 1: holds under a condition"),
    (UNTESTED, "it holds.", "the text says holds; the ledger has claim 1: not tested at this scale"),
])
def test_a_box_that_says_another_verdict(verdict, found, says, make_notebook):
    ((stem, problem),) = check_boxes([claim_with(verdict=verdict)], {"02_other": make_notebook(box(found))})
    assert (stem, problem.cell) == ("02_other", 2) and says in problem.message


@pytest.mark.parametrize("change, says", [
    ({"verdict": "true"}, "'true' is not one of: holds"), ({"id": 0}, "whole number"), ({"found": "  "}, "found is"),
    ({"notebook": "notebooks/04.ipynb"}, "give a name like 04_causal_convolution"),
    ({"extra": "x"}, "a claim has the keys"), ({"condition": "The points are distinct."}, "a condition goes with"),
    ({"verdict": CONDITIONAL, "condition": "It may be so."}, "give one sentence of at most 100 letters"),
    ({"found": "It is {measured}`a: b`. " * 20}, "longer than 45 words"),
])
def test_an_entry_that_does_not_fit(change, says):
    with pytest.raises(ValueError, match=says) as error:
        parse_ledger({"Speed": [{**ENTRY, **change}]})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("cells, says", [
    ([], "exactly one cell tagged claim-1 here; there are 0"),
    ([("assert x", ["claim-1"]), ("assert x", ["claim-1"])], "there are 2"),
    ([("assertion = 1", ["claim-1"])], "asserts nothing"),
    ([("assert x", ["claim-1", "claim-2"])], "claim-2 names no claim"),
])
def test_cells_that_do_not_fit_the_ledger(cells, says, claim, make_notebook, make_code):
    notebook = make_notebook(*(make_code(source, tags=tags) for source, tags in cells))
    (stem, problem), = check_claims([claim], {claim.notebook: notebook})
    assert stem == claim.notebook
    assert says in problem.message


def test_a_claim_that_earlier_publications_decide_has_no_cell():
    assert check_claims([claim_with(notebook=LITERATURE)], {}) == []


@pytest.mark.parametrize("prints, tags, says", [
    ("not tested here: no network\n", ["claim-1"], "the cell of claim 1 prints 'not tested here: no network'"),
    ("x = 1\n  not tested here\ny = 2\n", ["claim-1", "claim-2"], "the cell of claim 1 and claim 2 prints 'not tested"),
    ("not tested here: no GPU", [], "the cell prints 'not tested here: no GPU'"),
])
def test_a_line_that_says_that_nothing_was_tested(prints, tags, says, make_notebook, make_code):
    cells = make_code("assert x", prints="x = 2\n"), make_code("f()", tags=tags, prints=prints)
    (problem,) = untested(make_notebook(*cells))
    assert problem.cell == 3 and problem.message.startswith(says)
