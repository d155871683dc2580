"""How many arithmetic operations a model needs, and how many a device could do: model FLOPs utilisation (MFU).

By convention the backward pass costs twice the forward pass, and what is computed again counts nothing.

Source: Chowdhery et al. 2022 (PaLM), Appendix B, for the definition; Kaplan et al. 2020, Section 2.1, for two
operations per weight and token.
"""

import math
import re

import torch

from ..frames import overlapping
from ..language_model import LanguageModel
from ..model import Caracal

__all__ = ["PEAK_FLOPS", "flops_per_token", "peak_flops"]

PEAK_FLOPS = {"H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12,
              "RTX 4090": 165e12, "RTX 3090": 71e12, "T4": 65e12}
"""Operations per second of the matrix units of a GPU, from the vendor's data sheets: dense, in bfloat16 (float16 for
the T4), added up in float32.  H100 and A100 are the SXM modules."""


def flops_per_token(model: LanguageModel, context: int) -> float | None:
    """Return the operations of forward and backward pass per token of a sequence of `context` tokens.

    A multiplication and an addition for every weight; in a convolution 2.5 N log2 N for a real FFT of N points and 3 N
    for a product of spectra; in attention four for every channel and key that a token sees.

    Args:
        model: a `Caracal` or a baseline, on any device; on "meta" it costs nothing.

    Returns:
        multiplications and additions; None for Mamba, Mamba-2 and Jamba, whose scans are not counted here.
    """
    config = model.config
    if isinstance(model, Caracal):
        width, windows = config.d_model, len(config.attention_layers)
        fourier = config.n_layers - windows
        gates = min(config.gate_length or context, context)
        points, frames = overlapping(context, gates)
        weights = model.num_parameters() - (0 if model.positions is None else model.positions.weight.numel())
        of_gate = width * width * (1 + (config.gate == "two_stage") / config.n_heads)
        weights -= (1 - gates / context) * fourier * of_gate  # of tokens behind the gate's end
        transforms = 2.5 * (1 + 2 * len(frames)) * points * math.log2(points) + 3 * len(frames) * points
        mixing = fourier * width * transforms / context
        seen = min(config.window_size, context)
        keys = windows * (seen - seen * (seen - 1) / (2 * context))  # in the mean: the first tokens see fewer
    elif getattr(config, "model_type", None) == "llama":
        width, weights, mixing = config.hidden_size, model.num_parameters(), 0.0
        keys = config.num_hidden_layers * (context + 1) / 2
    else:
        return None
    return 3 * (2 * weights + mixing + 4 * width * keys)


def peak_flops(device: torch.device) -> float | None:
    """Return the operations per second of a GPU's matrix units in its data sheet; None where they are not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAK_FLOPS.items()
                 if re.search(rf"\b{part}\b(?!.*\b(NVL|MIG|Laptop|Ti|D)\b)", name)), None)
