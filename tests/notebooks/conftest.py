"""Notebooks for tests: those of the book, and small ones made up."""

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from caracal_book.rules.notebook_rules import SETUP


@pytest.fixture(scope="session")
def notebooks(root: Path) -> dict[str, NotebookNode]:
    """The book's notebooks by stem."""
    return {path.stem: nbformat.read(path, as_version=4) for path in (root / "notebooks").glob("*.ipynb")}


@pytest.fixture
def make_notebook() -> Callable[..., NotebookNode]:
    """Make a notebook of cells given as text (Markdown) or as dicts from `code`, after a title and the set-up cell."""

    def make(*cells: str | dict, title: str = "# A chapter\n\nWhy?", setup: bool = True) -> NotebookNode:
        head = [title, code(SETUP, tags=["setup", "remove-cell"])] if setup else [title]
        cells = [cell if isinstance(cell, dict) else {"cell_type": "markdown", "metadata": {}, "source": cell}
                 for cell in (*head, *cells)]
        metadata = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
        return nbformat.from_dict({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4})

    return make


@pytest.fixture
def make_code() -> Callable[..., NotebookNode]:
    return code


def code(source: str, *, tags: list[str] | None = None, alt: str | None = None, prints: str | None = None,
         count: int | None = None) -> NotebookNode:
    """Make a code cell; `prints` is what it has written to stdout."""
    metadata = {}
    if tags:
        metadata["tags"] = tags
    if alt is not None:
        metadata["mystnb"] = {"image": {"alt": alt}}
    outputs = [] if prints is None else [{"output_type": "stream", "name": "stdout", "text": prints}]
    return nbformat.from_dict({"cell_type": "code", "metadata": metadata, "source": source, "outputs": outputs,
                               "execution_count": count})
