"""A notebook, as `nbformat` reads it: its cells by kind, its code as syntax trees, its question and its minutes.

Its name says its number: chapters have numbers, `04_causal_convolution`, investigations letters, `a_compare_or_carry`.
"""

import ast
import re
from collections.abc import Iterator

STEM = re.compile(r"(\d\d|[a-z])_[a-z0-9_]+")
_MINUTES = re.compile(r"\*\*Time:\*\*\s+about\s+(\d+)\s+minutes,[^.]*\sand\s+(\d+)\s+for\s+the\s+exercises")


def code_cells(notebook: dict) -> Iterator[tuple[int, dict]]:
    return ((index, cell) for index, cell in enumerate(notebook["cells"]) if cell["cell_type"] == "code")


def markdown_cells(notebook: dict) -> Iterator[tuple[int, str]]:
    return ((i, cell["source"]) for i, cell in enumerate(notebook["cells"]) if cell["cell_type"] == "markdown")


def parse(code: str) -> ast.Module:
    """Parse the code of a cell, with IPython's magics taken out."""
    return ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", code, flags=re.MULTILINE))


def calls(nodes: list[ast.AST]) -> Iterator[ast.Call]:
    return (node for root in nodes for node in ast.walk(root) if isinstance(node, ast.Call))


def number_of(stem: str) -> str:
    """Return the number of a chapter or the letter of an investigation, by its file's name: 4, or A."""
    return stem.partition("_")[0].lstrip("0").upper()


def heading_of(stem: str) -> str:
    """Return how a page says its number: Chapter 4, or Investigation A."""
    return f"{'Chapter' if stem[0].isdigit() else 'Investigation'} {number_of(stem)}"


def question_of(notebook: dict) -> tuple[str, str]:
    """Return the title of a chapter and the last question of its first cell, as plain text."""
    title, _, text = notebook["cells"][0]["source"].partition("\n")
    plain = re.sub(r"<!--.*?-->|[*`$\\]", "", " ".join(text.split()))
    questions = re.findall(r"[^.?]+\?", plain)
    return title.lstrip("# "), questions[-1].strip() if questions else ""


def minutes_of(notebook: dict) -> tuple[int, int]:
    """Return how long a chapter, and its exercises, take, as it says itself; ValueError where it does not say."""
    text = "\n".join(cell["source"] for cell in notebook["cells"][:6] if cell["cell_type"] == "markdown")
    if (found := _MINUTES.search(text)) is None:
        raise ValueError("a chapter says how long it takes: '**Time:** about 50 minutes, and 60 for the exercises'")
    return int(found[1]), int(found[2])
