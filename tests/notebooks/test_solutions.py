"""The solutions of the book: each exercise has one, and its checker accepts it."""

import importlib
import re
from pathlib import Path

import pytest

from caracal_book.rules.notebook_rules import exercise_names

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_DROPDOWN = re.compile(r"^:::\{dropdown\}.*?^:::$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[str]:
    """Return the Python blocks of a page that stand in a dropdown, in order."""
    return [block for dropdown in _DROPDOWN.findall(page) for block in _BLOCK.findall(dropdown)]


def defined_by(source: str) -> dict:
    """Run a block by itself, as a reader would paste it into the cell of the exercise."""
    namespace = {"__name__": "solution"}
    exec(compile(source, "solution", "exec"), namespace)
    return namespace


PAGES = sorted((ROOT / "book" / "solutions").glob("*_*.md"))


def test_there_are_solutions():
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_solutions_pass_their_checkers(page, notebooks, capsys):
    checkers = importlib.import_module(f"caracal_book.exercises.{page.stem.partition('_')[2]}")
    names = exercise_names(notebooks[page.stem])
    solutions = {}
    for source in blocks(page.read_text(encoding="utf-8")):
        namespace = defined_by(source)
        solutions |= {name: namespace[name] for name in names if name in namespace}
    assert sorted(solutions) == sorted(names) == sorted(checkers.__all__)
    for name in names:
        getattr(checkers, name)(solutions[name])
        assert capsys.readouterr().out.startswith(f"{name}: correct for ")


def test_blocks_outside_a_dropdown_are_not_solutions():
    page = "```python\na = 1\n```\n\n:::{dropdown} Show\nText.\n\n```python\nb = 2\n```\n:::\n\n```python\nc = 3\n```\n"
    assert blocks(page) == ["b = 2\n"]
    assert defined_by("b = 2\n")["b"] == 2
