"""Checkers for the book's exercises: one module a chapter or investigation, one function an exercise.

A checker takes the reader's function.  It prints one line when the function is right or not written yet, and
raises AssertionError with the failing case when it is wrong.
"""

import functools
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["checker", "expect_close", "expect_equal", "expect_numbers"]


def checker(check: Callable[[Callable[..., Any]], str]) -> Callable[[Callable[..., Any]], None]:
    """Turn a function that tries an answer and returns what it tried into a checker that reports.

    The exercise has the checker's name.  A bare `raise NotImplementedError` in the answer means that the
    reader has not come to it yet; one with a message (torch raises such) is an error like any other.

    Raises:
        TypeError: the answer is not a function.
    """

    @functools.wraps(check)
    def report(answer: Callable[..., Any]) -> None:
        name = check.__name__
        if not callable(answer):
            raise TypeError(f"check.{name} was given a {type(answer).__name__}; "
                            f"give the function itself, without calling it: check.{name}({name})")
        try:
            tried = check(answer)
        except NotImplementedError as error:
            if error.args:
                raise
            print(f"{name}: not answered yet")
            return
        print(f"{name}: correct for {tried}")

    return report


def expect_equal(case: str, given: Any, expected: Any) -> None:
    """Raise AssertionError, naming the case, unless given == expected and both are of one kind."""
    if type(given) is not type(expected) or given != expected:
        raise AssertionError(f"{case}: expected {expected!r}, given {given!r}")


def expect_close(case: str, given: Any, expected: Tensor, tolerance: float = 1e-9) -> None:
    """Raise AssertionError, naming the case and the first wrong entry, unless given is close to expected.

    `tolerance` is relative to the largest expected entry (to 1 where all are smaller).  Shape and dtype
    must agree too.
    """
    if not isinstance(given, Tensor):
        raise AssertionError(f"{case}: expected a tensor, given a {type(given).__name__}")
    for what in ("shape", "dtype"):
        if getattr(given, what) != getattr(expected, what):
            raise AssertionError(f"{case}: expected {what} {_plain(getattr(expected, what))}, "
                                 f"given {_plain(getattr(given, what))}")
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    wrong = ~((given - expected).abs() <= tolerance * scale)  # also where given is nan
    if wrong.any():
        index = tuple(int(i) for i in wrong.nonzero()[0])
        place = ", ".join(map(str, index))
        right, other = _told_apart(float(expected[index]), float(given[index]))
        raise AssertionError(f"{case}: entry [{place}] should be {right}, given {other}; "
                             f"{int(wrong.sum())} of {wrong.numel()} differ")


def expect_numbers(case: str, given: object, names: tuple[str, ...]) -> dict[str, float]:
    """Return the numbers of an answer by their names, whatever holds them: float, NumPy, a tensor of one entry.

    Raises AssertionError, naming the case, where there are more or fewer, or where one is no real number.
    """
    wanted = f"({', '.join(names)})"
    try:
        values = tuple(given)
    except TypeError:
        raise AssertionError(f"{case}: expected {wanted}, given a {type(given).__name__}") from None
    if len(values) != len(names):
        raise AssertionError(f"{case}: expected {len(names)} numbers {wanted}, given {len(values)}")
    found = {}
    for name, value in zip(names, values, strict=True):
        value = value.item() if isinstance(value, Tensor | np.ndarray) and len(value.reshape(-1)) == 1 else value
        if isinstance(value, bool) or not isinstance(value, Real):
            raise AssertionError(f"{case}: {name} expected as a number, given a {type(value).__name__}")
        found[name] = float(value)
    return found


def _told_apart(a: float, b: float) -> tuple[str, str]:
    """Write two numbers with six digits, or with as many as it takes to see that they differ."""
    return next(((f"{a:.{digits}g}", f"{b:.{digits}g}") for digits in range(6, 17)
                 if f"{a:.{digits}g}" != f"{b:.{digits}g}"), (repr(a), repr(b)))


def _plain(x: Any) -> str:
    return str(tuple(x)) if isinstance(x, torch.Size) else str(x).removeprefix("torch.")
