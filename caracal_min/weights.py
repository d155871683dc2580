"""A model on disk: its configuration and its weights, checked before they are believed::

    config.json         an object of JSON; `model_type` says what it describes
    model.safetensors   the weights: numbers, and no code

The metadata of the weights holds two hashes, SHA-256 in hexadecimal: `config_sha256`, of config.json, and
`file_sha256`, of the weights' own file with this value written as zeros.  A flipped bit anywhere in the two files
breaks one of them, or the pair.  Hashes find accidents, not forgers: who can write the weights can write the hashes.
Files without them, from other tools or written before, load too.

No other file of a folder is read: no pickle, no index of shards, no code.  The header, which names every tensor and its
shape, is compared with the configuration before anything of that size is built.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from .config import shown
from .files import file_sha256, writing_folder

__all__ = ["CONFIG", "WEIGHTS", "Shapes", "read_config", "read_shapes", "read_weights", "repeat_layers",
           "require_shapes", "require_sizes", "write_model"]

CONFIG, WEIGHTS = "config.json", "model.safetensors"

_LARGEST_CONFIG = 1 << 20  # bytes; ours have 400, those of transformers some thousand
_FLOATS = ("BF16", "F16", "F32", "F64")
_BLANK = "0" * 64

Shapes = dict[str, tuple[int, ...]]
"""The shape of every tensor by name."""


def write_model(folder: Path, config: dict, state: dict[str, Tensor]) -> None:
    """Write `config.json` and `model.safetensors` into `folder`, which is made if absent.

    The same model gives the same bytes.  What is there is replaced as `files.writing_folder` says: never half of it.

    Args:
        config: what JSON holds; with `model_type`.
        state: tensors by name, no two of which share memory.

    Raises:
        OSError: they cannot be written, in one line; what was there is unchanged.
    """
    text = (json.dumps(config, indent=2) + "\n").encode()
    metadata = {"format": "pt", "config_sha256": hashlib.sha256(text).hexdigest(), "file_sha256": _BLANK}
    with writing_folder(folder, last=CONFIG) as partial:
        (partial / CONFIG).write_bytes(text)
        save_file({name: t.contiguous() for name, t in state.items()}, partial / WEIGHTS, metadata)
        with open(partial / WEIGHTS, "r+b") as file:
            stored = _header(file)
            ordered = json.loads(stored) | {"__metadata__": metadata}  # safetensors orders metadata at random
            header = json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).encode().ljust(len(stored))
            digest = _file_sha256(header, file)
            file.seek(8)
            file.write(header.replace(_BLANK.encode(), digest.encode(), 1))


def read_config(folder: Path) -> dict:
    """Return what `config.json` holds.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is no JSON object in UTF-8, or larger than 1 MiB.
    """
    path = _existing(folder, CONFIG)
    if (size := path.stat().st_size) > _LARGEST_CONFIG:
        raise ValueError(f"{path} has {size:,} bytes; a configuration has at most {_LARGEST_CONFIG:,}: "
                         "copy or download it again")
    try:
        stored = json.loads(path.read_bytes().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not readable JSON ({error}); copy or download it again") from None
    if not isinstance(stored, dict):
        raise ValueError(f"{path} holds no JSON object; copy or download it again")
    return stored


def read_shapes(folder: Path) -> Shapes:
    """Return the shape of every tensor of `model.safetensors` by name, from its header alone.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is no safetensors file, or its tensors are not all of one floating-point type.
    """
    path = _existing(folder, WEIGHTS)
    with _opened(path) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}
        kinds = sorted({s.get_dtype() for s in slices.values()})
        if len(kinds) != 1 or kinds[0] not in _FLOATS:
            raise ValueError(f"{path} holds tensors of type {', '.join(kinds) or 'none'}; weights have one of "
                             f"{', '.join(_FLOATS)}")
        return {name: tuple(s.get_shape()) for name, s in slices.items()}


def repeat_layers(shapes: Shapes, stem: str, layers: int, kind: Callable[[int], int]) -> Shapes:
    """Return the shapes of a model of many layers, from those of one that has a layer of each kind.

    Args:
        stem: what the names of layers begin with, before the index.
        layers: how many the large model has.
        kind: which layer of the small model has the shapes of layer i.
    """
    small: dict[str, Shapes] = {}
    for name, shape in shapes.items():
        if name.startswith(stem):
            index, _, rest = name.removeprefix(stem).partition(".")
            small.setdefault(index, {})[rest] = shape
    return {name: shape for name, shape in shapes.items() if not name.startswith(stem)} | {
        f"{stem}{i}.{rest}": shape for i in range(layers) for rest, shape in small[str(kind(i))].items()}


def require_sizes(folder: Path, found: Shapes, layers: int, matrices: Shapes) -> None:
    """Check what the cost of building a model depends on: the number of its layers, and its matrices outside them.

    Raises:
        ValueError: the header has fewer tensors than layers, or lacks a matrix, or has it in another shape.
    """
    if layers > len(found):
        raise ValueError(f"{folder / WEIGHTS} lacks tensors: it has {len(found)}, and {CONFIG} says "
                         f"{shown(layers)} layers; its weights belong to another configuration")
    require_shapes(folder, {name: found[name] for name in matrices if name in found}, matrices)


def require_shapes(folder: Path, found: Shapes, expected: Shapes) -> None:
    """Check a header against what the configuration needs.

    Raises:
        ValueError: a tensor is missing, or foreign, or of another shape.
    """
    missing, foreign = expected.keys() - found.keys(), found.keys() - expected.keys()
    for problem, names in (("lacks", missing), ("has the foreign", foreign)):
        if names:
            raise ValueError(f"{folder / WEIGHTS} {problem} tensor {shown(min(names))} ({len(names)} in all); "
                             "its weights belong to another configuration")
    for name, shape in expected.items():
        if found[name] != shape:
            raise ValueError(f"{folder / WEIGHTS}: tensor {name!r} has shape {found[name]}, the configuration says "
                             f"{shown(shape)}; weights and {CONFIG} do not belong together")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of `model.safetensors` by name, after a check of the hashes, if it has any.

    They are copies in memory that PyTorch has allocated.  Those that safetensors gives lie wherever the header ends,
    and a product with a matrix that is not aligned may differ in its last bit; they also change with the file.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: it is no safetensors file, or it or `config.json` is not what was saved.
    """
    path = _existing(folder, WEIGHTS)
    with _opened(path) as file:
        metadata = file.metadata() or {}
    expected = metadata.get("file_sha256"), metadata.get("config_sha256")
    if expected != (None, None):
        with open(path, "rb") as file:
            header = _header(file).replace(str(expected[0]).encode(), _BLANK.encode(), 1)
            if _file_sha256(header, file) != expected[0]:
                raise ValueError(f"{path} is not what was saved (its SHA-256 differs): it is damaged; copy or "
                                 "download it again")
        if file_sha256(_existing(folder, CONFIG)) != expected[1]:
            raise ValueError(f"{folder / CONFIG} is not what was saved with {WEIGHTS} (its SHA-256 differs): it is "
                             "damaged, changed, or of another model; copy or download both again")
    return {name: tensor.clone() for name, tensor in load_file(path).items()}


def _existing(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise FileNotFoundError(f"{folder} has no {name}; give a folder that save_pretrained wrote")
    return folder / name


@contextmanager
def _opened(path: Path) -> Iterator:
    """Give a safetensors file whose header has been read and checked, but none of its data."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable safetensors file ({' '.join(str(error).split())[:200]}); "
                         "copy or download it again") from None


def _header(file: BinaryIO) -> bytes:
    """Return the header of a safetensors file, which stands after its own length."""
    return file.read(int.from_bytes(file.read(8), "little"))


def _file_sha256(header: bytes, file: BinaryIO) -> str:
    """Return the SHA-256 of a safetensors file with another header of equal length; the file stands at its data."""
    digest = hashlib.sha256(len(header).to_bytes(8, "little") + header)
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()
