"""How many operations a model needs, and how many a GPU could do: model FLOPs utilisation (MFU)."""

from math import log2

import torch
from torch import nn

from ..config import CaracalConfig
from ..spectral import overlap_save

__all__ = ["PEAK_FLOPS", "flops_per_token", "peak_flops"]


def flops_per_token(model: nn.Module, context: int) -> float | None:
    """Return the operations of forward and backward pass per token of `context` tokens.

    A multiplication and an addition for every weight; in a convolution 2.5 N log2 N for a real FFT
    of N points and 3 N for a product of spectra; in attention four for every channel and key that a
    token sees.  The backward pass costs twice the forward pass; what is computed again counts
    nothing.

    Args:
        model: on any device; on "meta" it costs nothing.

    Returns:
        multiplications and additions; None for a model that is no Caracal.

    Source: Chowdhery et al. 2022 (PaLM), Appendix B, for the definition of utilisation; Kaplan et
    al. 2020, Section 2.1, for two operations per weight and token.
    """
    config = model.config
    if not isinstance(config, CaracalConfig):
        return None
    width = config.d_model
    attention = len(config.attention_layers)
    fourier = config.n_layers - attention
    weights = model.num_parameters()
    # Position vectors are looked up, so their table multiplies nothing; the tied embedding does.
    if model.positions is not None:
        weights -= model.positions.weight.numel()
    # With a cut gate, later tokens skip the layers that compute it.
    gate_length = min(config.gate_length or context, context)
    per_gate = width**2
    # Of the second map only one block per head is not zero.
    if config.gate == "two_stage":
        per_gate *= 1 + 1 / config.n_heads
    weights -= (1 - gate_length / context) * fourier * per_gate
    points, frames = overlap_save(context, gate_length)
    # The gate is transformed once, each frame of the text there and back.
    transforms = 2.5 * (1 + 2 * len(frames)) * points * log2(points)
    products = 3 * len(frames) * points
    convolutions = fourier * width * (transforms + products) / context
    # The first tokens have fewer predecessors than the window holds, which lowers the mean.
    seen = min(config.window_size, context)
    missing = seen * (seen - 1) / (2 * context)
    keys = attention * (seen - missing)
    # The backward pass counts twice, for the gradients of inputs and of weights.
    forward = 2 * weights + convolutions + 4 * width * keys
    return 3 * forward


PEAK_FLOPS = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
    "T4": 65e12,
}
"""Operations per second of the matrix units of a GPU, from the vendor's data sheets: dense, in
bfloat16 (float16 for the T4), added up in float32.  H100 and A100 are the SXM modules."""


def peak_flops(device: torch.device) -> float | None:
    """Return the peak of a GPU by its name; None where it is not in `PEAK_FLOPS`."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    # The table's order decides: "H100 PCIe" stands before "H100", which its name contains too.
    for part, peak in PEAK_FLOPS.items():
        if part in name:
            return peak
    return None
