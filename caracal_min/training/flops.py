"""How many arithmetic operations a model needs, and how many a device could do: model FLOPs utilisation (MFU).

Counted from the structure: two operations per weight and token, for the tied embedding once; attention over the keys
that a token sees; FFTs.  The backward pass costs twice the forward pass, recomputation counts nothing.

Source: Chowdhery et al. 2022 (PaLM), Appendix B, for the definition.
"""

import math

import torch

from ..language_model import LanguageModel
from ..model import Caracal
from ..spectral import fft_points

__all__ = ["flops_per_token", "peak_flops"]

_PEAKS = {"H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12,
          "RTX 4090": 165e12, "RTX 3090": 71e12}  # dense bfloat16, from the vendor's data sheets


def flops_per_token(model: LanguageModel, context: int) -> float | None:
    """Return the operations of forward and backward pass per token of a sequence of `context` tokens.

    Args:
        model: a `Caracal` or a baseline, on any device; on "meta" it costs nothing.

    Returns:
        multiplications and additions; None for Mamba, Mamba-2 and Jamba, whose scans are not counted here.
    """
    forward = 2 * model.num_parameters()
    if getattr(model.config, "model_type", None) == "llama":
        layers, width = model.config.num_hidden_layers, model.config.hidden_size
        return 3 * (forward + layers * 4 * width * (context + 1) / 2)
    if not isinstance(model, Caracal):
        return None
    size, attending = model.config, len(model.config.attention_layers)
    window = min(size.window_size, context)
    keys = window - window * (window - 1) / (2 * context)  # on average: the first tokens see fewer
    forward += attending * 4 * size.d_model * keys
    gates = min(size.gate_length or context, context)
    n = fft_points(context, gates)
    frames = math.ceil(context / (n - gates + 1))
    gate_weights = size.d_model ** 2 * (1 + (size.gate == "two_stage") / size.n_heads)
    forward -= (size.n_layers - attending) * 2 * gate_weights * (1 - gates / context)  # tokens without a gate
    # A real FFT of the gate, two in each frame, and its n / 2 complex products.
    convolution = 2.5 * (1 + 2 * frames) * n * math.log2(n) + 3 * frames * n
    return 3 * (forward + (size.n_layers - attending) * size.d_model * convolution / context)


def peak_flops(device: torch.device) -> float | None:
    """Return the bfloat16 operations per second in a GPU's data sheet; None where they are not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in _PEAKS.items() if part in name), None)
