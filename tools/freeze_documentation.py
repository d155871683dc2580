"""Write the text that the chapters train on: the documentation of the Python that runs this, as lines of JSON.

    python tools/freeze_documentation.py            into caracal_min/data/, beside the licence of Python
    python tools/freeze_documentation.py --check    change nothing, exit 1 where something would change

The numbers of the chapters and of their records are of the text that is there; to freeze another one changes them all.
"""

import argparse
import ast
import json
import lzma
import platform
import pydoc_data.topics
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from caracal_min.data.sources import EMBEDDED, file_texts

_SKIPPED = {"test", "tests", "idle_test", "site-packages", "__pycache__", "lib2to3", "pydoc_data"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_SHORTEST = 200  # characters


def topics() -> Iterator[str]:
    """Yield the topics of the language reference, in the order of their names."""
    yield from (text.strip() for _, text in sorted(pydoc_data.topics.topics.items()))


def docstrings(root: Path) -> Iterator[str]:
    """Yield, for each module of a standard library, its docstrings in the order of the source; nothing is run."""
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root).parts
        if inside[0].removesuffix(".py") not in sys.stdlib_module_names or _SKIPPED.intersection(inside):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):  # a few files are templates or in another encoding
            continue
        found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, _DOCUMENTED)]
        if len(text := "\n\n".join(filter(None, found))) >= _SHORTEST:
            yield text


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Freeze the documentation of this Python as the text of the chapters.")
    parser.add_argument("--check", action="store_true", help="only say whether something would change")
    check = parser.parse_args(argv).check
    library = Path(sysconfig.get_path("stdlib"))
    texts = [*topics(), *docstrings(library)]
    version = EMBEDDED.with_name(f"python_{platform.python_version()}.jsonl.xz")
    if version == EMBEDDED and EMBEDDED.exists() and list(file_texts(EMBEDDED)) == texts:
        print(f"{EMBEDDED.name} has the {len(texts)} documents of this Python")
        return 0
    if check:
        print(f"{EMBEDDED.name} is not the documentation of this Python, {platform.python_version()}")
        return 1
    lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    version.write_bytes(lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME))
    licence = (library / "LICENSE.txt").read_text(encoding="utf-8")
    EMBEDDED.with_name("python.LICENSE").write_text(licence, encoding="utf-8")
    print(f"wrote {version.name}; DOCUMENTED of caracal_min/data/documents.py says which one is read")
    return 0


if __name__ == "__main__":
    sys.exit(main())
