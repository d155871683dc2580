"""How many arithmetic operations a model needs, and how many a device could do: model FLOPs utilisation (MFU).

Counted from the structure by `benchmark.cost`.  By convention the backward pass costs twice the forward pass, and what
is computed again counts nothing; `benchmark.cost.training` counts what is done.

Source: Chowdhery et al. 2022 (PaLM), Appendix B, for the definition.
"""

import re

import torch

from ..benchmark.cost import DEVICES, forward, total
from ..config import CaracalConfig
from ..language_model import LanguageModel
from ..model import Caracal

__all__ = ["flops_per_token", "peak_flops"]


def flops_per_token(model: LanguageModel, context: int) -> float | None:
    """Return the operations of forward and backward pass per token of a sequence of `context` tokens.

    Args:
        model: a `Caracal` or a baseline, on any device; on "meta" it costs nothing.

    Returns:
        multiplications and additions; None for Mamba, Mamba-2 and Jamba, whose scans are not counted here.
    """
    config = model.config
    if isinstance(model, Caracal):
        return 3 * total(forward(config, context)).operations
    if getattr(config, "model_type", None) != "llama":
        return None
    size = CaracalConfig(config.vocab_size, config.hidden_size, config.num_hidden_layers, config.num_attention_heads)
    return 3 * total(forward(size, context, "llama")).operations


def peak_flops(device: torch.device) -> float | None:
    """Return the operations per second of a GPU's matrix units in its data sheet; None where they are not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((rates.products for part, rates in DEVICES.items() if re.search(rf"\b{part}\b", name)), None)
