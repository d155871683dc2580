"""The rules for notebooks: the book's own keep them, and each rule rejects a notebook that breaks it."""

import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
import strip_notebooks
import yaml

from caracal_book.rules import __main__ as check_notebooks
from caracal_book.rules import figure_rules
from caracal_book.rules import notebook_rules as rules
from caracal_book.rules.cells import number_of
from caracal_book.rules.figure_rules import OPENING

ASSERT = "assert 1 + 1 == 2"
GOALS = "**After this chapter you will be able to**"
FIGURE, CAPTION = ("viz.roots(8)", {"tags": [OPENING, "remove-input"]}), f"**Figure 1.1.** It turns.\n\n{GOALS}"
TURNS = FIGURE, "**Figure 1.1.** It turns."
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


def test_a_stripped_notebook_is_written_as_it_was_read(good, tmp_path):
    """Whatever way it was written before: once stripped, it stays byte for byte."""
    path = tmp_path / "01_any.ipynb"
    path.write_text(json.dumps(good), encoding="utf-8")
    found = []
    for _ in range(2):
        strip_notebooks.main([str(path)])
        found.append(path.read_bytes())
    assert found[0] == found[1] != json.dumps(good).encode()
    assert found[0].startswith(b'{\n "cells": [\n  {\n   "cell_type": "markdown"') and found[0].endswith(b"}\n")


def test_every_notebook_is_in_the_table_of_contents_and_has_solutions(root):
    contents = (root / "_toc.yml").read_text(encoding="utf-8")
    for path in (root / "notebooks").glob("*.ipynb"):
        assert f"file: notebooks/{path.stem}\n" in contents
        assert f"file: book/solutions/{path.stem}\n" in contents
        assert f"(../book/solutions/{path.stem}.md)" in path.read_text(encoding="utf-8"), path.name


def test_the_landing_page_and_the_preface_have_the_parts_of_the_table_of_contents(root):
    contents, landing, preface = ((root / name).read_text(encoding="utf-8")
                                  for name in ("_toc.yml", "index.md", "book/preface.md"))
    parts = {}
    for part in yaml.safe_load(contents)["parts"]:
        chapters = [chapter["file"] for chapter in part["chapters"] if chapter["file"].startswith("notebooks/")]
        if chapters:
            parts[part["caption"]] = [number_of(chapters[k].partition("/")[2]) for k in (0, -1)]
    listed = re.findall(r"^## (\w+)\n\n[^#:]+\n:::\{chapter-cards\} (\w+)$", landing, re.MULTILINE)
    assert listed == [(name, name) for name in parts]
    assert list(parts) == ["Derive", "Build", "Train", "Check"]
    for name, (first, last) in parts.items():
        assert f"*{name}* ({first} to {last})" in preface


def test_a_good_notebook_has_no_problems(good):
    assert rules.check(good) == []


def broken(rule, index, says, *cells, **kwargs):
    return pytest.param(rule, index, says, cells, kwargs, id=f"{rule.__name__}: {says}")


@pytest.mark.parametrize("rule, index, says, cells, kwargs", [
    broken(rules.outputs_are_stripped, 2, "outputs", ("x", {"prints": "x = 1"})),
    broken(rules.outputs_are_stripped, 2, "execution count", ("x", {"count": 1})),
    broken(rules.columns_have_names, 2, "'| | a |' leaves a column", "| | a |\n|--|--:|\n| b | 1 |"),
    broken(rules.cells_are_short, 2, "41 lines", ("x\n" * 41, {})),
    broken(rules.setup_comes_first, 1, "must be the set-up cell", (rules.SETUP + "\nimport torch", {"tags": ["setup"]}),
           setup=False),
    broken(rules.setup_comes_first, 1, "lacks the tag", (rules.SETUP, {}), setup=False),
    broken(rules.setup_comes_first, 0, "must be the set-up cell", setup=False),
    broken(rules.markdown_is_plain, 2, "role", "See {ref}`here`."),
    broken(rules.markdown_is_plain, 2, "directive", "```{note}\nhello\n```"),
    broken(rules.markdown_is_plain, 2, "directive", "text\n\n:::{tip}\nhello\n:::"),
    broken(rules.markdown_is_plain, 2, "target", "(a-label)=\n## Title"),
    broken(figure_rules.images_have_alt_text, 2, "mystnb.image.alt", ("plt.plot(x)", {})),
    broken(figure_rules.images_have_alt_text, 2, "mystnb.image.alt", ("fig, ax = plt.subplots()", {"alt": "plot"})),
    broken(figure_rules.images_have_alt_text, 3, "mystnb.image.alt",
           ("def draw():\n    plt.plot(x)", {}), ("draw()", {})),
    broken(figure_rules.images_have_alt_text, 2, "without alt", "![](picture.png)"),
    broken(figure_rules.images_have_alt_text, 2, "without alt", '<img src="picture.png">'),
    broken(rules.something_is_asserted, -1, "asserts nothing", ("x = 'assert'", {})),
    broken(rules.models_are_where_the_ids_are, 2, "stops where there is a GPU; add device=",
           ('model = Caracal.from_pretrained("micro")', {})),
    broken(rules.headings_nest, 2, "only title", "# Another title"),
    broken(rules.headings_nest, 2, "skips", "### Too deep"),
    broken(rules.headings_nest, 0, "only title", title="## A chapter"),
    broken(rules.headings_nest, -1, "no title", title="A chapter"),
    broken(rules.numbers_are_named_well, 2, "no number", "many<!-- = x -->"),
    broken(rules.exercises_can_be_checked, -1, "0 exercises"),
    broken(rules.the_time_counts_the_exercises, 2, "take 30 minutes", "**Time:** about 50 minutes.", *AS_CELLS),
    broken(rules.the_time_counts_the_exercises, 2, "take 30 minutes",
           "**Time:** about 50 minutes, and 40 for the exercises.", *AS_CELLS),
    broken(figure_rules.opens_with_its_figure, 0, "question", FIGURE, CAPTION, title="# A chapter\n\nIt asks nothing."),
    broken(figure_rules.opens_with_its_figure, 0, "nothing after", FIGURE, CAPTION,
           title=f"# A chapter\n\nWhy?\n\n{GOALS}"),
    broken(figure_rules.opens_with_its_figure, 2, "tag it", (FIGURE[0], {}), CAPTION),
    broken(figure_rules.opens_with_its_figure, 2, "shows the figure", ("viz.use_style()", FIGURE[1]), CAPTION),
    broken(figure_rules.opens_with_its_figure, 3, "caption", FIGURE, f"It turns.\n\n{GOALS}"),
    broken(figure_rules.opens_with_its_figure, 3, "goals", FIGURE, "**Figure 1.1.** It turns."),
    broken(figure_rules.machinery_is_folded, 1, "remove-cell", (rules.SETUP, {"tags": ["setup"]}), setup=False),
    broken(figure_rules.machinery_is_folded, 2, "remove-input", (FIGURE[0], {"tags": [OPENING]})),
    broken(figure_rules.machinery_is_folded, 2, "hide-input", ("import torch\nfrom caracal_book import viz", {})),
    broken(figure_rules.machinery_is_folded, 2, "hide-input", ("x = 1\nplt.plot(x)", {})),
    broken(figure_rules.machinery_is_folded, 2, "hide-input", (FIGURE[0], {})),
    broken(figure_rules.captions_are_numbered, 3, "number 1 is next", FIGURE, "**Figure 1.2.** It turns."),
    broken(figure_rules.captions_are_numbered, 4, "Figure N.2.", *TURNS, ("viz.clock(v, g)", {})),
    broken(figure_rules.captions_are_numbered, 4, "Figure N.2.", *TURNS, ("plt.plot(x)", {}), "It rises."),
    broken(figure_rules.captions_are_numbered, 4, "Figure N.2.", *TURNS, ("def draw():\n    plt.plot(x)\ndraw()", {}),
           ("print(x)", {})),
    broken(figure_rules.captions_are_numbered, 5, "number 2 is next", *TURNS, FIGURE, "**Figure 1.3.** Again."),
    broken(figure_rules.captions_are_numbered, 3, "behind a drawing", ("x = 1", {}), "**Figure 1.1.** It turns."),
    broken(figure_rules.captions_are_numbered, 4, "begin the cell", *TURNS, "Look.\n\n**Figure 1.2.** It turns."),
])
def test_each_rule_rejects_a_notebook_that_breaks_it(rule, index, says, cells, kwargs, make_notebook, make_code):
    notebook = make_notebook(*(make_code(cell[0], **cell[1]) if isinstance(cell, tuple) else cell for cell in cells),
                             **kwargs)
    (problem,) = rule(notebook)
    assert problem.cell == index
    assert says in problem.message


@pytest.mark.parametrize("text, says", [
    ("As Figure 1.1, Figure 2.1 and Figure A.1 show.", None), ("Figure 3.1 is in a chapter that is not here.", None),
    ("See Figure A.2.", "no 'Figure A.2'"), ("**Figure A.1.** It rises.", "another chapter"),
    ("See Figure 1.2.", "no 'Figure 1.2'"), ("See (Figure 2.2).", "no 'Figure 2.2'"),
    ("**Figure 2.2.** It rises.", "another chapter"),
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
    "assert LARGE or x > 1", "assert x > 1 or LARGE", "assert not found or x > 1",
    "if found:\n    assert x > 1", "if found:\n    assert x > 1\nelse:\n    print('no network')",
    "if found:\n    assert x > 1\nelse:\n    print('not tested here')", "if found:\n    pass\nelse:\n    assert x > 1",
    f"{SAYS_SO}\nif found:\n    assert x > 1",
    f"if a:\n    assert x\nelif b:\n    {SAYS_SO}",
    "with folder():\n    if found:\n        assert x > 1",
    "try:\n    assert x > 1\nexcept ImportError:\n    pass",
    "try:\n    f()\nexcept ValueError as error:\n    assert 'x' in str(error)",
])
def test_an_assert_that_may_be_skipped_in_silence(source, make_notebook, make_code):
    problems = list(rules.nothing_passes_in_silence(make_notebook(make_code(source))))
    assert problems and {problem.cell for problem in problems} == {2}
    assert all("may pass without a test; print 'not tested here: why'" in problem.message for problem in problems)


@pytest.mark.parametrize("source", [
    "assert x > 1", "assert x > 1 or x < 0", "assert all(a or b for a, b in pairs)",
    f"if found:\n    assert x > 1\nelse:\n    {SAYS_SO}", f"if found:\n    {SAYS_SO}\nelse:\n    assert x > 1",
    "if found:\n    assert x > 1\nelse:\n    print(f'not tested here: {why}')",
    "if found:\n    assert x > 1\nelse:\n    assert x < 1",
    "if found:\n    assert x > 1\nelse:\n    raise ValueError('no x')",
    f"if a:\n    assert x\nelif b:\n    assert y\nelse:\n    {SAYS_SO}",
    f"try:\n    assert x > 1\nexcept ImportError:\n    {SAYS_SO}",
    "if found:\n    x = 1\nassert x", "try:\n    x = f()\nexcept ImportError:\n    x = None\nassert x",
    "for x in xs:\n    if x:\n        assert x > 1", "def f(x):\n    if x:\n        assert x > 1",
    "if found:\n    assert x > 1\n    print(f'')\nelse:\n    print()\n    print(f'not tested here: {why}')",
])
def test_an_assert_that_runs_or_says_that_it_does_not(source, make_notebook, make_code):
    assert list(rules.nothing_passes_in_silence(make_notebook(make_code(source)))) == []


@pytest.mark.parametrize("old, new, says", [
    ("Exercise 2", "Exercise 7", "Exercise 2: title"),
    ("(easy, 10", "(trivial, 10", "easy|medium|hard"),
    ("10 minutes", "a while", "M minutes"),
    ("Something", "", "title"),
    ("raise NotImplementedError", "return x", "raise NotImplementedError"),
    ("    raise NotImplementedError", "    y = x\n    raise NotImplementedError", "raise NotImplementedError"),
    ('    """Return x, (L,)."""\n', "", "docstring"),
    ("check.task_2(task_2)", "check.task_2(task_1)", "check.name(name)"),
    ("check.task_1(task_1)", "", "check.name(name)"),
])
def test_exercises_that_break_the_form(good, old, new, says):
    for cell in good["cells"][6:]:
        cell["source"] = cell["source"].replace(old, new)
    problems = list(rules.exercises_can_be_checked(good))
    assert problems
    assert all(says in problem.message for problem in problems)


@pytest.mark.parametrize("text", [
    "Maths: $\\mathcal{F}$ and `{}` and `f(x)`.", "```python\nprint('{x}')\n# no heading\n```", "Set {a, b} of `c`.",
    "![A curve](c.png) and <img src='c.png' alt=\"A curve\">", "Half (of) it = 2", "#hashtag",
])
def test_ordinary_text_breaks_no_rule(text, good):
    good["cells"].insert(5, {"cell_type": "markdown", "metadata": {}, "source": text})
    assert rules.check(good) == []


@pytest.mark.parametrize("source", [
    "plt.rcParams['figure.dpi'] = 100", "plt.style.use('x')", "import matplotlib.pyplot as plt",
    "def draw():\n    plt.plot(x)", "%matplotlib inline", "viz.poke(v, g)", "plt.close()",
])
def test_cells_that_draw_nothing_need_no_alt_text(source, make_notebook, make_code):
    assert list(figure_rules.images_have_alt_text(make_notebook(make_code(source)))) == []


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
