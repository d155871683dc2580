"""The claims ledger: what it accepts, and that ledger and notebooks agree."""

import re
import statistics

import pytest
import torch

from caracal_book import runs
from caracal_book.rules.ledger import (
    CONDITIONAL,
    VERDICTS,
    Claim,
    check_boxes,
    check_claims,
    claim_tags,
    parse_ledger,
    read_ledger,
    slug,
    untested,
)
from caracal_min.config import PRESETS

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


def test_each_verdict_has_its_colour(root):
    css = (root / "book" / "_static" / "book.css").read_text(encoding="utf-8")
    for verdict in VERDICTS:
        assert f"\n.verdict-{slug(verdict)} {{" in css and re.fullmatch("[a-z-]+", slug(verdict))


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_condition_goes_with_one_verdict(verdict):
    for condition in ("", "The points are distinct."):
        row = {**ENTRY, "verdict": verdict, "condition": condition}
        if (verdict == CONDITIONAL) == bool(condition):
            assert parse_ledger({"Speed": [row]})[0].condition == condition
        else:
            with pytest.raises(ValueError, match="a condition goes with 'holds under a condition', and with no other"):
                parse_ledger({"Speed": [row]})


@pytest.mark.parametrize("condition", [
    "the points are distinct", "The points are distinct. There are enough.", "So.", f"It is {'very ' * 20}far.",
    "The points may be distinct.", "The points are usually distinct.", "The points are distinct; there are enough."])
def test_a_condition_is_one_short_sentence_without_a_hedge(condition):
    with pytest.raises(ValueError, match="give one sentence of at most 100 letters that says when it holds"):
        claim_with(verdict=CONDITIONAL, condition=condition)


def box(found, link="[claim 1](../book/claims.md)"):
    says = "> **What the paper says** (Section 1): it holds under a condition. **What we\n> found:**"
    return f"Text.\n\n{says} {found}\n> ({link}).\n\nMore"


@pytest.mark.parametrize("verdict, found", [
    ("holds", "it holds."), ("holds", "the first two hold."), (LOOSE, "it holds in substance,\n> wording loose. So."),
    (CONDITIONAL, "both hold under a\n> condition. The rest holds."), (UNTESTED, "not tested at this scale."),
    ("does not hold", "the first holds, the second does not hold."),
])
def test_a_box_that_says_the_verdict_of_the_ledger(verdict, found, make_notebook):
    assert check_boxes([claim_with(verdict=verdict)], {"02_other": make_notebook(box(found))}) == []


@pytest.mark.parametrize("verdict, found, says", [
    ("holds", "it holds under a condition.", "the text says holds under a condition; the ledger has claim 1: holds"),
    ("holds", "it is so.", "the text says no verdict; the ledger has claim 1: holds"),
    (LOOSE, "it holds.", "the text says holds; the ledger has claim 1: holds in substance, wording loose"),
    (CONDITIONAL, "truncating is right.", "the text says no verdict; the ledger has"),
    (CONDITIONAL, "it holds in\n> substance, wording loose.", "the text says holds in substance, wording loose; the"),
    (CONDITIONAL, "it does not hold.", "the text says does not hold; the ledger has claim 1: holds under a condition"),
    (CONDITIONAL, "it holds under a condition, or does not hold.", "the text says does not hold and holds under a"),
    ("does not hold", "it holds.", "the text says holds; the ledger has claim 1: does not hold"),
    (UNTESTED, "it holds.", "the text says holds; the ledger has claim 1: not tested at this scale"),
])
def test_a_box_that_says_another_verdict(verdict, found, says, make_notebook):
    ((stem, problem),) = check_boxes([claim_with(verdict=verdict)], {"02_other": make_notebook(box(found))})
    assert (stem, problem.cell) == ("02_other", 2) and says in problem.message


def test_a_box_whose_last_line_lacks_its_mark_is_looked_at(make_notebook):
    """As Markdown has it, the line still belongs to the quotation."""
    notebook = make_notebook(box("it is so.").replace("\n> (", "\n("))
    assert len(check_boxes([claim_with()], {"02_other": notebook})) == 1


def test_a_box_of_two_claims_says_both_verdicts(make_notebook):
    claims = [claim_with(), claim_with(id=2, verdict=LOOSE)]
    links = "[claim 1](../book/claims.md), [claim 2](../book/claims.md)"
    both, one = (make_notebook(box(found, links)) for found in (f"it holds; so: {LOOSE}.", f"{LOOSE}."))
    assert check_boxes(claims, {"02_other": both}) == []
    assert len(check_boxes(claims, {"02_other": one})) == 1


def test_a_paragraph_says_the_verdicts_of_its_claims_or_none(make_notebook):
    for said, problems in (("It is", 0), ("It holds under a condition", 0), ("It does not hold", 1), (LOOSE, 1)):
        notebook = make_notebook(f"{said} ([claim\n1](../book/claims.md)).\n\nIt does not hold.")
        assert len(check_boxes([claim_with(verdict=CONDITIONAL)], {"02_other": notebook})) == problems


def test_links_outside_a_box_and_to_other_ledgers_are_left_alone(make_notebook, make_code):
    cells = "It is as in [claim 1](../book/claims.md).", box("so.", "[claim 7](x.md)"), make_code("> 1")
    notebook = make_notebook(*cells)
    assert check_boxes([claim_with(verdict=LOOSE)], {"02_other": notebook}) == []


def test_claims_are_returned_in_the_order_of_the_file():
    claims = parse_ledger({"Speed": [{**ENTRY, "id": 3}], "Length": [ENTRY]})
    assert [(claim.topic, claim.id) for claim in claims] == [("Speed", 3), ("Length", 1)]


@pytest.mark.parametrize("change, says", [
    ({"verdict": "true"}, "'true' is not one of: holds"),
    ({"id": 0}, "whole number"), ({"id": "1"}, "whole number"), ({"id": True}, "whole number"),
    ({"found": "  "}, "found is"), ({"says": None}, "says is"), ({"paper": 3.2}, "paper is"),
    ({"notebook": "notebooks/04.ipynb"}, "give a name like 04_causal_convolution"),
    ({"extra": "x"}, "a claim has the keys"), ({"topic": "x"}, "a claim has the keys"),
])
def test_an_entry_that_does_not_fit(change, says):
    with pytest.raises(ValueError, match=says) as error:
        parse_ledger({"Speed": [{**ENTRY, **change}]})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("entries, says", [
    ([ENTRY], "give topics"), (None, "give topics"), ({"Speed": ENTRY}, "give topics"), ({1: [ENTRY]}, "topic is 1"),
    ({"Speed": ["text"]}, "a claim has the keys"), ({"Speed": [ENTRY], "Length": [ENTRY]}, "entered twice"),
    ({"Speed": [{key: ENTRY[key] for key in ENTRY if key != "found"}]}, "a claim has the keys"),
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


GROWN = torch.arange(1.0, 4097.0) ** 2


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
    for flat in (torch.ones(4096), GROWN ** 0.125):
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
