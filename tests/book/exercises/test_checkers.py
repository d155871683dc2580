"""The exercises: each solution of the book passes its checker, and a famous mistake hears what kind it is."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch
from mistakes import MISTAKES

import caracal_book.exercises as exercises

ROOT = Path(__file__).resolve().parents[3]
MODULES = [importlib.import_module(f"caracal_book.exercises.{module.name}")
           for module in pkgutil.iter_modules(exercises.__path__) if module.name != "counting"]
CHECKERS = {name: getattr(module, name) for module in MODULES for name in module.__all__}


def solutions(page):
    """Return the source of each solution on a page, by the name of its exercise."""
    text = (ROOT / "book" / "solutions" / f"{page}.md").read_text(encoding="utf-8")
    folded = "".join(re.findall(r"^:::\{dropdown\}.*?^:::$", text, re.MULTILINE | re.DOTALL))
    blocks = re.findall(r"^```python\n(.*?)^```", folded, re.MULTILINE | re.DOTALL)
    return {re.findall(r"^def (\w+)", block, re.MULTILINE)[-1]: block for block in blocks}


def answer(source, exercise):
    """Run a solution by itself, as a reader would paste it into the cell of the exercise."""
    torch.manual_seed(0)
    namespace = {"__name__": "solution"}
    exec(source, namespace)
    return namespace[exercise]


@pytest.mark.parametrize("page", sorted(path.stem for path in (ROOT / "book" / "solutions").glob("*_*.md")))
def test_each_exercise_has_a_solution_that_its_checker_accepts(page, capsys):
    found = solutions(page)
    notebook = (ROOT / "notebooks" / f"{page}.ipynb").read_text(encoding="utf-8")
    assert set(re.findall(r"check\.(\w+)\(\1\)", notebook)) == set(found) == {row[0] for row in MISTAKES[page]}
    for exercise, source in found.items():
        CHECKERS[exercise](answer(source, exercise))
        assert capsys.readouterr().out.startswith(f"{exercise}: correct for ")


@pytest.mark.parametrize("page, exercise, mistake, old, new, says", [
    pytest.param(page, *row, id=f"{row[0]}: {row[1]}") for page, rows in MISTAKES.items() for row in rows])
def test_a_famous_mistake_is_told(page, exercise, mistake, old, new, says):
    source = solutions(page)[exercise]
    assert source.count(old) == 1, "the solution no longer has the line that this mistake changes"
    with pytest.raises(exercises.Wrong) as error:
        CHECKERS[exercise](answer(source.replace(old, new), exercise))
    message = str(error.value)
    assert says in message and "\n" not in message and len(message) < 600 and message.startswith(exercise)
    assert error.value._render_traceback_() == [message]  # what a notebook shows
    numbers = re.search(r"(?:should be|expected) (\S+), given ([^\s;]+)", message)
    assert numbers is None or numbers[1] != numbers[2]


def test_blank_broken_and_called_answers(capsys):
    """A blank answer is reported, an error inside an answer is not hidden, and a call for a function is told."""
    def blank(x):
        raise NotImplementedError

    def broken(x):
        raise NotImplementedError("no kernel for this dtype")

    CHECKERS["causal_average"](blank)
    assert capsys.readouterr().out == "causal_average: not answered yet\n"
    with pytest.raises(NotImplementedError, match="no kernel"):
        CHECKERS["causal_average"](broken)
    with pytest.raises(TypeError, match="give the function itself"):
        CHECKERS["causal_average"](3)


@pytest.mark.parametrize("given, right, told", [
    (torch.tensor([3.0]), 3, ""), ((1, 2), [1, 2], ""), (None, True, "is a return missing"), (1, True, "expected True"),
    (torch.tensor([1.0, 2.0]), {"a": 1.0, "b": 2.0}, ""), ((1.0,), {"a": 1.0, "b": 2.0}, "expected (a, b), given 1"),
    (torch.ones(2, 2), (torch.ones(2), torch.ones(2)), "given a Tensor"), (float("nan"), 1.0, "given nan"),
    (torch.ones(2), torch.ones(2).double(), "expected dtype float64, given float32"),
    (torch.tensor(1 + 2j), torch.tensor(1 + 1j), "should be 1+1j, given 1+2j"), (1.0000004, 1.0, ""),
])
def test_what_counts_as_the_same_answer(given, right, told):
    found = exercises.difference(given, right)
    assert told in found and bool(told) == bool(found)
