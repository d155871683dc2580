"""Notebooks for tests: those of the book, and small ones made up; small books of them, built."""

import io
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

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
def build_book(tmp_path) -> Callable[..., tuple[str, Path]]:
    """A function that builds a book of files by name, texts and notebooks, and returns warnings and folder of it."""
    def run(files: dict[str, str | NotebookNode], *parts: str, mode: str = "off", **also) -> tuple[str, Path]:
        source, html, warnings = tmp_path / "source", tmp_path / "html", io.StringIO()
        for folder in ("book", "notebooks"):
            (source / folder).mkdir(parents=True, exist_ok=True)
        for name, content in ({"book/claims.yml": "{}"} | files).items():
            if not isinstance(content, str):
                content["metadata"]["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
                content = nbformat.writes(content)
            (source / name).write_text(content, encoding="utf-8")
        settings = {"extensions": ["myst_nb", *(f"bookext.{part}" for part in parts)], "nb_execution_mode": mode,
                    "language": "en", "myst_enable_extensions": ["dollarmath", "amsmath"], **also}
        with docutils_namespace():
            Sphinx(source, None, html, tmp_path / "doctrees", "html", settings, status=None, warning=warnings,
                   freshenv=True).build()
        return warnings.getvalue(), html

    return run


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
