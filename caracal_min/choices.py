"""What settings may say: architectures and variants of models, precisions, what is compiled.

Options of the command line are made of these, so nothing here imports PyTorch.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Literal, get_args

from .config import CaracalConfig, find_preset

__all__ = ["ARCHITECTURES", "BASELINES", "Compiled", "PRECISIONS", "Precision", "VARIANTS", "check_kind",
           "require_compiled"]

Precision = Literal["auto", "bfloat16", "float16", "float32"]
"""Type of the matrix products; auto: the fastest that the device has units for (`precision`)."""
PRECISIONS: tuple[str, ...] = get_args(Precision)

Compiled = Literal["no", "blocks", "model"]
"""What torch.compile builds kernels for."""

BASELINES = ("llama", "mamba", "mamba2", "jamba")
ARCHITECTURES = ("caracal", *BASELINES)

VARIANTS: dict[str, dict] = {
    "default": {},
    "no-swa": {"fourier_per_attention": None},
    "no-swa-no-pc": {"fourier_per_attention": None, "pre_conv": False},
    "pe": {"positional_encoding": "learned"},
    "sslp": {"gate": "single_stage"},
    "5:1": {"fourier_per_attention": 5},
    "3:1": {"fourier_per_attention": 3},
    "2:1": {},
    "1:1": {"fourier_per_attention": 1},
}
"""Rows of the paper's Tables 5 and 6, as changes of a preset; ratios are Fourier layers to attention layers."""

_SIZES = ("d_model", "n_layers", "n_heads")  # what a baseline takes from a configuration, beside the vocabulary


def check_kind(architecture: str, preset: str, variant: str, changes: Mapping[str, Any] | None = None) -> None:
    """Raise ValueError, in one line, unless such a model exists.

    Args:
        changes: of the preset's configuration; the vocabulary is not among them, it is the tokenizer's.
    """
    changes, size = changes or {}, find_preset(preset)
    for what, given, accepted in (("architecture", architecture, ARCHITECTURES), ("variant", variant, VARIANTS)):
        if given not in accepted:
            raise ValueError(f"unknown {what} {given!r}; accepted: {', '.join(accepted)}")
    if architecture != "caracal" and variant != "default":
        raise ValueError(f"variant={variant!r} with architecture={architecture!r}; only caracal has variants")
    accepted = [f.name for f in fields(CaracalConfig) if f.name != "vocab_size"]
    if architecture != "caracal":
        accepted = list(_SIZES)
    for name in changes:
        if name not in accepted:
            raise ValueError(f"{architecture} has no setting {name!r} to change; accepted: {', '.join(accepted)}")
    replace(size, **(VARIANTS[variant] | changes))


def require_compiled(what: str) -> None:
    """Raise ValueError, in one line, unless `what` is one of `Compiled`."""
    if what not in get_args(Compiled):
        raise ValueError(f"compile={what!r}; accepted: {', '.join(get_args(Compiled))}")
