"""A trained model for a page in a browser: scripts that hold its weights in eight bits, and its tokenizer.

Row i of a matrix becomes `round(w[i] / scale[i])` with `scale[i] = max|w[i]| / 127`, which is symmetric: 0 stays 0.
That takes a quarter of the room of float32.  Back in float32 each weight is one product, and one product is rounded the
same way everywhere, so every browser computes with the same weights.

A page that was opened from a file may load scripts and nothing else.  Therefore each script assigns one value to
`globalThis.caracalPart`: `manifest.js` the manifest, every other script the base64 of its bytes.
"""

import base64
import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from caracal_min import Caracal
from caracal_min.tokenizer import Tokenizer, save_tokenizer

__all__ = ["MANIFEST", "Rows", "dequantize_rows", "export_web", "quantize_rows", "web_scripts"]

MANIFEST = "manifest.js"
"""The script that says what the others hold."""
_LARGEST_PART = 1 << 20  # bytes of weights in a script: decoding so many blocks a slow computer for less than 0.1 s
_SHORTEST_ROW = 16  # numbers that pay for a scale; the taps of the short convolution have 3


class Rows(NamedTuple):
    """A weight as whole numbers."""

    values: Tensor
    """int8 from -127 to 127, of the shape of the weight."""
    scales: Tensor
    """float32 `[rows]`."""


def quantize_rows(state: Mapping[str, Tensor]) -> dict[str, Rows | Tensor]:
    """Round every matrix to eight bits, one scale a row.

    Args:
        state: tensors by name, as `model.state_dict()` has them, of any floating-point type.

    Returns:
        `Rows` of each tensor with at least two dimensions and rows of 16 numbers or more; the others (biases, norms,
        the short convolution) in float32.

    Raises:
        ValueError: a weight that is not finite.

    Example:
        >>> stored = quantize_rows({"weight": torch.linspace(-1, 1, 32).view(2, 16), "bias": torch.ones(2)})
        >>> stored["weight"].values[0, :3].tolist(), stored["bias"].tolist()
        ([-127, -119, -111], [1.0, 1.0])
    """
    return {name: _quantized(name, weight.detach().float()) for name, weight in state.items()}


def dequantize_rows(stored: Mapping[str, Rows | Tensor]) -> dict[str, Tensor]:
    """Return the weights of `quantize_rows` in float32, by name; each is off by half a scale at most."""
    state = {}
    for name, weight in stored.items():
        if isinstance(weight, Rows):
            weight = (weight.values.flatten(1) * weight.scales[:, None]).view(weight.values.shape)
        state[name] = weight
    return state


def web_scripts(model: Caracal, more: Mapping[str, Tensor] | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the manifest of a model, and the scripts that hold the model, texts by file name.

    The manifest has `config`, the fields of `CaracalConfig`; `tokenizer`, with the byte of each of the first 256 ids in
    `bytes` and the two ids of which each further one is merged in `merges`; `bytes`, the size of all its weights; and
    `parts`.  Each part has `file`, `bytes`, `sha256`, and `tensors`: `name`, `shape`, and whether they are `rows`: then
    a float32 scale for each row stands first, and int8 values follow; otherwise all is float32.  Numbers are
    little-endian, tensors follow one another without gaps, and the rows of a large one are shared by parts, one after
    the other.  `digest` is the SHA-256 of all that but `gate_length`, in JSON without spaces and with sorted keys: a
    page may cut the gate of the same weights, or not.

    Args:
        more: what was measured of the model, by name: a last part, which neither `bytes` nor `digest` counts.

    Raises:
        ValueError: no tokenizer, or not one of the kind "gpt2:N"; a weight that is not finite.
    """
    scripts, parts = {}, []
    weights = _parts(quantize_rows(model.state_dict()))
    for number, tensors in enumerate([*weights, quantize_rows(more)] if more else weights):
        data = b"".join(_bytes(tensor) for tensor in tensors.values())
        described = []
        for name, tensor in tensors.items():
            rows = isinstance(tensor, Rows)
            shape = tensor.values.shape if rows else tensor.shape
            described.append({"name": name, "shape": list(shape), "rows": rows})
        file = f"part{number}.js"
        scripts[file] = _script(base64.b64encode(data).decode())
        parts.append({"file": file, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(),
                      "tensors": described})
    own = parts[:len(weights)]
    manifest = {"config": asdict(model.config), "tokenizer": _merges(model.require_tokenizer()), "parts": own,
                "bytes": sum(part["bytes"] for part in own)}
    shape = {name: value for name, value in manifest["config"].items() if name != "gate_length"}
    manifest |= {"digest": hashlib.sha256(_compact(manifest | {"config": shape}).encode()).hexdigest(), "parts": parts}
    # Last, so that a page never finds a manifest whose parts are still to be written.
    scripts[MANIFEST] = _script(manifest)
    return manifest, scripts


def export_web(model: Caracal, folder: str | Path, more: Mapping[str, Tensor] | None = None) -> dict[str, Any]:
    """Write the scripts of `web_scripts` into a folder, which is made if absent, and return the manifest.

    Raises:
        ValueError: as `web_scripts`.
    """
    manifest, scripts = web_scripts(model, more)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, text in scripts.items():
        (Path(folder) / name).write_text(text, encoding="utf-8", newline="\n")
    return manifest


def _quantized(name: str, weight: Tensor) -> Rows | Tensor:
    if not weight.isfinite().all():
        raise ValueError(f"the weight {name!r} holds numbers that are not finite; give an earlier checkpoint")
    if weight.ndim < 2 or weight[0].numel() < _SHORTEST_ROW:
        return weight
    rows = weight.flatten(1)
    scales = rows.abs().amax(1) / 127
    # A row of zeros has scale 0, and 0 / 0 is not a number.
    divisors = scales.clamp(min=torch.finfo(torch.float32).tiny)
    values = (rows / divisors[:, None]).round().clamp(-127, 127)
    return Rows(values.to(torch.int8).view(weight.shape), scales)


def _parts(state: dict[str, Rows | Tensor]) -> list[dict[str, Rows | Tensor]]:
    """Sort tensors into a part for each layer, after parts for the others, of which large matrices have several."""
    small, large, layers = {}, [], {}
    for name, tensor in state.items():
        if name.startswith("blocks."):
            layers.setdefault(name.split(".")[1], {})[name] = tensor
        elif isinstance(tensor, Rows):
            count = -(-tensor.values.numel() // _LARGEST_PART)
            shares = zip(tensor.values.tensor_split(count), tensor.scales.tensor_split(count), strict=True)
            large += [{name: Rows(*share)} for share in shares]
        else:
            small[name] = tensor
    large[0] |= small
    return [*large, *layers.values()]


def _bytes(tensor: Rows | Tensor) -> bytes:
    if isinstance(tensor, Rows):
        return _bytes(tensor.scales) + tensor.values.cpu().contiguous().numpy().tobytes()
    return tensor.cpu().contiguous().numpy().astype("<f4").tobytes()


def _merges(tokenizer: Tokenizer) -> dict[str, list[int]]:
    """Return bytes and merges of a tokenizer whose ids are 256 bytes, the results of its merges by rank, and an end."""
    with tempfile.TemporaryDirectory() as folder:
        save_tokenizer(tokenizer, folder)
        stored = json.loads((Path(folder) / "tokenizer.json").read_text(encoding="utf-8"))
    ids = stored["model"]["vocab"]
    words = sorted(ids, key=ids.get)
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in stored["model"].get("merges", ())]
    # The program in the page merges pairs and knows no other step, and finds the result of a merge by its rank.
    results = words[256:-1]
    if stored["normalizer"] is not None or not pairs or ["".join(pair) for pair in pairs] != results:
        raise ValueError(f"the tokenizer {tokenizer.name} is no prefix of GPT-2's; a page takes models with gpt2:N")
    byte_of = {character: byte for byte, character in _characters().items()}
    return {"bytes": [byte_of[word] for word in words[:256]], "merges": [ids[word] for pair in pairs for word in pair]}


def _characters() -> dict[int, str]:
    """Return the printable character that stands for each byte in GPT-2's vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def _script(value: object) -> str:
    return f"globalThis.caracalPart={_compact(value)};\n"


def _compact(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
