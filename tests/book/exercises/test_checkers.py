"""The exercises: each solution of the book passes its checker, and a famous mistake hears what kind it is."""

import importlib
import re
from pathlib import Path

import pytest
import torch
from mistakes import MISTAKES

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "book" / "solutions").glob("*_*.md"))


def solutions(page):
    """Return the source of each solution on a page, by the name of its exercise."""
    text = (ROOT / "book" / "solutions" / f"{page}.md").read_text(encoding="utf-8")
    folded = "".join(re.findall(r"^:::\{dropdown\}.*?^:::$", text, re.MULTILINE | re.DOTALL))
    blocks = re.findall(r"^```python\n(.*?)^```", folded, re.MULTILINE | re.DOTALL)
    return {re.findall(r"^def (\w+)", block, re.MULTILINE)[-1]: block for block in blocks}


def checker(page, exercise):
    return getattr(importlib.import_module(f"caracal_book.exercises.{page.partition('_')[2]}"), exercise)


def answer(source, exercise):
    """Run a solution by itself, as a reader would paste it into the cell of the exercise."""
    namespace = {"__name__": "solution"}
    exec(source, namespace)
    return namespace[exercise]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_exercise_has_a_solution_that_its_checker_accepts(page, capsys):
    found = solutions(page.stem)
    notebook = (ROOT / "notebooks" / f"{page.stem}.ipynb").read_text(encoding="utf-8")
    assert set(re.findall(r"check\.(\w+)\(\1\)", notebook)) == set(found)
    assert {exercise for exercise, *_ in MISTAKES[page.stem]} == set(found)
    for exercise, source in found.items():
        checker(page.stem, exercise)(answer(source, exercise))
        assert capsys.readouterr().out.startswith(f"{exercise}: correct for ")


CASES = [pytest.param(page, *row, id=f"{row[0]}: {row[1]}") for page, rows in MISTAKES.items() for row in rows]


@pytest.mark.parametrize("page, exercise, mistake, old, new, says", CASES)
def test_a_famous_mistake_is_told(page, exercise, mistake, old, new, says, capsys):
    source = solutions(page)[exercise]
    assert source.count(old) == 1, "the solution no longer has the line that this mistake changes"
    with pytest.raises(AssertionError) as error:
        checker(page, exercise)(answer(source.replace(old, new), exercise))
    message = str(error.value)
    assert says in message
    assert len(message) < 600
    assert capsys.readouterr().out == ""
    numbers = re.search(r"(?:should be|expected) (\S+), given ([^\s;]+)", message)
    assert numbers is None or numbers[1] != numbers[2]


def test_blank_broken_and_called_answers(capsys):
    """A blank answer is reported, an error inside an answer is not hidden, and a call for a function is told."""
    check = checker("01_mixing_tokens", "causal_average")

    def blank(x):
        raise NotImplementedError

    def broken(x):
        raise NotImplementedError("no kernel for this dtype")

    check(blank)
    assert capsys.readouterr().out == "causal_average: not answered yet\n"
    with pytest.raises(NotImplementedError, match="no kernel"):
        check(broken)
    with pytest.raises(TypeError, match="give the function itself"):
        check(3)


@pytest.mark.parametrize("number", [float, torch.tensor], ids=["float", "tensor"])
def test_a_number_may_come_in_any_form(number):
    source = solutions("11_how_fast")["product_intensity"]
    right = answer(source, "product_intensity")
    checker("11_how_fast", "product_intensity")(lambda *sizes: number(right(*sizes)))
