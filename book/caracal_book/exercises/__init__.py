"""Checkers for the book's exercises: one module a chapter or investigation, one function an exercise.

A checker takes the reader's function.  It prints one line when the function is right or not written yet, and raises
`Wrong` when it is not: one line that names the case and, where the answer is that of a famous mistake, its kind.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Number, Real
from os.path import commonprefix
from typing import Any

import torch
from torch import Tensor

__all__ = ["Wrong", "checker", "difference", "drawer", "ensure", "expect", "expect_verdicts"]


class Wrong(AssertionError):
    """What is wrong with an answer.  A notebook shows the message alone, because the checker's frames say nothing."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


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
            print(f"{name}: correct for {check(answer)}")
        except NotImplementedError as error:
            if error.args:
                raise
            print(f"{name}: not answered yet")

    return report


def drawer(seed: int) -> Callable[..., Tensor]:
    """Return a function that draws normal numbers of a shape, float64 unless told otherwise, from a fixed seed."""
    source = torch.Generator().manual_seed(seed)
    return lambda *shape, dtype=torch.float64: torch.randn(*shape, dtype=dtype, generator=source)


def ensure(fits: object, message: str) -> None:
    """Raise `Wrong` with a message unless an answer fits."""
    if not fits:
        raise Wrong(message)


def expect(case: str, given: Any, right: Any, famous: Mapping[str, Any] | None = None, tolerance: float = 1e-9) -> None:
    """Raise `Wrong`, naming the case, unless an answer is right.

    Args:
        given: the answer.
        right: a tensor, whose shape and dtype count; a number, which may come in any form; True, False, None, a list;
            or a dict or tuple of such parts, by name or without.
        famous: wrong answers by what they suggest, or functions of nothing that return one: the first that is the
            answer is told.
        tolerance: for tensors, relative to the largest entry, or to 1 where all are smaller; for numbers, relative, and
            1e-6 at least.
    """
    if told := difference(given, right, tolerance):
        hints = (f"; {hint}" for hint, wrong in (famous or {}).items()
                 if not difference(given, wrong() if callable(wrong) else wrong, tolerance))
        raise Wrong(f"{case}: {told}{next(hints, '')}")


def expect_verdicts(answer: Callable[..., bool], name: str, mixers: Mapping[str, tuple], sizes: Iterable[tuple]) -> str:
    """Check an answer that judges functions.

    Args:
        mixers: by what they are: the function, the right verdict, and what a wrong one suggests.
        sizes: further arguments of the answer.

    Returns:
        how many were judged.
    """
    for what, (mixer, verdict, hint) in mixers.items():
        for size in sizes:
            expect(f"{name}({what}, {', '.join(map(str, size))})", answer(mixer, *size), verdict, {hint: not verdict})
    return f"{len(mixers)} functions"


def difference(given: Any, right: Any, tolerance: float = 1e-9) -> str:
    """Say how an answer differs from the right one, as `expect` has it; "" if it does not."""
    if isinstance(right, tuple):
        right = dict(enumerate(right))
    if isinstance(right, Tensor):
        return _of_entries(given, right, tolerance)
    tensors = isinstance(right, dict) and any(isinstance(part, Tensor) for part in right.values())
    if hasattr(given, "tolist") and not tensors:
        given = given.tolist()
        alone = isinstance(given, list) and len(given) == 1 and not isinstance(right, dict | list)
        given = given[0] if alone else given
    if isinstance(right, dict):
        return _of_parts(given, right, tolerance)
    if given is None and right is not None:
        return f"expected {right!r}, given None; is a return missing?"
    given = [*given] if isinstance(given, tuple | range) else given
    if isinstance(right, float) and isinstance(given, Real):
        same = math.isclose(given, right, rel_tol=max(tolerance, 1e-6), abs_tol=1e-8)
    else:
        same = given == right and isinstance(given, bool) == isinstance(right, bool)
    return "" if same else "expected {}, given {}".format(*_apart(right, given))


def _of_parts(given: Any, right: dict, tolerance: float) -> str:
    names = ", ".join(map(str, right))
    if not isinstance(given, tuple | list):
        return f"expected ({names}), given a {type(given).__name__}"
    if len(given) != len(right):
        return f"expected ({names}), given {len(given)} parts"
    return next((f"{name}: {told}" for (name, wanted), part in zip(right.items(), given, strict=True)
                 if (told := difference(part, wanted, tolerance))), "")


def _of_entries(given: Any, right: Tensor, tolerance: float) -> str:
    if not isinstance(given, Tensor):
        return f"expected a tensor, given a {type(given).__name__}"
    for what, wanted, found in (("shape", tuple(right.shape), tuple(given.shape)), ("dtype", right.dtype, given.dtype)):
        if found != wanted:
            return f"expected {what} {wanted}, given {found}".replace("torch.", "")
    given, right = given.detach(), right.detach()
    if not right.numel():
        return ""
    allowed = tolerance * max(1.0, float(right.abs().nan_to_num().max()))
    off = ~(((given - right).abs() <= allowed) | given.isnan() & right.isnan())
    if not off.any():
        return ""
    index = tuple(off.nonzero()[0].tolist())
    wanted, found = _apart(right[index].item(), given[index].item())
    return f"entry {list(index)} should be {wanted}, given {found}; {int(off.sum())} of {off.numel()} differ"


def _apart(right: Any, given: Any) -> tuple[str, str]:
    """Write two values, numbers with six digits, or with as many as it takes to see that they differ."""
    pairs = [(f"{right:.{n}g}", f"{given:.{n}g}") for n in (6, 10, 17)] if all(
        isinstance(x, Number) and not isinstance(x, int) for x in (right, given)) else []
    texts = next((pair for pair in pairs if pair[0] != pair[1]), (repr(right), repr(given)))
    start = len(commonprefix(texts)) if max(map(len, texts)) > 100 else 0
    return tuple(f"...{text[start:start + 40]}..." if start else text for text in texts)
