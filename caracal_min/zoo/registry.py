# goes when training and commands no longer import it
"""All models by name: Caracal, its variants in the paper's ablations, and the baselines; built or loaded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..choices import ARCHITECTURES, BASELINES, VARIANTS, check_kind
from ..config import find_preset
from ..language_model import LanguageModel
from ..locate import locate_model
from ..model import Caracal
from ..weights import read_config
from .baselines import Baseline, baseline_of

__all__ = ["ARCHITECTURES", "VARIANTS", "load_model", "make_model"]

def make_model(architecture: str = "caracal", preset: str = "tiny", variant: str = "default",
               vocab_size: int | None = None, context: int | None = None, **changes: Any) -> LanguageModel:
    """Build a freshly initialised model.

    Args:
        architecture: caracal, llama, mamba, mamba2 or jamba.
        preset: nano, micro, tiny, small, medium or large.
        variant: a key of `VARIANTS`; "default" for a baseline.
        vocab_size: number of token ids; None takes the preset's.
        context: tokens of the sequences that it will be trained on; None: `max_positions`, as configured.  A learned
            positional encoding covers as many as the preset's, at least.
        changes: replace fields of the preset's configuration and of the variant's; of a baseline, its sizes.

    Raises:
        ValueError: no such model.
        ImportError: a baseline without `transformers`.

    Example:
        >>> model = make_model(preset="nano", variant="no-swa")
        >>> model.config.attention_layers
        ()

    Source: Caracal, Tables 1, 2, 5 and 6.
    """
    check_kind(architecture, preset, variant, changes)
    size = replace(find_preset(preset), **(VARIANTS[variant] | changes))
    longest = size.max_positions if context is None else context
    if size.positional_encoding == "learned":
        longest = max(longest, size.max_positions)
    size = replace(size, vocab_size=size.vocab_size if vocab_size is None else vocab_size,
                   max_positions=longest)
    return Caracal(size) if architecture == "caracal" else baseline_of(architecture, size)


def load_model(name_or_folder: str | Path, gate_length: int | None = None) -> LanguageModel:
    """Load what `save_pretrained` wrote, Caracal or a baseline, on the CPU.

    A folder is read from the disk alone, without a network.

    Args:
        name_or_folder: as in `Caracal.from_pretrained`.
        gate_length: cuts the gate of a Caracal, also of one that was trained without; None leaves it as stored.

    Raises:
        FileNotFoundError, ValueError: as `Caracal.from_pretrained`; a baseline with a gate_length.
        ImportError: a baseline without `transformers`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     make_model(preset="nano").save_pretrained(folder)
        ...     model = load_model(folder)
        >>> type(model).__name__, model.training
        ('Caracal', False)
    """
    folder = locate_model(name_or_folder)
    if read_config(folder).get("model_type") in BASELINES:
        if gate_length is not None:
            raise ValueError(f"gate_length={gate_length}, but {folder} holds a baseline; only caracal has a gate")
        return Baseline.from_pretrained(folder)
    changes = {} if gate_length is None else {"gate_length": gate_length}
    return Caracal.from_pretrained(folder, device="cpu", **changes)
