"""The claims ledger: what it accepts, and that ledger and notebooks agree."""

import statistics
from types import SimpleNamespace

import pytest
import torch
from bookext.ledger import Claim, check_claims, claim_tags, parse_ledger, read_ledger, untested

from caracal_min.config import PRESETS

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


@pytest.mark.parametrize("prints, tags, says", [
    ("not tested here: no network\n", ["claim-1"], "the cell of claim 1 prints 'not tested here: no network'"),
    ("x = 1\n  not tested here\ny = 2\n", ["claim-1", "claim-2"], "the cell of claim 1 and claim 2 prints 'not tested"),
    ("not tested here: no GPU", [], "the cell prints 'not tested here: no GPU'"),
])
def test_a_line_that_says_that_nothing_was_tested(prints, tags, says, make_notebook, make_code):
    cells = make_code("assert x", prints="x = 2\n"), make_code("f()", tags=tags, prints=prints)
    (problem,) = untested(make_notebook(*cells))
    assert problem.cell == 3 and problem.message.startswith(says)


@pytest.mark.parametrize("prints", [None, "x = 1\n", "speed was not tested here: it was measured\n"])
def test_other_lines_are_no_matter(prints, make_notebook, make_code):
    cell = make_code("print('not tested here: x')", prints=prints)
    assert untested(make_notebook("not tested here: text", cell)) == []


SEEN = {1: torch.full((4, 8), 2.0), 2: torch.full((4, 8), 2.0), 8: torch.full((4, 8), 3.0), 16: torch.full((4, 8), 5.0)}
GROWN = {0: torch.arange(1.0, 1025.0)}
RECIPE = SimpleNamespace(context=64)


@pytest.mark.parametrize("claim, missing, there, wrong", [
    (11, dict(LARGE=True), dict(LARGE=False, single=3.4), dict(LARGE=False, single=5.5)),
    (12, dict(LARGE=True), dict(LARGE=False), dict(LARGE=False, size={0: torch.ones(1024)})),
    (44, dict(baselines={}, off=[]), dict(baselines={"x": 1}, off=[0.1] * 16), dict(baselines={"x": 1}, off=[0.1])),
    (46, dict(elsewhere=None), dict(elsewhere=torch.zeros(2)), dict(elsewhere=torch.ones(2))),
])
def test_a_claim_is_tested_or_says_that_it_is_not(claim, missing, there, wrong, notebooks, capsys):
    """The cells run by themselves: without what they need, with it, and with it and another result."""
    (source,) = (cell.source for notebook in notebooks.values() for cell in notebook.cells if claim in claim_tags(cell))
    names = dict(beyond=SEEN, size=GROWN, recipe=RECIPE, statistics=statistics, PRESETS=PRESETS, table={}, stated={},
                 nodes={("", "DFT"): 6}, loaded=lambda tokens: (torch.zeros(2),), tokens=None)
    exec(source, names | missing)
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("not tested here: ")]
    exec(source, names | there)
    assert "not tested here" not in capsys.readouterr().out
    with pytest.raises(AssertionError):
        exec(source, names | wrong)
