"""Check the book's notebooks against its rules, and their claim tags against the ledger::

    python -m caracal_book.rules                 all of notebooks/
    python -m caracal_book.rules FILE.ipynb ...

Exit status 1, and one line a problem, when a rule is broken.
"""

import argparse
import sys
from pathlib import Path

import nbformat

from . import figure_rules, notebook_rules
from .ledger import check_boxes, check_claims, read_ledger

ROOT = Path(__file__).resolve().parents[3]


def problems_of(paths: list[Path], ledger: Path | None) -> list[str]:
    """Return a line for each broken rule; claims are checked where a ledger is given."""
    notebooks = {path.stem: nbformat.read(path, as_version=4) for path in paths}
    found = [(stem, problem) for stem, notebook in notebooks.items() for problem in notebook_rules.check(notebook)]
    found += figure_rules.figures_exist(notebooks)
    if ledger is not None:
        claims = read_ledger(ledger)
        found += check_claims(claims, notebooks) + check_boxes(claims, notebooks)
    return [f"{stem}{f', cell {problem.cell}' if problem.cell >= 0 else ''}: {problem.message}"
            for stem, problem in found]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check notebooks against the rules of the book.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of notebooks/, and their claims")
    given = parser.parse_args(argv).notebooks
    paths = given or sorted((ROOT / "notebooks").glob("*.ipynb"))
    try:
        lines = problems_of(paths, None if given else ROOT / "book" / "claims.yml")
    except ValueError as error:
        lines = [f"claims.yml: {error}"]
    print("\n".join(lines) if lines else f"{len(paths)} notebooks keep the rules")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
