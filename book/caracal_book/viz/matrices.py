"""A figure of chapter 5: the matrix of a trained channel beside that of an attention head, for one text."""

from collections.abc import Mapping
from typing import Any

from caracal_min import Caracal

from ..web_export import web_scripts
from . import svg
from .engine import PARTS
from .figure import Figure
from .trace import in_the_page, rounded_to, trace, widest

__all__ = ["matrices"]

_CHANNELS = 4  # of each layer


def matrices(model: Caracal, text: str, other: str, name: str = "micro", folder: str = "_static/micro") -> Figure:
    """Show the matrices of a Fourier module's channel and of an attention head for a text, and who wrote a weight.

    In a channel, the weight of token j in output t is the gate of the token at position t - j.  Below stand the gates
    of the channel for this text and for another one.  The channels are those that add most from earlier tokens.  A
    button loads the model's weights, and then the matrices are those of a text that the reader types.

    Args:
        model: with both kinds of layers and a tokenizer of the kind "gpt2:N"; a page has its weights in eight bits,
            and so has the recording.
        text, other: the text of the recording, of three tokens or more, and the one whose gates are compared.
        name, folder: as `continuation`.

    Raises:
        ValueError: a text of fewer than three tokens; no such tokenizer; a model that lacks one kind of layer.
    """
    manifest, _ = web_scripts(model)
    rounded, (ids, others) = in_the_page(model), map(model.require_tokenizer().encode, (text, other))
    if min(len(ids), len(others)) < 3:
        raise ValueError(f"text={text!r}, other={other!r}; give texts of at least three tokens")
    attends = model.config.attention_layers
    if not 0 < len(attends) < model.config.n_layers:
        raise ValueError(f"this model has {len(attends)} attention layers of {model.config.n_layers}; "
                         "the figure compares both kinds")
    channels = widest(rounded, ids, _CHANNELS)
    found = rounded_to(4, trace(rounded, ids, channels))
    found["next"] = []
    data = {"name": name, "text": text, "trace": found, "channels": [*channels.items()], "layer": len(channels) - 1,
            "channel": 0, "attention": 0, "head": 0, "t": len(ids) - 1, "lag": 2, "folder": folder,
            "other": {"text": other, "gates": rounded_to(4, trace(rounded, others, channels)["gates"])},
            "bytes": manifest["bytes"], "digest": manifest["digest"]}
    return Figure("matrices", data, None, _alt(data), state=("layer", "channel", "attention", "head", "t", "lag"),
                  parts=PARTS, computed=("trace", "channels", "other"))


def _shown(data: Mapping[str, Any]) -> tuple[list[float], list[list[float]], int, int, int]:
    """Return the gate and the head's matrix of the first state, and the names of channel and layers."""
    layer, names = data["channels"][data["layer"]]
    attends = next(i for i, heads in enumerate(data["trace"]["heads"]) if heads)
    return data["trace"]["gates"][data["layer"]][0], data["trace"]["heads"][attends][0], names[0], layer, attends


def _alt(data: Mapping[str, Any]) -> str:
    gate, weights, channel, layer, attends = _shown(data)
    t, lag, pieces = data["t"], data["lag"], [piece.strip() for piece in data["trace"]["pieces"]]
    return (f"Two triangular matrices for “{data['text']}”: the weights of channel {channel} of {data['name']}'s "
            f"block {layer}, a Fourier module, where every diagonal is one number, and those of head 0 of block "
            f"{attends}, attention. In the output at “{pieces[t]}”, “{pieces[t - lag]}” has the weight "
            f"{svg.said(gate[lag])} in the channel, which “{pieces[lag]}” wrote, and "
            f"{svg.said(weights[t][t - lag])} in the head. Below, the channel's gates for this text and for "
            f"“{data['other']['text']}”. A button loads the model's weights, {data['bytes'] / 1e6:.1f} MB, for a "
            "sentence of the reader's own.")
