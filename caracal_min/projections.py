"""The linear maps inside a Multi-Head Fourier layer, in the layouts in which nothing has to be copied.

Tokens enter as `[B, L, D]`, channels last.  The convolution over time wants time last.  A matrix product writes its
result in either order at the same cost, so the projections are where the order changes::

    ShortConv   `[B, L + 2, D]` to `[B, L, D]`, channels last
    Columns     `[D, tokens]` to `[D, tokens]`, a linear layer on columns
    HeadMix     `[D, tokens]` to `[D, tokens]`, a linear layer on columns within each head

They are PyTorch's layers with another `forward`: parameters, names and initialisation are the same.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Columns", "HeadMix", "ShortConv", "shifted_products"]


class ShortConv(nn.Conv1d):
    """Depthwise causal convolution of a few taps, without bias.

    Args:
        channels: D.
        taps: inputs that an output sees, its own token's included.

    Shape: `[B, taps - 1 + L, D]`, the inputs before the first token included, to `[B, L, D]`.

    Source: Caracal, Section 3.2, Step 1.
    """

    def __init__(self, channels: int, taps: int):
        super().__init__(channels, channels, taps, groups=channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve `[B, taps - 1 + L, D]`."""
        if x.shape[1] == self.kernel_size[0]:  # one token
            return (x * self.weight[:, 0].t()).sum(1, keepdim=True)
        if torch.compiler.is_compiling():
            return shifted_products(x, self.weight)
        # As an image of height 1 in channels-last layout: the convolution then reads x as it lies.
        image = x.unsqueeze(1).permute(0, 3, 1, 2)
        return F.conv2d(image, self.weight.unsqueeze(2), groups=self.groups)[:, :, 0].transpose(1, 2)


def shifted_products(x: Tensor, weight: Tensor) -> Tensor:
    """Convolve as `ShortConv` does, by a product per tap: `[B, taps - 1 + L, D]` and `[D, 1, taps]` to `[B, L, D]`.

    The compiler makes one loop of it, together with the norm that follows; step by step it would be slower.
    """
    taps = weight.shape[-1]
    length = x.shape[1] - taps + 1
    return sum(x[:, k:k + length] * weight[:, 0, k] for k in range(taps))


class Columns(nn.Linear):
    """A linear layer on columns: `[in_features, tokens]` to `[out_features, tokens]`."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to every column."""
        return torch.addmm(self.bias.unsqueeze(1), self.weight, x)


class HeadMix(nn.Conv1d):
    """Mix channels within each head, token by token: a grouped convolution of one tap.

    Args:
        channels: D.
        heads: H; D % H must be 0.

    Shape: `[D, tokens]` to `[D, tokens]`.

    Source: Caracal, Section 3.2, Step 2, the second stage of the gate.
    """

    def __init__(self, channels: int, heads: int):
        super().__init__(channels, channels, 1, groups=heads)

    def forward(self, x: Tensor) -> Tensor:
        """Mix `[D, tokens]`."""
        heads, channels = self.groups, self.in_channels // self.groups
        weight = self.weight.view(heads, channels, channels)
        mixed = torch.baddbmm(self.bias.view(heads, channels, 1), weight, x.view(heads, channels, -1))
        return mixed.flatten(0, 1)
