"""What the figures of two short sequences ask of them."""

import torch
from torch import Tensor

__all__ = ["require_two", "rounded"]


def require_two(v: Tensor, g: Tensor, shortest: int, longest: int) -> None:
    """Check that content and gate are `[L]`, of one length L from `shortest` to `longest`.

    Raises:
        ValueError: they are not; the message gives their shapes and the lengths that are accepted.
    """
    if v.ndim != 1 or v.shape != g.shape or not shortest <= len(v) <= longest:
        raise ValueError(f"v has shape {tuple(v.shape)} and g has shape {tuple(g.shape)}; "
                         f"give two sequences of one length between {shortest} and {longest}")


def rounded(x: Tensor) -> Tensor:
    """Return a tensor as float64 with three decimals, so that page and package compute from the same numbers."""
    return torch.round(x.detach().cpu().double(), decimals=3)
