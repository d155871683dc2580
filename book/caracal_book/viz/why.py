"""The figure of the page that takes a model apart: why a token is likely, by block, channel and token."""

from collections.abc import Mapping
from typing import Any

from caracal_min import Caracal

from ..web_export import web_scripts
from . import svg
from .engine import PARTS
from .figure import Figure
from .trace import in_the_page, percent, rounded_to, shown, trace

__all__ = ["why"]


def why(model: Caracal, text: str, name: str = "micro", folder: str = "_static/micro") -> Figure:
    """Show why a model finds tokens likely after a text, down to one product of a content and a gate.

    The logit of a candidate, above the mean of the vocabulary, is a sum over the blocks (`viz.trace`).  The reader
    chooses a candidate, a block, one of its largest channels or heads, and a token.  The figure holds a recording of
    one sentence.  A button loads the weights, and then it reads what the reader types.

    Args:
        model: with a tokenizer of the kind "gpt2:N"; a page has its weights in eight bits, and so has the recording.
        text: the sentence, of at least one token.
        name, folder: as `continuation`.

    Raises:
        ValueError: no text, or no such tokenizer.
    """
    if not text:
        raise ValueError("the text is empty; give at least one character")
    manifest, _ = web_scripts(model)
    found = rounded_to(4, trace(in_the_page(model), model.require_tokenizer().encode(text)))
    best = found["next"][0]
    fourier = [i for i, heads in enumerate(found["heads"]) if heads is None] or [0]
    data = {"name": name, "text": text, "trace": found, "candidate": 0, "unit": 1, "lag": 0,
            "layer": max(fourier, key=lambda i: best["parts"][2 * i + 1]), "folder": folder,
            "bytes": manifest["bytes"], "digest": manifest["digest"]}
    return Figure("why", data, None, _alt(data), state=("candidate", "layer", "unit", "lag"), parts=PARTS,
                  computed=("trace",))


def _rows(data: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Name what adds to the logit of the likeliest token, and by how much."""
    best = data["trace"]["next"][0]
    names = [f"block {i}, {kind}" for i, heads in enumerate(data["trace"]["heads"])
             for kind in ("Fourier" if heads is None else "attention", "MLP")]
    return [*zip(["the token itself", *names], best["parts"], strict=True), ("every text", best["rest"])]


def _alt(data: Mapping[str, Any]) -> str:
    best = data["trace"]["next"][0]
    sums = ", ".join(f"{name} {svg.said(value, 1)}" for name, value in _rows(data))
    return (f"After “{data['text']}” {data['name']} finds “{shown(best['piece'])}” likeliest, {percent(best['p'])}. "
            f"Its logit is {svg.said(best['logit'], 1)} above the average of all tokens, as a sum: {sums}. The reader "
            f"opens a block, a channel of it and a token, down to one product of a content and a gate. A button loads "
            f"the model's weights, {data['bytes'] / 1e6:.1f} MB, for a sentence of the reader's own.")
