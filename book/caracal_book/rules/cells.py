"""The parts of a notebook, as `nbformat` reads it: its cells by kind, and the code as syntax trees."""

import ast
import re
from collections.abc import Iterator


def code_cells(notebook: dict) -> Iterator[tuple[int, dict]]:
    return ((index, cell) for index, cell in enumerate(notebook["cells"]) if cell["cell_type"] == "code")


def markdown_cells(notebook: dict) -> Iterator[tuple[int, str]]:
    return ((i, cell["source"]) for i, cell in enumerate(notebook["cells"]) if cell["cell_type"] == "markdown")


def parse(code: str) -> ast.Module:
    """Parse the code of a cell, with IPython's magics taken out."""
    return ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", code, flags=re.MULTILINE))


def calls(nodes: list[ast.AST]) -> Iterator[ast.Call]:
    return (node for root in nodes for node in ast.walk(root) if isinstance(node, ast.Call))
