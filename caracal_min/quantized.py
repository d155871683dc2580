# goes when training and commands no longer import it
"""Weights as whole numbers of eight bits, one float32 scale per output row: a quarter of their size in float32.

Row i of a matrix becomes `round(w[i] / scale[i])` with `scale[i] = max|w[i]| / 127`, which is symmetric: 0 stays 0.
Back in float32 each weight is one product, which is exact before it is rounded: every machine gets the same weights.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Rows", "dequantize_rows", "quantize_rows"]

_SHORTEST = 16  # numbers in a row that pay for a scale; the taps of the short convolution have 3


class Rows(NamedTuple):
    """A weight as whole numbers."""

    values: Tensor
    """int8, of the shape of the weight; from -127 to 127."""
    scales: Tensor
    """float32 `[rows]`."""


def quantize_rows(state: Mapping[str, Tensor]) -> dict[str, Rows | Tensor]:
    """Return weights by name with every matrix rounded to eight bits.

    Args:
        state: tensors by name, as `model.state_dict()` has them, of any floating-point type.

    Returns:
        `Rows` of each tensor with at least two dimensions and rows of 16 numbers or more; the others (biases, norms,
        the short convolution) in float32.

    Raises:
        ValueError: a weight that is not finite.

    Example:
        >>> stored = quantize_rows({"weight": torch.linspace(-1, 1, 32).view(2, 16), "bias": torch.ones(2)})
        >>> stored["weight"].values[0, :3].tolist(), stored["bias"].tolist()
        ([-127, -119, -111], [1.0, 1.0])
    """
    return {name: _quantize(name, weight.detach().float()) for name, weight in state.items()}


def dequantize_rows(stored: Mapping[str, Rows | Tensor]) -> dict[str, Tensor]:
    """Return the weights, float32 by name, that `quantize_rows` has rounded; off by half a scale at most."""
    return {name: weight.values * weight.scales.view(-1, *[1] * (weight.values.ndim - 1))
            if isinstance(weight, Rows) else weight for name, weight in stored.items()}


def _quantize(name: str, weight: Tensor) -> Rows | Tensor:
    if not weight.isfinite().all():
        raise ValueError(f"the weight {name!r} holds numbers that are not finite; give an earlier checkpoint")
    if weight.ndim < 2 or weight[0].numel() < _SHORTEST:
        return weight
    rows = weight.flatten(1)
    scales = rows.abs().amax(1) / 127
    values = (rows / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]).round().clamp(-127, 127)
    return Rows(values.to(torch.int8).view(weight.shape), scales)
