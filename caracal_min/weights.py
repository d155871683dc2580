"""A model on disk: its configuration and its weights, checked before they are believed::

    config.json         an object of JSON; `model_type` says what it describes, `eos_token_id` what ends a text
    model.safetensors   the weights: numbers, and no code
    tokenizer.json      the tokenizer, if it is known, and tokenizer_config.json beside it (`data.tokenizers`)
    SHA256SUMS          the SHA-256 of the other files, in the form that `sha256sum --check` reads

A flipped bit anywhere in these files is found.  Hashes find accidents, not forgers: who can write the weights can write
the hashes.  A folder without SHA256SUMS, as other tools write it, loads too.

No other file of a folder is read here: no pickle, no index of shards, no code.  The header of the weights, which names
every tensor and its shape, is compared with the configuration before anything of that size is built; and it is
compared before it is written, so what is saved can be loaded.
"""

import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from .config import short_repr
from .data.tokenizers import TOKENIZER, Tokenizer, save_tokenizer
from .files import file_sha256, writing_folder

__all__ = ["CONFIG", "OF_THE_WEIGHTS", "SUMS", "WEIGHTS", "Shapes", "read_checked", "read_config", "read_shapes",
           "read_weights", "repeat_layers", "replacing_weights", "require_shapes", "require_sizes", "write_model"]

CONFIG, WEIGHTS, SUMS = "config.json", "model.safetensors", "SHA256SUMS"
_INDEX = WEIGHTS + ".index.json"  # of weights in parts, as transformers writes them
_ADAPTER = "adapter_config.json"  # as PEFT writes it
# What goes with weights that are replaced, in one file or in parts, and what transformers said of their use.
_REPLACED = (WEIGHTS, "model-*-of-*.safetensors", _INDEX, SUMS, "generation_config.json")
OF_THE_WEIGHTS = {"dtype", "torch_dtype", "quantization_config"}  # as transformers saved them; and of that save:
_OF_A_SAVE = OF_THE_WEIGHTS | {"architectures", "transformers_version"}

_LARGEST_TEXT = 1 << 20  # bytes; our configurations have 400, those of transformers some thousand
_FLOATS = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}
_CHANGED = {  # what other tools leave in the names of tensors, and how to undo it
    r"_(orig|mask)$": "pruned: call torch.nn.utils.prune.remove(layer, 'weight') for every pruned layer",
    r"\bparametrizations\.": "parametrized: call torch.nn.utils.parametrize.remove_parametrizations(layer, 'weight')",
    r"\b(lora_|base_layer\.)": "adapted: call merge_and_unload() of the PEFT model",
}

Shapes = dict[str, tuple[int, ...]]
"""The shape of every tensor by name."""


def write_model(folder: Path, config: dict, state: Mapping[str, Tensor], expected: Shapes,
                tokenizer: Tokenizer | None) -> None:
    """Write a model, and its tokenizer if it has one, into `folder`, which is made if absent.

    The same model gives the same bytes.  What is there is replaced as `files.writing_folder` says: never half of it.
    Other weights there, and what transformers wrote of their use, are removed.

    Args:
        config: what JSON holds; with `model_type`.  The id that ends a text is added, for `transformers`.
        state: tensors by name; those of a compiled block get the name that they have without the compiler.
        expected: the shape of every tensor that the configuration says.
        tokenizer: written as `data.tokenizers.save_tokenizer` says; None: one that lies there stays, with a warning.

    Raises:
        ValueError: the tensors are not those of the configuration, or not all of one floating-point type, so the
            model could not be loaded again, or an adapter is there; nothing is written.
        OSError: they cannot be written, in one line that says what is there now.
    """
    tensors = _to_write(state, expected)
    _require_no_adapter(folder)
    if tokenizer is not None:
        config = config | {"eos_token_id": tokenizer.end_of_text}
    with writing_folder(folder, last=CONFIG, replaced=_replaced) as partial:
        (partial / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8", newline="\n")
        save_file(tensors, partial / WEIGHTS, {"format": "pt"})
        if tokenizer is not None:
            save_tokenizer(tokenizer, partial)
        sums = [f"{file_sha256(path)}  {path.name}\n" for path in sorted(partial.iterdir())]
        (partial / SUMS).write_text("".join(sums), encoding="utf-8", newline="\n")
    if tokenizer is None and (folder / TOKENIZER).is_file():
        warnings.warn(f"the tokenizer in {folder} is from now on that of this model, which has none; remove it if it "
                      "is of another", stacklevel=3)


@contextmanager
def replacing_weights(folder: Path) -> Iterator[Path]:
    """Give a folder for what the body, which is transformers, writes; when it ends without an error, that moves.

    It takes the place, in `folder`, of other weights in one file or in parts, and of hashes.  Where the body writes no
    configuration, such as an adapter, these stay, and so do weights where it writes a variant of them.  What is
    replaced is replaced as `files.writing_folder` says.

    Raises:
        ValueError: the body writes a model where an adapter is, or a variant where weights of another configuration
            are; nothing is written.
    """
    with writing_folder(folder, last=CONFIG, replaced=_replaced) as partial:
        yield partial
        written = {file.name for file in partial.iterdir()}
        if CONFIG in written:
            _require_no_adapter(folder)
        if CONFIG in written and not written & {WEIGHTS, _INDEX} and (folder / CONFIG).exists():
            old, new = read_config(folder), read_config(partial)
            for key in sorted(old.keys() & new.keys() - _OF_A_SAVE):
                if old[key] != new[key]:
                    raise ValueError(f"{folder} holds a model with {key}={old[key]}, and a variant of it has the same; "
                                     f"this one has {new[key]}: give another folder")


def _replaced(written: set[str]) -> tuple[str, ...]:
    return _REPLACED if written & {WEIGHTS, _INDEX} else (SUMS,)


def _require_no_adapter(folder: Path) -> None:
    if (folder / _ADAPTER).exists():
        raise ValueError(f"{folder} holds an adapter ({_ADAPTER}), which transformers would add to what is saved; "
                         "give another folder, or remove the adapter")


def read_config(folder: Path) -> dict:
    """Return what `config.json` holds.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is no JSON object in UTF-8, or larger than 1 MiB.
    """
    text = _small_file(path := _existing(folder, CONFIG))
    try:
        stored = json.loads(text.decode("utf-8"))
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
                         f"{short_repr(layers)} layers; weights and {CONFIG} do not belong together")
    require_shapes(folder, {name: found[name] for name in matrices if name in found}, matrices)


def require_shapes(folder: Path, found: Shapes, expected: Shapes) -> None:
    """Check a header against what the configuration needs.

    Raises:
        ValueError: a tensor is missing, or foreign, or of another shape.
    """
    if difference := _difference(found, expected):
        raise ValueError(f"{folder / WEIGHTS} {difference}; weights and {CONFIG} do not belong together")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of `model.safetensors` by name, after a check of `SHA256SUMS`, if there is one.

    They are copies in memory that PyTorch has allocated.  Those that safetensors gives lie wherever the header ends,
    and a product with a matrix that is not aligned may differ in its last bit; they also change with the file.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: it is no safetensors file, or a file of the folder is not what was saved.
    """
    path = _existing(folder, WEIGHTS)
    if (folder / SUMS).exists():
        _require_sums(folder)
    with _opened(path):
        return {name: tensor.clone() for name, tensor in load_file(path).items()}


def read_checked(folder: Path, layers: int, matrices: Shapes, expected: Callable[[], Shapes]) -> dict[str, Tensor]:
    """Return the tensors as `read_weights`, after a check of their names and shapes in an order that a false
    configuration cannot make costly: the arguments are those of `require_sizes` and `require_shapes`.
    """
    if (folder / _ADAPTER).exists():
        warnings.warn(f"{folder} holds an adapter, which is not applied: load it by caracal_min.hf, merge it, and save "
                      "the model elsewhere", stacklevel=4)
    found = read_shapes(folder)
    require_sizes(folder, found, layers, matrices)
    require_shapes(folder, found, expected())
    return read_weights(folder)


def _to_write(state: Mapping[str, Tensor], expected: Shapes) -> dict[str, Tensor]:
    """Return tensors as safetensors takes them: on the CPU, contiguous, no two of them in the same memory."""
    named = {re.sub(r"\b_orig_mod\.", "", name): t for name, t in state.items()}
    why = "the model is not saved, because it could not be loaded again: it"
    for pattern, change in _CHANGED.items():
        for name in filter(re.compile(pattern).search, named):
            raise ValueError(f"{why} has the tensor {name!r}, so it is {change}, then save it")
    if difference := _difference({name: tuple(getattr(t, "shape", ())) for name, t in named.items()}, expected):
        raise ValueError(f"{why} {difference}; undo what replaced its layers or weights, then save it")
    for name, t in named.items():
        if type(t) not in (Tensor, torch.nn.Parameter) or t.is_meta:
            kind = "without data (on the device meta)" if t.is_meta else f"as a {type(t).__name__}"
            raise ValueError(f"{why} has the tensor {name!r} {kind}; gather, dequantize or load its weights first")
    kinds = {t.dtype for t in named.values()}
    if len(kinds) != 1 or not kinds <= set(_FLOATS.values()):
        raise ValueError(f"{why} has tensors of type {', '.join(sorted(map(str, kinds)))}; give it one of "
                         f"{', '.join(map(str, _FLOATS.values()))} by model.to(...), then save it")
    memory, tensors = set(), {}
    for name, t in named.items():
        t = t.detach().cpu().contiguous()
        place = t.untyped_storage().data_ptr()
        tensors[name] = t.clone() if place in memory else t
        memory.add(place)
    return tensors


def _difference(found: Shapes, expected: Shapes) -> str | None:
    """Say which tensor is missing, foreign or of another shape; None: they agree."""
    missing, foreign = expected.keys() - found.keys(), found.keys() - expected.keys()
    for problem, names in (("lacks", missing), ("has the foreign", foreign)):
        if names:
            return f"{problem} tensor {short_repr(min(names))} ({len(names)} in all)"
    for name, shape in expected.items():
        if found[name] != shape:
            return f"has tensor {name!r} of shape {found[name]}, and its configuration says {short_repr(shape)}"
    return None


def _require_sums(folder: Path) -> None:
    """Check every file that `SHA256SUMS` names.  Raises ValueError at one that is not what was saved."""
    path, again = _existing(folder, SUMS), "copy or download the whole folder again"
    lines = _small_file(path).decode("ascii", "replace").split("\n")[:-1]
    sums = {found[2]: found[1] for line in lines if (found := re.fullmatch(r"([0-9a-f]{64})  ([\w.-]+)", line))}
    if len(sums) != len(lines) or not {CONFIG, WEIGHTS} <= sums.keys():
        raise ValueError(f"{path} is damaged: it is not a list of hashes that names {CONFIG} and {WEIGHTS}; {again}")
    for name, expected in sums.items():
        if file_sha256(_existing(folder, name)) != expected:
            raise ValueError(f"{folder / name} is not what was saved (its SHA-256 is not the one in {SUMS}): it is "
                             f"damaged, changed, or of another model; {again}, or delete {SUMS} if that is meant")


def _existing(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise FileNotFoundError(f"{folder} has no {name}; give a folder that save_pretrained wrote")
    return folder / name


def _small_file(path: Path) -> bytes:
    """Return what a file of text holds.  Raises ValueError, unread, where it is larger than 1 MiB."""
    if (size := path.stat().st_size) > _LARGEST_TEXT:
        raise ValueError(f"{path} has {size:,} bytes, and such a file has at most {_LARGEST_TEXT:,}; copy or download "
                         "it again")
    return path.read_bytes()


@contextmanager
def _opened(path: Path) -> Iterator:
    """Give a safetensors file whose header has been read and checked, but none of its data."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable safetensors file ({' '.join(str(error).split())[:200]}); "
                         "copy or download it again") from None
