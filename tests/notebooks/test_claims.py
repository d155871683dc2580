"""The claims ledger: what it accepts, and that ledger and notebooks agree."""

import pytest
from bookext.ledger import Claim, check_claims, parse_ledger, read_ledger

ENTRY = {"id": 1, "paper": "Section 1", "says": "It is fast.", "verdict": "holds", "found": "It is.",
         "notebook": "04_causal_convolution"}


@pytest.fixture
def claim():
    return Claim(**ENTRY)


def test_the_ledger_of_the_book(root, notebooks):
    claims = read_ledger(root / "book" / "claims.yml")
    assert claims
    assert check_claims(claims, notebooks) == []


def test_claims_are_returned_by_number():
    assert [claim.id for claim in parse_ledger([{**ENTRY, "id": 3}, ENTRY])] == [1, 3]


@pytest.mark.parametrize("change, says", [
    ({"verdict": "true"}, "'true' is not one of: holds"),
    ({"id": 0}, "whole number"), ({"id": "1"}, "whole number"), ({"id": True}, "whole number"),
    ({"found": "  "}, "found is"), ({"says": None}, "says is"), ({"paper": 3.2}, "paper is"),
    ({"notebook": "notebooks/04.ipynb"}, "give a name like 04_causal_convolution"),
    ({"extra": "x"}, "a claim has the keys"),
])
def test_an_entry_that_does_not_fit(change, says):
    with pytest.raises(ValueError, match=says) as error:
        parse_ledger([{**ENTRY, **change}])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("entries, says", [
    ({"1": ENTRY}, "give a list"), (None, "give a list"), (["text"], "a claim has the keys"),
    ([{key: ENTRY[key] for key in ENTRY if key != "found"}], "a claim has the keys"), ([ENTRY, ENTRY], "entered twice"),
])
def test_a_ledger_that_does_not_fit(entries, says):
    with pytest.raises(ValueError, match=says):
        parse_ledger(entries)


def test_one_asserting_cell_is_right(claim, make_notebook, make_code):
    notebook = make_notebook(make_code("x = 1\nassert x", tags=["claim-1"]))
    assert check_claims([claim], {claim.notebook: notebook}) == []


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


def test_a_claim_asserted_in_another_notebook(claim, make_notebook, make_code):
    there = make_notebook(make_code("assert x", tags=["claim-1"]))
    found = check_claims([claim], {"12_training": there, claim.notebook: make_notebook()})
    assert {stem for stem, _ in found} == {"12_training", claim.notebook}
    assert any("belongs in the notebook '04_causal_convolution'" in problem.message for _, problem in found)
