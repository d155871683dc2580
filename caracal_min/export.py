"""A model for places without this package: `torch.export` programs, ONNX files, and weights for a page in a browser.

The first two consist of standard operators only, hold one batch size and one length, and take ids to logits.  The
causal convolution, one operator of our own while it is here, is written out in the transforms it consists of, at a
power of two of points: the one kind of length that every runtime transforms exactly and fast.
"""

import base64
import hashlib
import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .data.byte_pairs import END_OF_TEXT, unspelled
from .data.file_tokenizer import FileTokenizer
from .data.tokenizers import Tokenizer
from .files import writing_folder
from .model import Caracal
from .quantized import Rows, quantize_rows
from .spectral import written_out

__all__ = ["MANIFEST", "export_onnx", "export_program", "export_web", "web_scripts"]

MANIFEST = "manifest.js"
"""The script of `web_scripts` that says what the others hold."""
_LARGEST_PART = 1 << 20  # bytes of weights in a script: so many take a page less than 0.1 s on a slow computer


class _Logits(nn.Module):
    """A graph has one output: leave out the loss, which is None."""

    def __init__(self, model: Caracal):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model.logits(tokens)


def export_program(model: Caracal, length: int, batch: int = 1) -> torch.export.ExportedProgram:
    """Trace the model for ids `[batch, length]` (int64) into a graph of ATen operators alone.

    `torch.export.save` writes it; `torch.export.load(...).module()` runs it where this package is
    not installed.

    Returns:
        a program that maps ids `[batch, length]` to logits `[batch, length, vocab_size]`.

    Example:
        >>> program = export_program(Caracal.from_preset("nano", n_layers=1), length=8)
        >>> program.module()(torch.zeros(1, 8, dtype=torch.int64)).shape
        torch.Size([1, 8, 256])
    """
    tokens = torch.zeros(batch, length, dtype=torch.int64, device=model.device)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of PyTorch, about its own code
        program = torch.export.export(_Logits(model), (tokens,))
        # Other programs do not know our operator, so it is replaced by the transforms inside.
        conv = torch.ops.caracal.causal_conv.default
        return program.run_decompositions({conv: _at_a_power_of_two})


def export_onnx(model: Caracal, path: str | Path, length: int, batch: int = 1) -> None:
    """Write an ONNX file that takes `tokens`, int64 `[batch, length]`, and returns `logits`.

    Raises:
        ImportError: the exporter's package is not installed.
    """
    try:
        import onnxscript  # noqa: F401
    except ImportError:
        raise ImportError("the ONNX exporter needs onnxscript: pip install onnx onnxscript") from None
    torch.onnx.export(
        export_program(model, length, batch),
        f=str(path),
        input_names=["tokens"],
        output_names=["logits"],
        opset_version=20,
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def web_scripts(model: Caracal) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a model with its tokenizer for a page: a manifest, and scripts, texts by file name, that hold it all.

    Weights are those of `quantized.quantize_rows`.  A page that was opened from a file may load scripts and nothing
    else, so each script assigns one value to `globalThis.caracalPart`: `manifest.js` the manifest, and each part, which
    holds a layer or a share of what stands outside the layers, the base64 of its bytes.

    The manifest has `config`, the fields of `CaracalConfig`; `tokenizer`, with the byte of each of the first 256 ids in
    `bytes` and the two ids of which each further one is merged in `merges`; `bytes`, the size of all weights; and
    `parts`.  Each part has `file`, `bytes`, `sha256`, and `tensors`: `name`, `shape`, and whether they are `rows`: then
    a float32 scale for each row stands first, and int8 values follow; otherwise all is float32.  Numbers are
    little-endian, tensors follow one another without gaps, and the rows of a large one are shared by parts, one after
    the other.  `digest` is the SHA-256 of all that, in JSON without spaces and with sorted keys.

    Raises:
        ValueError: no tokenizer, or not one of the kind "gpt2:N"; a weight that is not finite.
    """
    scripts, parts = {MANIFEST: ""}, []
    for number, tensors in enumerate(_parts(quantize_rows(model.state_dict()))):
        held, name = b"".join(map(_bytes, tensors.values())), f"part{number}.js"
        described = [{"name": key, "shape": list(tensor[0].shape if isinstance(tensor, Rows) else tensor.shape),
                      "rows": isinstance(tensor, Rows)} for key, tensor in tensors.items()]
        parts.append({"file": name, "bytes": len(held), "sha256": hashlib.sha256(held).hexdigest(),
                      "tensors": described})
        scripts[name] = _script(base64.b64encode(held).decode())
    manifest = {"config": asdict(model.config), "tokenizer": _merges(model.require_tokenizer()), "parts": parts,
                "bytes": sum(part["bytes"] for part in parts)}
    manifest["digest"] = hashlib.sha256(_compact(manifest).encode()).hexdigest()
    scripts[MANIFEST] = _script(manifest)
    return manifest, scripts


def export_web(model: Caracal, folder: str | Path) -> dict[str, Any]:
    """Write the scripts of `web_scripts` into a folder, which is made if absent, and return the manifest.

    Raises:
        ValueError: as `web_scripts`.
        OSError: they cannot be written, in one line that says what is there now.
    """
    manifest, scripts = web_scripts(model)
    with writing_folder(Path(folder), last=MANIFEST) as partial:
        for name, text in scripts.items():
            (partial / name).write_text(text, encoding="utf-8", newline="\n")
    return manifest


def _parts(state: dict[str, Rows | Tensor]) -> list[dict[str, Rows | Tensor]]:
    """Sort tensors into one part for each layer, and before them the others, a large matrix in several shares."""
    outside: list[dict[str, Rows | Tensor]] = [{}]
    layers: dict[str, dict[str, Rows | Tensor]] = {}
    for name, tensor in state.items():
        words = name.split(".")
        if words[0] == "blocks":
            layers.setdefault(words[1], {})[name] = tensor
        elif isinstance(tensor, Rows):
            count = -(-tensor.values.numel() // _LARGEST_PART)
            shares = zip(tensor.values.tensor_split(count), tensor.scales.tensor_split(count), strict=True)
            outside += [{name: Rows(*share)} for share in shares]
        else:
            outside[0][name] = tensor
    first, *others = outside
    return [others[0] | first, *others[1:], *layers.values()]


def _bytes(tensor: Rows | Tensor) -> bytes:
    if isinstance(tensor, Rows):
        return _bytes(tensor.scales) + tensor.values.cpu().contiguous().numpy().tobytes()
    return tensor.cpu().contiguous().numpy().astype("<f4").tobytes()


def _merges(tokenizer: Tokenizer) -> dict[str, list[int]]:
    """Return bytes and merges of a tokenizer whose ids are 256 bytes, the results of its merges by rank, and an end."""
    stored = json.loads(tokenizer.to_json())["model"]
    words, ids = [*stored["vocab"]], stored["vocab"]
    merged = [ids.get("".join(pair)) for pair in stored.get("merges") or ()]
    if (isinstance(tokenizer, FileTokenizer)  # which has its own way to cut up a text
            or [*ids.values()] != [*range(len(ids))] or words[-1] != END_OF_TEXT
            or merged != [*range(256, len(ids) - 1)]):
        raise ValueError(f"the tokenizer {tokenizer.name} is no prefix of GPT-2's; a page takes models with gpt2:N")
    return {"bytes": [unspelled(word)[0] for word in words[:256]],
            "merges": [ids[word] for pair in stored["merges"] for word in pair]}


def _script(value: object) -> str:
    return f"globalThis.caracalPart={_compact(value)};\n"


def _compact(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _at_a_power_of_two(v: Tensor, g: Tensor) -> Tensor:
    """The convolution in plain transforms, of the one kind of length that is fast everywhere."""
    last = v.shape[-1] + g.shape[-1] - 2  # degree of the product of the two polynomials
    return written_out(v, g, 1 << last.bit_length())
