"""The rules for notebooks: the book's own keep them, and each rule rejects a notebook that breaks it."""

import shutil
from pathlib import Path

import nbformat
import pytest
import strip_notebooks

from caracal_book.rules import __main__ as check_notebooks
from caracal_book.rules import figure_rules
from caracal_book.rules import notebook_rules as rules
from caracal_book.rules.figure_rules import OPENING

ASSERT = "assert 1 + 1 == 2"
GOALS = "**After this chapter you will be able to**"
FIGURE, CAPTION = ("viz.roots(8)", {"tags": [OPENING, "remove-input"]}), f"**Figure 1.1.** It turns.\n\n{GOALS}"
EXERCISES = [part for number in (1, 2, 3) for part in (
    f"### Exercise {number}: Something (easy, 10 minutes)\n\nDo it.",
    ("code", f'def task_{number}(x):\n    """Return x, (L,)."""\n    raise NotImplementedError\n\n'
             f"check.task_{number}(task_{number})"))]

AS_CELLS = [part if isinstance(part, str) else (part[1], {}) for part in EXERCISES]


@pytest.fixture
def good(make_notebook, make_code):
    """A notebook that keeps every rule."""
    cells = [make_code(part[1]) if isinstance(part, tuple) else part for part in EXERCISES]
    opening = make_code(FIGURE[0], **FIGURE[1])
    return make_notebook(opening, CAPTION, "## A section", make_code(ASSERT), "## Exercises", *cells)


def test_the_book_keeps_the_rules(root):
    paths = sorted((root / "notebooks").glob("*.ipynb"))
    assert paths, "no notebooks found"
    assert check_notebooks.problems_of(paths, root / "book" / "claims.yml") == []


def test_the_book_is_stripped(root, tmp_path, capsys):
    """No outputs, no metadata that an editor left, written as nbformat does: stripping changes no byte."""
    paths = sorted((root / "notebooks").glob("*.ipynb"))
    copies = [Path(shutil.copy(path, tmp_path)) for path in paths]
    assert strip_notebooks.main([*map(str, copies)]) == 0
    assert capsys.readouterr().out == "", "python tools/strip_notebooks.py mends it"
    assert [copy.read_bytes() for copy in copies] == [path.read_bytes() for path in paths]


def test_every_notebook_is_in_the_table_of_contents_and_has_solutions(root):
    contents = (root / "_toc.yml").read_text(encoding="utf-8")
    for path in (root / "notebooks").glob("*.ipynb"):
        assert f"file: notebooks/{path.stem}\n" in contents
        assert f"file: book/solutions/{path.stem}\n" in contents
        assert f"(../book/solutions/{path.stem}.md)" in path.read_text(encoding="utf-8"), path.name


def test_a_good_notebook_has_no_problems(good):
    assert rules.check(good) == []


def broken(rule, index, says, *cells, **kwargs):
    return pytest.param(rule, index, says, cells, kwargs, id=f"{rule.__name__}: {says}")


@pytest.mark.parametrize("rule, index, says, cells, kwargs", [
    broken(rules.outputs_are_stripped, 2, "outputs", ("x", {"prints": "x = 1"})),
    broken(rules.columns_have_names, 2, "'| | a |' leaves a column", "| | a |\n|--|--:|\n| b | 1 |"),
    broken(rules.nothing_is_shown_by_accident, 2, "'model.eval()' shows its value", ("import torch\nmodel.eval()", {})),
    broken(rules.cells_are_short, 2, "41 lines", ("x\n" * 41, {})),
    broken(rules.setup_comes_first, 0, "must be the set-up cell", setup=False),
    broken(rules.markdown_is_plain, 2, "role", "See {ref}`here`."),
    broken(figure_rules.images_have_alt_text, 2, "mystnb.image.alt", ("plt.plot(x)", {})),
    broken(rules.something_is_asserted, -1, "asserts nothing", ("x = 'assert'", {})),
    broken(rules.models_are_where_the_ids_are, 2, "stops where there is a GPU; add device=",
           ('model = Caracal.from_pretrained("micro")', {})),
    broken(rules.headings_nest, 2, "skips", "### Too deep"),
    broken(rules.numbers_are_named_well, 2, "no number", "many<!-- = x -->"),
    broken(rules.exercises_can_be_checked, -1, "0 exercises"),
    broken(rules.the_time_counts_the_exercises, 2, "take 30 minutes", "**Time:** about 50 minutes.", *AS_CELLS),
    broken(figure_rules.opens_with_its_figure, 3, "caption", FIGURE, f"It turns.\n\n{GOALS}"),
    broken(figure_rules.machinery_is_folded, 2, "hide-input", ("x = 1\nplt.plot(x)", {})),
    broken(figure_rules.captions_are_numbered, 3, "number 1 is next", FIGURE, "**Figure 1.2.** It turns."),
])
def test_each_rule_rejects_a_notebook_that_breaks_it(rule, index, says, cells, kwargs, make_notebook, make_code):
    notebook = make_notebook(*(make_code(cell[0], **cell[1]) if isinstance(cell, tuple) else cell for cell in cells),
                             **kwargs)
    (problem,) = rule(notebook)
    assert problem.cell == index
    assert says in problem.message


@pytest.mark.parametrize("text, says", [
    ("As Figure 1.1 and Figure A.1 show.", None), ("See Figure A.2.", "no 'Figure A.2'"),
    ("**Figure A.1.** It rises.", "another chapter"),
])
def test_figures_that_a_text_refers_to_exist(text, says, make_notebook, make_code):
    chapters = {"01_any": make_notebook(make_code(FIGURE[0]), "**Figure 1.1.** It turns.", text),
                "02_other": make_notebook(make_code(FIGURE[0]), "**Figure 2.1.** It turns."),
                "a_third": make_notebook(make_code(FIGURE[0]), "**Figure A.1.** It turns.")}
    found = figure_rules.figures_exist(chapters)
    assert [(stem, problem.cell) for stem, problem in found] == ([("01_any", 4)] if says else [])
    assert not says or says in found[0][1].message


SAYS_SO = "print('not tested here: no network')"


@pytest.mark.parametrize("source", [
    "assert LARGE or x > 1", "if found:\n    assert x > 1",
    "if found:\n    assert x > 1\nelse:\n    print('no network')",
    "try:\n    assert x > 1\nexcept ImportError:\n    pass",
])
def test_an_assert_that_may_be_skipped_in_silence(source, make_notebook, make_code):
    problems = list(rules.nothing_passes_in_silence(make_notebook(make_code(source))))
    assert problems and {problem.cell for problem in problems} == {2}
    assert all("may pass without a test; print 'not tested here: why'" in problem.message for problem in problems)


@pytest.mark.parametrize("source", [
    "assert x > 1 or x < 0", f"if found:\n    assert x > 1\nelse:\n    {SAYS_SO}",
    "if found:\n    assert x > 1\nelse:\n    assert x < 1", "if found:\n    x = 1\nassert x",
    "for x in xs:\n    if x:\n        assert x > 1",
])
def test_an_assert_that_runs_or_says_that_it_does_not(source, make_notebook, make_code):
    assert list(rules.nothing_passes_in_silence(make_notebook(make_code(source)))) == []


def test_the_command_line_names_file_and_cell(good, make_code, tmp_path, capsys):
    path = tmp_path / "01_bad.ipynb"
    good.cells[5] = make_code(ASSERT, prints="x")
    nbformat.write(good, path)
    assert check_notebooks.main([str(path)]) == 1
    assert capsys.readouterr().out.startswith("01_bad, cell 5: carries outputs")
    assert strip_notebooks.main(["--check", str(path)]) == 1
    assert strip_notebooks.main([str(path)]) == 0
    assert check_notebooks.main([str(path)]) == 0
    assert strip_notebooks.main(["--check", str(path)]) == 0
