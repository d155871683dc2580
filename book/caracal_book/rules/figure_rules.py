"""The rules on what a chapter shows: its figure first, captions, alt texts, and code that only draws out of the way.

`notebook_rules` applies them with the others.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from .cells import STEM, calls, code_cells, markdown_cells, number_of, parse
from .ledger import asserts_something
from .printed_values import Problem, cell_tags

OPENING = "opening-figure"  # the tag of the cell that shows a chapter's first figure
STAND = "where-we-stand"  # and of the one with the drawing under its title, which is no figure with a number
GOALS = re.compile(r"\*\*After this (?:chapter|investigation) you will be able to\*\*")

CAPTION = re.compile(r"\*\*Figure (\d+|[A-Z])\.(\d+)\.(?:\*\*)? \S")
_REFERENCE = re.compile(r"\bFigure (\d+|[A-Z])\.(\d+)")
_IMAGE = re.compile(r"!\[(.*?)\]\(|<img\b(?![^>]*\balt=\"([^\"]+)\")")
_QUIET = {"rcParams", "style", "close", "switch_backend", "rc"}


def opens_with_its_figure(notebook: dict) -> Iterator[Problem]:
    """A chapter begins with its question; a live figure poses it, before the goals and the imports."""
    cells = [cell for cell in notebook["cells"] if STAND not in cell_tags(cell)]
    question, _, figure, goals = [*cells, *[{"cell_type": "raw", "source": ""}] * 4][:4]
    if "?" not in question["source"] or "**" in question["source"]:
        yield Problem(0, "the first cell is the title and the question of the chapter, and nothing after it")
    if OPENING not in cell_tags(figure) or not _shows_figure(figure):
        yield Problem(2, f"the third cell shows the figure that poses the question; tag it '{OPENING}'")
    caption = CAPTION.match(goals["source"])
    if goals["cell_type"] != "markdown" or not caption or caption[2] != "1" or not GOALS.search(goals["source"]):
        yield Problem(3, "the fourth cell is the caption, '**Figure N.1.** ...', and the goals, "
                         "'**After this chapter you will be able to**'")


def machinery_is_folded(notebook: dict) -> Iterator[Problem]:
    """A page leaves out set-up and the first figure's code, and folds imports and cells that only draw."""
    for index, tag in folds(notebook):
        if tag not in cell_tags(notebook["cells"][index]):
            yield Problem(index, f"lacks the tag '{tag}': on the page it stands between the reader and the matter")


def folds(notebook: dict) -> Iterator[tuple[int, str]]:
    """Yield the cells whose code a page does not show at once, and the tag that says so; Colab shows all of them."""
    drawing = _drawing_functions(notebook)
    for index, cell in code_cells(notebook):
        if "setup" in cell_tags(cell):
            yield index, "remove-cell"
        elif "viz.where_we_stand(" in cell["source"]:
            yield from ((index, STAND), (index, "remove-input"))
        elif OPENING in cell_tags(cell):
            yield index, "remove-input"
        elif not asserts_something(cell) and (_imports(cell) or _shows_figure(cell) or _draws(cell["source"], drawing)):
            yield index, "hide-input"


def captions_are_numbered(notebook: dict) -> Iterator[Problem]:
    """Each figure has a caption, '**Figure 4.2.** ...', counted from 1 on, and it begins the cell behind the figure."""
    drawing, count = _drawing_functions(notebook), 0
    for index, (cell, below) in enumerate(pairwise([*notebook["cells"], {"cell_type": "raw", "source": ""}])):
        drawn = cell["cell_type"] == "code" and (_shows_figure(cell) or _draws(cell["source"], drawing))
        text = below["source"] if below["cell_type"] == "markdown" else ""
        caption = CAPTION.match(text)
        count += drawn
        if drawn and caption is None:
            yield Problem(index, f"has no caption: begin the cell below with '**Figure N.{count}.** ...'")
        elif drawn and int(caption[2]) != count:
            yield Problem(index + 1, f"'Figure {caption[1]}.{caption[2]}.': number {count} is next")
        for found in CAPTION.finditer(text):
            if found.start() or not drawn:
                yield Problem(index + 1, f"'{found[0][:-2]}' must begin the cell behind a drawing")


def figures_exist(notebooks: Mapping[str, dict]) -> list[tuple[str, Problem]]:
    """Hold captions and references of several notebooks, by stem, against each other.

    'Figure 4.2' is in chapter 4, 'Figure A.2' in investigation A.
    """
    captions = {stem: {found.groups() for _, text in markdown_cells(notebook)
                       for found in CAPTION.finditer(text)} for stem, notebook in notebooks.items()}
    known = set().union(*captions.values())
    chapters = {number_of(stem) for stem in notebooks if STEM.fullmatch(stem)}
    problems = []
    for stem, notebook in notebooks.items():
        for index, text in markdown_cells(notebook):
            problems += [(stem, Problem(index, f"'Figure {found[1]}.{found[2]}' is the number of another chapter"))
                         for found in CAPTION.finditer(text) if found[1] != number_of(stem)]
            problems += [(stem, Problem(index, f"there is no '{found[0]}'")) for found in _REFERENCE.finditer(text)
                         if found[1] in chapters and found.groups() not in known]
    return problems


def images_have_alt_text(notebook: dict) -> Iterator[Problem]:
    """A cell that draws says in its metadata, in words, what the picture shows."""
    drawing = _drawing_functions(notebook)
    for index, cell in code_cells(notebook):
        alt = cell.get("metadata", {}).get("mystnb", {}).get("image", {}).get("alt", "")
        if _draws(cell["source"], drawing) and len(alt.split()) < 3:
            yield Problem(index, "draws a picture; say in its metadata, mystnb.image.alt, what it shows")
    for index, text in markdown_cells(notebook):
        if any(not (found[1] or found[2]) for found in _IMAGE.finditer(text)):
            yield Problem(index, "shows an image without alt text")


def _imports(cell: dict) -> bool:
    """Whether a cell does little more than import, and neither prints nor defines anything."""
    body = parse(cell["source"]).body
    imports = sum(isinstance(node, ast.Import | ast.ImportFrom) for node in body)
    said = any(ast.unparse(call.func) == "print" for call in calls(body))
    return 2 * imports > len(body) and not said and not any(isinstance(n, ast.FunctionDef | ast.ClassDef) for n in body)


def _shows_figure(cell: dict) -> bool:
    """Whether the last value of a code cell is a figure of caracal_book.viz."""
    body = parse(cell["source"]).body if cell["cell_type"] == "code" else []
    value = body[-1].value if body and isinstance(body[-1], ast.Expr) else None
    name = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
    return name == "model_diagram" or (
        name.startswith("viz.") and name not in ("viz.use_style", "viz.where_we_stand"))


def _uses_pyplot(nodes: list[ast.AST]) -> bool:
    for call in calls(nodes):
        root, *path = ast.unparse(call.func).split(".")
        if root == "plt" and path and path[0] not in _QUIET:
            return True
    return False


def _drawing_functions(notebook: dict) -> set[str]:
    """Return the names of functions, defined in the notebook, that draw when they are called."""
    return {node.name for _, cell in code_cells(notebook) for node in ast.walk(parse(cell["source"]))
            if isinstance(node, ast.FunctionDef) and _uses_pyplot(node.body)}


def _draws(code: str, drawing: set[str]) -> bool:
    """Whether running the code draws with pyplot, itself or through a function of the notebook."""
    run = [node for node in parse(code).body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return _uses_pyplot(run) or any(ast.unparse(call.func) in drawing for call in calls(run))


RULES = (opens_with_its_figure, machinery_is_folded, captions_are_numbered, images_have_alt_text)
