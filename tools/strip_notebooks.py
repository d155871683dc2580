"""Take the outputs out of notebooks, in place, and write them in one form so that changes read well.

    python tools/strip_notebooks.py                 all of notebooks/
    python tools/strip_notebooks.py FILE.ipynb ...
    python tools/strip_notebooks.py --check         change nothing, exit 1 where something would change
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_KEPT_IN_NOTEBOOK = ("kernelspec", "language_info", "mystnb")
_KEPT_IN_CELL = ("tags", "mystnb")
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def strip(notebook: dict) -> dict:
    """Return the notebook without outputs, execution counts and what editors leave in the metadata."""
    metadata = {key: value for key, value in notebook["metadata"].items() if key in _KEPT_IN_NOTEBOOK}
    metadata["kernelspec"] = _KERNEL
    metadata["language_info"] = {"name": "python"}
    cells = [_strip_cell(cell) for cell in notebook["cells"]]
    return {"cells": cells, "metadata": metadata, "nbformat": notebook["nbformat"],
            "nbformat_minor": notebook["nbformat_minor"]}


def _strip_cell(cell: dict) -> dict:
    source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
    stripped = {key: value for key, value in cell.items() if key in ("cell_type", "id")}
    stripped["metadata"] = {key: value for key, value in cell.get("metadata", {}).items() if key in _KEPT_IN_CELL}
    stripped["source"] = source.splitlines(keepends=True)
    if cell["cell_type"] == "code":
        stripped |= {"execution_count": None, "outputs": []}
    return stripped


def written(notebook: dict) -> str:
    """Return the text of the .ipynb file, keys in a fixed order."""
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Strip the outputs of notebooks.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of notebooks/")
    parser.add_argument("--check", action="store_true", help="only say what would change")
    options = parser.parse_args(argv)
    changed = 0
    for path in options.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb")):
        before = path.read_text(encoding="utf-8")
        after = written(strip(json.loads(before)))
        if after != before:
            changed += 1
            print(f"{path.name}: {'not stripped' if options.check else 'stripped'}")
            if not options.check:
                path.write_text(after, encoding="utf-8")
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
