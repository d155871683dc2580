"""What a notebook is made of: the files of the repository that its outputs may depend on.

Both packages count whole, so that an edit to the model executes every chapter again.  Of figures, checkers and
records a chapter uses few, and only those count whose name stands in its code: `viz.clock` brings `viz/clock.py` and
`viz/clock.js`, `runs.load(f"learn_{task}")` every record whose name begins with `learn_`.
"""

import re
from pathlib import Path

from .cells import code_cells

__all__ = ["files_of"]

PACKAGES = ("caracal_min", "book/caracal_book")
UNUSED = {"rules", "commands", "stills", "__pycache__"}  # no chapter imports them; pages have the stills


def files_of(notebook: dict, root: Path) -> list[Path]:
    """Return the files below `root` on which the outputs of a notebook, as `nbformat` reads it, may depend."""
    words = set(re.findall(r"\w+", "\n".join(cell["source"] for _, cell in code_cells(notebook))))
    choices = _choices(root)
    files = [path for package in PACKAGES for path in (root / package).rglob("*") if path.is_file()]
    return sorted(path for path in files if not UNUSED & {*path.parts}
                  and (path.stem not in choices.get(path.parent.name, ()) or _is_named(path.stem, words)))


def _choices(root: Path) -> dict[str, set[str]]:
    """Return, by folder, the names of which a chapter uses few; what else a folder holds, all may use."""
    book = root / "book" / "caracal_book"
    return {"viz": {path.stem for path in (book / "viz").glob("*.js")} - {"drawing"},
            "exercises": {path.stem.partition("_")[2] for path in (root / "notebooks").glob("*.ipynb")},
            "runs": {path.stem for path in (book / "runs").glob("*.json")}}


def _is_named(name: str, words: set[str]) -> bool:
    """Whether a word is the name, begins with it as `change_windows` does, or is its beginning, as `learn_`."""
    return name in words or any(word.startswith(name + "_") or word.endswith("_") and name.startswith(word)
                                for word in words if len(word) > 2)
