"""Checks of a dataclass of settings, whether its values came from a command line or from a program::

    require_kinds(config)                       every field becomes what its annotation says; numbers are finite
    require_range(config, ("a", "b"), low=1)    some fields lie in a range; None lies in all
    require_text(config, ("a", "b"))            some texts are not empty
    require_unicode(config, ("a", "b"))         some texts are UTF-8

Each raises ValueError with one line: the field, what was given, what is accepted.
"""

import math
from collections.abc import Iterable
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

__all__ = ["require_kinds", "require_range", "require_text", "require_unicode"]

_LARGEST = 2**63 - 1
_ACCEPTED = {
    int: (lambda v: isinstance(v, Integral) and not isinstance(v, bool) and abs(v) <= _LARGEST,
          f"a whole number of at most {_LARGEST}"),
    float: (lambda v: isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v), "a finite number"),
    bool: (lambda v: isinstance(v, bool | np.bool_), "True or False"),
    str: (lambda v: isinstance(v, str | PathLike) and "\0" not in str(v), "a text without NUL"),
    Path: (lambda v: isinstance(v, str | PathLike) and str(v) and "\0" not in str(v), "a path without NUL"),
}


def require_kinds(config: Any) -> None:
    """Give every field the type of its annotation: numpy's numbers become Python's, a text a path or a path a text.

    Annotations are int, float, bool, str, Path, a Literal of texts, tuples of one of these, or one of these or None.

    Raises:
        ValueError: a field holds something else, a number that is not finite, or a whole one beyond 2^63 - 1; in one
            line.
    """
    for name, hint in get_type_hints(type(config)).items():
        value, kinds = getattr(config, name), (hint,)
        if get_origin(hint) in (Union, UnionType):
            kinds = get_args(hint)
        if value is None and NoneType in kinds:
            continue
        object.__setattr__(config, name, _converted(name, value, next(k for k in kinds if k is not NoneType)))


def _converted(name: str, value: Any, kind: Any) -> Any:
    if get_origin(kind) is tuple:
        if not isinstance(value, tuple | list):
            raise ValueError(f"{name}={value!r}; give a tuple")
        return tuple(_converted(name, item, get_args(kind)[0]) for item in value)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"{name}={value!r}; accepted: {', '.join(get_args(kind))}")
        return value
    is_accepted, accepted = _ACCEPTED[kind]
    if not is_accepted(value):
        raise ValueError(f"{name}={value!r}; give {accepted}")
    return kind(value)


def require_text(config: Any, names: Iterable[str]) -> None:
    """Raise ValueError, in one line, if one of some texts is empty; None is none."""
    for name in names:
        if getattr(config, name) == "":
            raise ValueError(f"{name} is empty; give at least one character")


def require_unicode(config: Any, names: Iterable[str]) -> None:
    """Raise ValueError, in one line, if a text, or one of several, holds bytes that were no UTF-8 where a shell gave
    it."""
    for name in names:
        try:
            "".join(getattr(config, name) or "").encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{name}={getattr(config, name)!r} holds bytes that are not UTF-8 (character "
                             f"{error.start + 1}); give it in UTF-8") from None


def require_range(config: Any, names: Iterable[str], low: float = -math.inf, high: float = math.inf,
                  above: float = -math.inf, below: float = math.inf) -> None:
    """Raise ValueError, in one line, unless low <= field <= high and above < field < below; None is in every range."""
    words = [f"{sign} {bound:g}" for sign, bound in ((">=", low), (">", above), ("<=", high), ("<", below))
             if math.isfinite(bound)]
    for name in names:
        value = getattr(config, name)
        if value is not None and not (low <= value <= high and above < value < below):
            raise ValueError(f"{name}={value!r}; give a number {' and '.join(words)}")
