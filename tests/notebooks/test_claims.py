"""The claims ledger: what it accepts, and that ledger and notebooks agree."""

import statistics

import pytest
import torch

from caracal_book import runs
from caracal_book.rules.ledger import (
    VERDICTS,
    Claim,
    check_boxes,
    check_claims,
    claim_tags,
    parse_ledger,
    read_ledger,
    untested,
)
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
    assert check_boxes(claims, notebooks) == []


def test_each_verdict_has_its_colour_and_its_meaning(root):
    css, page = ((root / "book" / name).read_text(encoding="utf-8") for name in ("_static/book.css", "claims.md"))
    for verdict in VERDICTS:
        name = "verdict-" + verdict.replace(" ", "-")
        assert f".{name} {{" in css and f'<span class="verdict {name}">{verdict}</span>' in page


def test_a_caveat_says_of_what_kind_it_is():
    with pytest.raises(ValueError, match="'holds with a caveat' is not one of: holds, holds with a caveat of wording"):
        parse_ledger([{**ENTRY, "verdict": "holds with a caveat"}])


WORDING, SUBSTANCE = "holds with a caveat of wording", "holds with a caveat of substance"


def box(found, link="[claim 1](../book/claims.md)"):
    says = "> **What the paper says** (Section 1): it is, with a caveat. **What we\n> found:**"
    return f"Text.\n\n{says} {found}\n> ({link}).\n\nMore"


@pytest.mark.parametrize("verdict, found", [
    ("holds", "it holds."), ("holds", "the first two hold."), (WORDING, "it holds with a caveat of\n> wording. So."),
    (SUBSTANCE, "a caveat of substance. It is."), ("does not hold", "for the rest it does not."),
    ("not tested at this scale", "not tested at this scale."),
])
def test_a_box_that_says_the_verdict_of_the_ledger(verdict, found, make_notebook):
    claim = Claim(**{**ENTRY, "verdict": verdict})
    assert check_boxes([claim], {claim.notebook: make_notebook(box(found))}) == []


@pytest.mark.parametrize("verdict, found, says", [
    ("holds", "it holds with a caveat of wording.", "the box says caveat of wording; the ledger has claim 1: holds"),
    ("holds", "it is so.", "no caveat, and not 'holds'; the ledger has claim 1: holds"),
    (WORDING, "it holds with a caveat.", "the box says caveat; the ledger has claim 1: holds with a caveat of wording"),
    (WORDING, "truncating is right.", "the box says no caveat; the ledger has"),
    (SUBSTANCE, "it holds with a caveat of wording.", "the box says caveat of wording; the ledger has claim 1: "),
    (SUBSTANCE, "a caveat of substance and a caveat.", "the box says caveat, caveat of substance; the ledger has"),
    ("does not hold", "it holds.", "not 'does not hold'; the ledger has claim 1: does not hold"),
    ("not tested at this scale", "it holds.", "not 'not tested at this scale'; the ledger has"),
])
def test_a_box_that_says_another_verdict(verdict, found, says, make_notebook):
    claim = Claim(**{**ENTRY, "verdict": verdict})
    ((stem, problem),) = check_boxes([claim], {"02_other": make_notebook(box(found))})
    assert (stem, problem.cell) == ("02_other", 2) and says in problem.message


def test_a_box_of_two_claims_says_both_verdicts(make_notebook):
    claims = [Claim(**ENTRY), Claim(**{**ENTRY, "id": 2, "verdict": WORDING})]
    links = "[claim 1](../book/claims.md), [claim 2](../book/claims.md)"
    both, one = (make_notebook(box(found, links)) for found in ("it holds; a caveat of wording.", "it holds."))
    assert check_boxes(claims, {"02_other": both}) == []
    assert len(check_boxes(claims, {"02_other": one})) == 1


def test_links_outside_a_box_and_to_other_ledgers_are_left_alone(make_notebook, make_code):
    cells = "It is as in [claim 1](../book/claims.md).", box("so.", "[claim 7](x.md)"), make_code("> 1")
    notebook = make_notebook(*cells)
    assert check_boxes([Claim(**{**ENTRY, "verdict": WORDING})], {"02_other": notebook}) == []


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
    found = check_claims([claim], {"12_train_tiny": there, claim.notebook: make_notebook()})
    assert {stem for stem, _ in found} == {"12_train_tiny", claim.notebook}
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


GROWN = torch.arange(1.0, 2049.0) ** 2


def source_of(claim, notebooks):
    (source,) = (cell.source for notebook in notebooks.values() for cell in notebook.cells if claim in claim_tags(cell))
    return source


@pytest.mark.parametrize("claim, missing, there, wrong", [
    (44, dict(baselines={}, off=[]), dict(baselines={"x": 1}, off=[0.1] * 16), dict(baselines={"x": 1}, off=[0.1])),
    (46, dict(elsewhere=None), dict(elsewhere=torch.zeros(2)), dict(elsewhere=torch.ones(2))),
])
def test_a_claim_is_tested_or_says_that_it_is_not(claim, missing, there, wrong, notebooks, capsys):
    """The cells run by themselves: without what they need, with it, and with it and another result."""
    source = source_of(claim, notebooks)
    names = dict(PRESETS=PRESETS, table={}, stated={}, nodes={("", "DFT"): 6}, small=lambda ids: (torch.zeros(2),),
                 ids=None)
    exec(source, names | missing)
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("not tested here: ")]
    exec(source, names | there)
    assert "not tested here" not in capsys.readouterr().out
    with pytest.raises(AssertionError):
        exec(source, names | wrong)


def test_claim_12_fails_where_the_sums_do_not_grow(notebooks):
    source, names = source_of(12, notebooks), dict(statistics=statistics)
    exec(source, names | dict(size={0: GROWN}))
    for flat in (torch.ones(2048), GROWN ** 0.125):
        with pytest.raises(AssertionError):
            exec(source, names | dict(size={0: flat}))


@pytest.mark.parametrize("how", [None, "whole", "cut"])
def test_claim_11_fails_on_another_record(how, notebooks):
    """The loss at 16 training lengths: as recorded; as low as at one, as trained; and as high with the gates cut."""
    names = dict(runs=runs, statistics=statistics)
    exec(next(cell.source for cell in notebooks["c_what_it_uses"].cells if cell.id == "forms-record"), names)
    for run in names["forms"]["results"]["runs"]:
        if how and run["contender"] == "plain" and "loss_by_length" in run:
            far = run["loss_by_length"]
            other = far["whole"][0 if how == "whole" else -1][1]
            far[how][-1] = [16 * 256, other]
    if how is None:
        exec(source_of(11, notebooks), names)
    else:
        with pytest.raises(AssertionError):
            exec(source_of(11, notebooks), names)
