"""Full attention as a rival: with rotary positions or without, with a short convolution before it or without."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caracal_min.layers import ShortConv

from .mixer import Mixer, short_conv

__all__ = ["Attention", "rotated"]


class Attention(Mixer):
    """Full causal attention, without biases: softmax(q . k / sqrt(d)) over all tokens up to the own.

    Args:
        rotary: rotate q and k by angles in proportion to the position, base 10,000 (as in Llama); False: no positions.
        pre_conv: True puts the short convolution of the Fourier layer before it, so that q, k and v reach two tokens
            back.

    Source: Vaswani et al. 2017; rotary positions: Su et al. 2021.
    """

    def __init__(self, d_model: int, n_heads: int, rotary: bool = True, pre_conv: bool = False):
        super().__init__(d_model, n_heads)
        if rotary and d_model // n_heads % 2:
            raise ValueError(f"heads of {d_model // n_heads} channels cannot be rotated in pairs; give an even number")
        self.rotary = rotary
        self.pre_conv = ShortConv(d_model, d_model, 3, groups=d_model, bias=False) if pre_conv else None
        self.to_qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.to_out = nn.Linear(d_model, d_model, bias=False)

    def mix(self, x: Tensor) -> Tensor:
        """Mix `[B, L, D]`."""
        x = x if self.pre_conv is None else short_conv(self.pre_conv, x)
        q, k, v = map(self.heads, self.to_qkv(x).chunk(3, dim=-1))
        if self.rotary:
            q, k = rotated(q), rotated(k)
        return self.to_out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


def rotated(x: Tensor) -> Tensor:
    """Rotate pairs of channels of `[..., L, d]` by position / 10,000^(2i / d)."""
    half = x.shape[-1] // 2
    rate = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)[:, None] * rate
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
