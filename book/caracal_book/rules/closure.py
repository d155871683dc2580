"""What a notebook or a test is made of: the files of the repository that its code imports or names.

The build executes a notebook again when one of them changes, and `make check` runs the tests that a change reaches::

    of_notebook(notebook, root)   the files that the code of a notebook reaches
    of_file(path, root)           those that a file of Python reaches, itself included

An import leads to the module and to all that this one imports, also inside functions.  Of a package whose `__init__`
hands names on, as `caracal_book.viz` does, only the modules of the names in use count: a chapter that shows the clock
is not executed again for another figure.  A file that is no Python counts beside a module of its name, and where a
string of the code that is reached is its name, with or without suffix: `"figure.css"`, `"engine/loader"`,
`"learn_mirror"`, `f"learn_{task}"`, `"learn_" + task`.  What can load a model by its name reaches all that are shipped.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .cells import code_cells, parse

__all__ = ["of_file", "of_notebook"]

_PACKAGES = {"caracal_min": "caracal_min", "caracal_book": "book/caracal_book"}
_ON_THE_PATH = ("tests", "tests/browser", "tests/unit", "tests/unit/data", "tests/unit/training", "tests/book/viz",
                "tests/book/exercises", "tools", "book/_ext")  # as pytest and the build have it
_DATA = {".js", ".css", ".json", ".xz", ".yaml", ".csv", ".safetensors"}


class _Code(NamedTuple):
    text: str
    tree: ast.Module
    folder: Path | None = None


def of_notebook(notebook: dict, root: Path) -> set[Path]:
    """Return the files below `root` that the code of a notebook, as `nbformat` reads it, reaches."""
    text = "\n".join(cell["source"] for _, cell in code_cells(notebook))
    return _closure(_Code(text, parse(text)), root)


def of_file(path: Path, root: Path) -> set[Path]:
    """Return the files below `root` that a file of Python reaches, the file included."""
    return {path} | _closure(_read(path), root)


def _closure(start: _Code, root: Path) -> set[Path]:
    found, names, read = set(), set(), set()
    todo = [_direct(start, root)]
    while todo:
        strings, imports = todo.pop()
        names |= strings
        for path, followed in imports:
            found.add(path)
            if followed and path not in read:
                read.add(path)
                todo.append(_of_path(path, root))
    named = re.compile("|".join(sorted(names)) or "$^")
    for folder in {path.parent for path in found}:
        found |= {path for path in (*folder.iterdir(), *folder.glob("*/*")) if path.suffix in _DATA
                  and (named.fullmatch(name := path.relative_to(folder).as_posix())
                       or named.fullmatch(name.partition(".")[0]) or path.with_suffix(".py") in found)}
    if root / "caracal_min" / "model.py" in found:  # the names of shipped models are those of presets, too
        found |= {path for path in (root / "caracal_min" / "pretrained").glob("*/*") if path.suffix in _DATA}
    return found


def _direct(code: _Code, root: Path) -> tuple[frozenset, frozenset]:
    return frozenset(_strings(code.tree)), frozenset(_imports(code, root))


@cache
def _of_path(path: Path, root: Path) -> tuple[frozenset, frozenset]:
    return _direct(_read(path), root)


def _strings(tree: ast.Module) -> Iterator[str]:
    """Yield the strings of some code that could name a file, as regular expressions."""
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        if all(isinstance(part, ast.FormattedValue) or isinstance(getattr(part, "value", None), str) for part in parts):
            literal = [getattr(part, "value", None) if isinstance(part, ast.Constant) else None for part in parts]
            known = "".join(text for text in literal if text)
            if re.fullmatch(r"[\w./-]+", known) and len(re.sub(r"\.\w+$", "", known)) >= 4:
                pattern = "".join(".+" if text is None else re.escape(text) for text in literal)
                yield pattern + ".+" * known.endswith("_")


@cache
def _read(path: Path) -> _Code:
    text = path.read_text(encoding="utf-8")
    return _Code(text, ast.parse(text), path.parent)


def _imports(code: _Code, root: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the files that the imports of some code lead to, and whether theirs are to be followed."""
    for package in re.findall(r"-m\W+(caracal_\w+)", code.text):  # run as a program
        yield root / _PACKAGES[package] / "__main__.py", True
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                for place in _places(code, 0, alias.name, root):
                    yield from _used(place, _attributes(code, alias.asname or alias.name.split(".")[-1]))
        elif isinstance(node, ast.ImportFrom):
            for place in _places(code, node.level, node.module or "", root):
                for alias in node.names:
                    inner = place / alias.name
                    if (inner / "__init__.py").is_file():
                        yield from _used(inner, _attributes(code, alias.asname or alias.name))
                    else:
                        yield from _used(place, {alias.name})


def _places(code: _Code, level: int, module: str, root: Path) -> Iterator[Path]:
    """Yield the path, without suffix, of a module or package of the repository that is imported."""
    first, *rest = module.split(".")
    if level:
        places = [Path(code.folder, *[".."] * (level - 1), *module.split(".")).resolve()] if code.folder else []
    elif first in _PACKAGES:
        places = [root.joinpath(_PACKAGES[first], *rest)]
    else:
        places = [root.joinpath(folder, first, *rest) for folder in _ON_THE_PATH]
    yield from (place for place in places if place.with_suffix(".py").is_file() or (place / "__init__.py").is_file())


def _used(place: Path, names: set[str]) -> Iterator[tuple[Path, bool]]:
    """Yield the files behind some names of a module or package."""
    init = place / "__init__.py"
    if not init.is_file():
        yield place.with_suffix(".py"), True
        return
    origin = {alias.asname or alias.name: place.joinpath(*node.module.split("."))
              for node in ast.walk(_read(init).tree) if isinstance(node, ast.ImportFrom) and node.level == 1
              and node.module for alias in node.names}
    yield init, False
    for name in names:
        inner = origin.get(name, place / name)
        if inner.with_suffix(".py").is_file():
            yield inner.with_suffix(".py"), True
        elif (inner / "__init__.py").is_file():
            yield from _used(inner, {name})
        else:
            yield init, True  # it is made there


def _attributes(code: _Code, name: str) -> set[str]:
    """Return the attributes that some code takes of a name."""
    return {node.attr for node in ast.walk(code.tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name}
