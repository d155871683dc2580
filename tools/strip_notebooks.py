"""Take the outputs out of notebooks, in place, and write them in one form so that changes read well.

    python tools/strip_notebooks.py                 all of notebooks/
    python tools/strip_notebooks.py FILE.ipynb ...
    python tools/strip_notebooks.py --check         change nothing, exit 1 where something would change
"""

import argparse
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
_KEPT_IN_NOTEBOOK = ("kernelspec", "language_info", "mystnb")
_KEPT_IN_CELL = ("tags", "mystnb")
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def strip(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook without outputs, execution counts and what editors leave in the metadata."""
    metadata = {key: value for key, value in notebook.metadata.items() if key in _KEPT_IN_NOTEBOOK}
    metadata |= {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    cells = [_strip_cell(cell) for cell in notebook.cells]
    return nbformat.from_dict({**notebook, "metadata": metadata, "cells": cells})


def _strip_cell(cell: NotebookNode) -> dict:
    stripped = {key: value for key, value in cell.items() if key in ("cell_type", "id", "source")}
    stripped["metadata"] = {key: value for key, value in cell.metadata.items() if key in _KEPT_IN_CELL}
    if cell.cell_type == "code":
        stripped |= {"execution_count": None, "outputs": []}
    return stripped


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Strip the outputs of notebooks.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of notebooks/")
    parser.add_argument("--check", action="store_true", help="only say what would change")
    options = parser.parse_args(argv)
    changed = 0
    for path in options.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb")):
        stripped = strip(nbformat.read(path, as_version=4))
        if nbformat.writes(stripped) + "\n" != path.read_text(encoding="utf-8"):
            changed += 1
            print(f"{path.name}: {'not stripped' if options.check else 'stripped'}")
            if not options.check:
                nbformat.write(stripped, path)
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
