"""Write the set-up cell, as the rules of the notebooks have it, into every notebook, in place.

    python tools/write_setup.py [NOTEBOOK...]
"""

import argparse
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from caracal_book.rules.notebook_rules import SETUP  # noqa: E402


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the set-up cell of the rules into notebooks.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of notebooks/")
    for path in parser.parse_args(argv).notebooks or sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if "setup" in cell.metadata.get("tags", []):
                cell.source = SETUP
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
