"""Names that a package offers and imports when they are first asked for, so that entering it costs nothing.

PyTorch takes a second or more to import; what needs no tensor, as the help of the command line, should not wait for it.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["lazy"]


def lazy(package: str, homes: dict[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    Args:
        package: its `__name__`.
        homes: the module of the package that each name is imported from.

    Example:
        >>> find, names = lazy("json", {"JSONDecoder": "decoder"})
        >>> find("JSONDecoder").__name__, names()[-1]
        ('JSONDecoder', 'scanner')

    Source: PEP 562.
    """
    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted({*vars(sys.modules[package]), *homes})
