"""The rules that every notebook of the book keeps, as functions from a notebook to the problems in it.

A notebook is what `nbformat` reads, as in `printed_values`.  `python -m caracal_book.rules` runs all rules from the
command line; the rule on claims is `ledger.check_claims`.
"""

import ast
import re
from collections.abc import Callable, Iterator

from . import figure_rules
from .cells import calls, code_cells, markdown_cells, parse
from .ledger import NOT_TESTED, asserts_something
from .printed_values import Problem, cell_tags
from .prose_numbers import quotes

LONGEST_CELL = 40
SETUP = '''\
SOURCE = ".."  # the repository around this notebook; in the published notebooks, its address
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("caracal_min") is None:
    if importlib.util.find_spec("torch") is not None:  # it is kept as it is
        import torch
        if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
            sys.exit(f"The book needs torch 2.6 or newer, and here is {torch.__version__}: upgrade it.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-color", SOURCE, "matplotlib",
           "anywidget"]
    if (done := subprocess.run(pip, capture_output=True, text=True)).returncode:
        said = (done.stderr.strip() or "nothing").splitlines()
        said = next((line.strip() for line in reversed(said)
                     if line.strip().lower().startswith("error")), said[-1])
        sys.exit(f"{SOURCE} cannot be installed; check the network and this address, or use "
                 f"a virtual environment. pip said: {said}")
    importlib.invalidate_caches()
import caracal_min'''

_ROLE = re.compile(r"(?<!`)\{[a-z][a-z:-]*\}`[^`]+`")
_DIRECTIVE = re.compile(r"^\s*(`{3,}|:{3,})\s*\{[a-z][a-z:-]*\}", re.MULTILINE)
_TARGET = re.compile(r"^\([\w-]+\)=\s*$", re.MULTILINE)
_HEADING = re.compile(r"^(#{1,6}) +(.+?)\s*$", re.MULTILINE)
_EXERCISE = re.compile(r"Exercise (\d+): \S.* \((easy|medium|hard), (\d+) minutes\)")
_TIME = re.compile(r"\*\*Time:\*\*\s+about\s+\d+\s+minutes,[^.]*\sand\s+(\d+)\s+for\s+the\s+exercises\.")

_SHOWN = re.compile(r"(viz|check)\..+|print|Markdown|model_diagram|ax\.tick_params"  # or these return nothing
                    r"|torch\.set_(num_threads|default_dtype)")
_QUIET_END = re.compile(r";[ \t]*(#.*)?\s*\Z")
_HEADER = re.compile(r"^\|(?P<cells>.*)\|[ \t]*\n\|[ :|-]*-[ :|-]*\|[ \t]*$", re.MULTILINE)

Rule = Callable[[dict], Iterator[Problem]]


def outputs_are_stripped(notebook: dict) -> Iterator[Problem]:
    """The repository holds no outputs and no execution counts: the build makes them."""
    for index, cell in code_cells(notebook):
        if cell.get("outputs"):
            yield Problem(index, "carries outputs; run tools/strip_notebooks.py")
        if cell.get("execution_count") is not None:
            yield Problem(index, "carries an execution count; run tools/strip_notebooks.py")


def cells_are_short(notebook: dict) -> Iterator[Problem]:
    for index, cell in code_cells(notebook):
        lines = len(cell["source"].splitlines())
        if lines > LONGEST_CELL:
            yield Problem(index, f"has {lines} lines; a cell has at most {LONGEST_CELL}, better 3 to 7")


def setup_comes_first(notebook: dict) -> Iterator[Problem]:
    """The first code cell is the set-up cell, letter for letter the same in every notebook."""
    index, cell = next(code_cells(notebook), (0, None))
    if cell is None or cell["source"].strip() != SETUP:
        yield Problem(index, "the first code cell must be the set-up cell as in caracal_book/rules/notebook_rules.py")
    elif "setup" not in cell_tags(cell):
        yield Problem(index, "the set-up cell lacks the tag 'setup'")


def markdown_is_plain(notebook: dict) -> Iterator[Problem]:
    """MyST roles, directives and targets show as raw text in Colab and JupyterLab."""
    for index, text in markdown_cells(notebook):
        for pattern, name in ((_ROLE, "role"), (_DIRECTIVE, "directive"), (_TARGET, "target")):
            found = pattern.search(text)
            if found:
                yield Problem(index, f"the MyST {name} '{found[0].strip()}' shows raw outside the pages")


def columns_have_names(notebook: dict) -> Iterator[Problem]:
    """A screen reader says the name of a column before each of its cells; axe calls a column without one an error."""
    for index, text in markdown_cells(notebook):
        for header in _HEADER.finditer(_without_fences(text)):
            if not all(cell.strip() for cell in header["cells"].split("|")):
                yield Problem(index, f"'{header[0].splitlines()[0]}' leaves a column of a table without a name")


def nothing_is_shown_by_accident(notebook: dict) -> Iterator[Problem]:
    """A notebook shows the value of a cell's last line: of a figure that is meant, of a model it is a page of text."""
    own = {node.name for _, cell in code_cells(notebook) for node in parse(cell["source"]).body
           if isinstance(node, ast.FunctionDef)}
    for index, cell in code_cells(notebook):
        last = next(reversed(parse(cell["source"]).body), None)
        if isinstance(last, ast.Expr) and not _QUIET_END.search(cell["source"]):
            name = ast.unparse(last.value.func) if isinstance(last.value, ast.Call) else ""
            if name not in own and not _SHOWN.fullmatch(name):
                yield Problem(index, f"'{ast.unparse(last).splitlines()[0]}' shows its value under the cell; "
                                     "assign it, or end the line with ';'")


def something_is_asserted(notebook: dict) -> Iterator[Problem]:
    if not any(asserts_something(cell) for _, cell in code_cells(notebook)):
        yield Problem(-1, "asserts nothing; every chapter checks what it says")


def nothing_passes_in_silence(notebook: dict) -> Iterator[Problem]:
    """A cell that may skip an assert prints `not tested here: why` instead, at which the build of the book stops."""
    for index, cell in code_cells(notebook):
        for node in _run_once(parse(cell["source"])):
            if _may_skip(node):
                line = ast.unparse(node).splitlines()[0]
                yield Problem(index, f"'{line}' may pass without a test; print '{NOT_TESTED}: why' where it does")


def models_are_where_the_ids_are(notebook: dict) -> Iterator[Problem]:
    """A chapter says where a trained model goes: left alone it goes to a GPU, and the ids of a chapter do not."""
    for index, cell in code_cells(notebook):
        for node in ast.walk(parse(cell["source"])):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "from_pretrained" and not any(
                    word.arg == "device" for word in node.keywords):
                yield Problem(index, f"'{ast.unparse(node)}' stops where there is a GPU; add device=\"cpu\"")


def headings_nest(notebook: dict) -> Iterator[Problem]:
    """One title, in the first cell, and no level skipped below it."""
    level = 0
    for index, text in markdown_cells(notebook):
        for mark, title in _HEADING.findall(_without_fences(text)):
            if (len(mark) == 1) != (level == 0):
                yield Problem(index, f"'{title}': a notebook begins with its only title, '# ...'")
            elif len(mark) > level + 1:
                yield Problem(index, f"'{title}' skips a heading level")
            level = len(mark)
    if level == 0:
        yield Problem(-1, "has no title")


def exercises_can_be_checked(notebook: dict) -> Iterator[Problem]:
    """Exercises are numbered from 1, say how hard and how long, and hand an unwritten function to a checker."""
    sections = list(exercise_sections(notebook))
    if not 3 <= len(sections) <= 5:
        yield Problem(-1, f"has {len(sections)} exercises; a chapter has 3 to 5")
    for number, (index, title, code) in enumerate(sections, start=1):
        match = _EXERCISE.fullmatch(title)
        if match is None or int(match[1]) != number:
            yield Problem(index, f"'{title}' should read 'Exercise {number}: title (easy|medium|hard, M minutes)'")
        name = _exercise_name(code)
        if name is None:
            yield Problem(index, f"'{title}' needs a function with a docstring whose body is "
                                 "'raise NotImplementedError', followed by check.name(name)")


def the_time_counts_the_exercises(notebook: dict) -> Iterator[Problem]:
    """A chapter says beside its own minutes those of its exercises, whose headings give them one by one."""
    found = [_EXERCISE.fullmatch(title) for _, title, _ in exercise_sections(notebook)]
    minutes = sum(int(match[3]) for match in found if match)
    for index, text in markdown_cells(notebook):
        if "**Time:**" in text and ((stated := _TIME.search(text)) is None or int(stated[1]) != minutes):
            yield Problem(index, f"the exercises take {minutes} minutes by their headings; the chapter should say "
                                 f"'**Time:** about M minutes, and {minutes} for the exercises.'")


def numbers_are_named_well(notebook: dict) -> Iterator[Problem]:
    """Each comment behind a number in the text follows the protocol of `prose_numbers`."""
    for index, text in markdown_cells(notebook):
        yield from (Problem(index, quote) for quote in quotes(text) if isinstance(quote, str))


RULES: tuple[Rule, ...] = (
    outputs_are_stripped, cells_are_short, setup_comes_first, markdown_is_plain, columns_have_names,
    nothing_is_shown_by_accident, something_is_asserted, nothing_passes_in_silence, models_are_where_the_ids_are,
    headings_nest, exercises_can_be_checked, the_time_counts_the_exercises, numbers_are_named_well,
    *figure_rules.RULES,
)


def check(notebook: dict) -> list[Problem]:
    """Apply every rule."""
    return [problem for rule in RULES for problem in rule(notebook)]


def exercise_sections(notebook: dict) -> Iterator[tuple[int, str, str]]:
    """Yield (cell index, heading, all code up to the next heading) of each exercise."""
    section: tuple[int, str] | None = None
    code: list[str] = []
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            code.append(cell["source"])
            continue
        for mark, title in _HEADING.findall(_without_fences(cell["source"])):
            if section is not None:
                yield *section, "\n".join(code)
            section, code = ((index, title) if mark == "###" and title.startswith("Exercise") else None), []
    if section is not None:
        yield *section, "\n".join(code)


def _exercise_name(code: str) -> str | None:
    tree = parse(code)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        last = function.body[-1]
        unwritten = isinstance(last, ast.Raise) and ast.unparse(last) == "raise NotImplementedError"
        checked = f"check.{function.name}({function.name})" in ast.unparse(tree)
        if unwritten and checked and len(function.body) == 2 and ast.get_docstring(function):
            return function.name
    return None


def _without_fences(text: str) -> str:
    return re.sub(r"^(`{3,}|~{3,}).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)


def _run_once(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node, without what is inside functions, classes and loops."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.ClassDef | ast.For | ast.While):
            yield child
            yield from _run_once(child)


def _may_skip(node: ast.AST) -> bool:
    """Whether a statement may leave an assert out without a word: `assert SWITCH or ...`, or a branch without one."""
    if isinstance(node, ast.Assert):
        ways = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or) else []
        return any(isinstance(way.operand if isinstance(way, ast.UnaryOp) else way, ast.Name) for way in ways)
    branches = _branches(node)
    asserts = [any(isinstance(inner, ast.Assert) for part in branch for inner in ast.walk(part)) for branch in branches]
    return any(asserts) and not all(tested or _ends_or_says_so(branch)
                                    for tested, branch in zip(asserts, branches, strict=True))


def _branches(node: ast.AST) -> list[list[ast.stmt]]:
    """Return the ways through an `if` with its `elif`s, or through a `try`; none for other nodes."""
    if isinstance(node, ast.If):
        otherwise = _branches(node.orelse[0]) if len(node.orelse) == 1 else []
        return [node.body, *(otherwise or [node.orelse])]
    if isinstance(node, ast.Try):
        return [node.body + node.orelse, *(handler.body for handler in node.handlers)]
    return []


def _ends_or_says_so(branch: list[ast.stmt]) -> bool:
    """Whether a branch raises an error, or prints a text that begins with `not tested here: `."""
    for call in calls(branch):
        if ast.unparse(call.func) == "print" and call.args:
            text = call.args[0]
            if isinstance(text, ast.JoinedStr) and text.values:
                text = text.values[0]
            if isinstance(text, ast.Constant) and str(text.value).startswith(f"{NOT_TESTED}: "):
                return True
    return any(isinstance(inner, ast.Raise) for part in branch for inner in ast.walk(part))
