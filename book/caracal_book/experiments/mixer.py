"""The base class of the rivals of the Fourier layer.  `mixers` has them by name."""

import torch.nn.functional as F
from torch import Tensor, nn

from caracal_min.layers import ShortConv

__all__ = ["Mixer", "require_whole_text", "short_conv"]


class Mixer(nn.Module):
    """Base class of the mixers: `mix` is applied to the whole text at once, and there is no decoding.

    Args:
        d_model: width D.
        n_heads: heads H; D % H must be 0.

    Shape: `[B, L, D]` to `[B, L, D]`, floating dtype.

    Raises:
        ValueError: widths that do not fit, an input that is not [B, L, d_model], or a cache.
    """

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        if n_heads < 1 or d_model < 1 or d_model % n_heads:
            raise ValueError(f"d_model={d_model} does not split into n_heads={n_heads} equal heads; "
                             "give positive numbers with d_model % n_heads == 0")
        self.d_model, self.n_heads = d_model, n_heads

    def mix(self, x: Tensor) -> Tensor:
        """Mix `[B, L, D]`."""
        raise NotImplementedError

    def forward(self, x: Tensor, cache: None = None, lengths: None = None) -> Tensor:
        """Mix `[B, L, D]`; `modules.Block` passes a cache along, and there is none for this mixer."""
        require_whole_text(self, cache, lengths)
        if x.ndim != 3 or x.shape[1] == 0 or x.shape[-1] != self.d_model:
            raise ValueError(f"the mixer got shape {tuple(x.shape)}; it takes [batch, length, {self.d_model}], "
                             "length >= 1")
        return self.mix(x)

    def heads(self, x: Tensor) -> Tensor:
        """Split channels into heads: `[B, L, D]` to `[B, H, L, d]`."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


def require_whole_text(layer: nn.Module, cache: object, lengths: object) -> None:
    """Raise ValueError if a layer that does not decode is given a cache, or lengths of what to append to one."""
    if cache is not None or lengths is not None:
        raise ValueError(f"{type(layer).__name__} keeps nothing between tokens; give the whole text at once")


def short_conv(conv: ShortConv, x: Tensor) -> Tensor:
    """Apply a short causal convolution to `[B, L, D]`, with zeros before the first token."""
    return conv(F.pad(x, (0, 0, conv.kernel_size[0] - 1, 0)).transpose(1, 2)).transpose(1, 2)
