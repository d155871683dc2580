"""Moved to config; the names of baselines go with the book's rivals."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from .config import (  # noqa: F401
    PRECISIONS,
    VARIANTS,
    Compiled,
    Precision,
    change_config,
    find_preset,
    require_known,
)

BASELINES = ("llama", "mamba", "mamba2", "jamba")
ARCHITECTURES = ("caracal", *BASELINES)


def check_kind(architecture: str, preset: str, variant: str, changes: Mapping[str, Any] | None = None) -> None:
    """Raise ValueError, in one line, unless such a model exists."""
    require_known("architecture", architecture, ARCHITECTURES)
    require_known("variant", variant, VARIANTS)
    size = find_preset(preset)
    if architecture != "caracal":
        for name in changes or {}:
            require_known("setting", name, ("d_model", "n_layers", "n_heads"))
        if variant != "default":
            raise ValueError(f"variant={variant!r} with architecture={architecture!r}; only caracal has variants")
    change_config(replace(size, **VARIANTS[variant]), dict(changes or {}))


def require_compiled(what: str) -> None:
    """Raise ValueError, in one line, unless `what` is one of `Compiled`."""
    require_known("compile", what, get_args(Compiled))
