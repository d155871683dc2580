"""The program that runs a Caracal in the reader's browser, in plain JavaScript without packages::

    arithmetic   products, norms, attention on typed arrays
    fft          the transform of real sequences
    relaxed      the causal convolution, of a whole text or a token at a time
    model        ids to logits, with every intermediate result by name
    byte_pairs   text to ids and back
    sampling     probabilities, draws
    look         why a token is likely, down to one product; what an edit of the model changes
    weights      what `caracal_book.web_export.web_scripts` writes, back to numbers
    worker       all that behind messages
    loader       the page's side: loads scripts when the reader asks, talks to the worker
    words        how the figures with a model write tokens and shares
    instrument   what else they share: tokens, a matrix, the button that loads

A page loads none of it but `loader`, `words` and `instrument`, which stand in a figure, before the reader presses a
button.  `write` puts the rest beside the weights.
"""

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from caracal_min import Caracal
from caracal_min.files import writing

from ...web_export import export_web
from ..trace import mean_gates_of

__all__ = ["PARTS", "SCRIPT", "source", "write"]

PARTS = ("engine/loader", "engine/words", "engine/instrument")
"""What stands in a figure with a model, as `Figure` takes it."""
SCRIPT = "engine.js"
"""The name of the script that holds the program."""
_MODULES = ("arithmetic", "fft", "relaxed", "model", "byte_pairs", "sampling", "look", "weights", "worker")


@cache
def source() -> str:
    """Return the program but `loader`: functions and classes at the top level, of which a caller needs `serve`."""
    folder = resources.files(__package__)
    return "\n".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in _MODULES)


def write(model: Caracal, folder: str | Path) -> dict[str, Any]:
    """Write what a page loads of a model into a folder: its weights and mean gates, as `export_web`, and the program.

    Returns:
        the manifest of `caracal_book.web_export.web_scripts`.

    Raises:
        ValueError: no tokenizer, or not one of the kind "gpt2:N"; a weight that is not finite.
        OSError: they cannot be written.
    """
    with writing(Path(folder) / SCRIPT) as partial:
        partial.write_text(f"globalThis.caracalPart={json.dumps(source())};\n", encoding="utf-8", newline="\n")
    return export_web(model, folder, mean_gates_of(model))
