"""Layers of PyTorch with another `forward`: in memory layouts in which nothing has to be copied, or of two uses.

Tokens enter as `[B, L, D]`, channels contiguous.  The convolution over time wants time contiguous.  A matrix product
writes its result in either order at the same cost, so the projections are where the order in memory changes::

    class             shapes, as its base class      in memory
    ShortConv         `[B, D, L + 2]`, `[B, D, L]`   `[B, L + 2, D]`, `[B, L, D]`
    TimeLastLinear    `[..., in]`, `[..., out]`      `[..., in]`, `[out, ...]`
    HeadMix           `[B, D, L]`, `[B, D, L]`       `[D, B, L]`, `[D, B, L]`
    TiedEmbedding     `[...]`, `[..., D]`            contiguous

Each keeps the contract of its base class in PyTorch: it is built like it, takes inputs of the same shapes and of any
strides, and returns the same values.  So adapters, quantisation and hooks may treat it as that class.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import has_torch_function_unary

__all__ = ["HeadMix", "ShortConv", "TiedEmbedding", "TimeLastLinear", "shifted_products"]


class ShortConv(nn.Conv1d):
    """An `nn.Conv1d` that is fast where it is depthwise, has no bias, and channels are contiguous in memory.

    Shape: `[B, D, taps - 1 + L]` to `[B, D, L]`; after padding on the left it is causal.

    Source: Caracal, Section 3.2, Step 1.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Convolve `[B, D, taps - 1 + L]`."""
        if not _is_plain(self, x) or self.groups != self.in_channels or self.bias is not None:
            return super().forward(x)
        if x.shape[-1] == self.kernel_size[0] and x.dtype == self.weight.dtype:  # one token
            return (x * self.weight[:, 0]).sum(-1, keepdim=True)
        if torch.compiler.is_compiling() or x.is_cuda:  # where the library's convolution would round to TF32
            return shifted_products(x.mT, self.weight).mT
        # As an image of height 1 in channels-last layout: the convolution then reads x as it lies.
        return F.conv2d(x.unsqueeze(-2), self.weight.unsqueeze(2), groups=self.groups).squeeze(-2)


def shifted_products(x: Tensor, weight: Tensor) -> Tensor:
    """Convolve as `ShortConv` does, by a product per tap: `[..., taps - 1 + L, D]` and `[D, 1, taps]` to `[..., L, D]`.

    The compiler makes one loop of it, together with the norm that follows.
    """
    taps = weight.shape[-1]
    length = x.shape[-2] - taps + 1
    r = x[..., :length, :] * weight[:, 0, 0]
    for k in range(1, taps):
        r = torch.addcmul(r, x[..., k:k + length, :], weight[:, 0, k])
    return r


class TimeLastLinear(nn.Linear):
    """An `nn.Linear` whose result lies in memory as `[out_features, ...]`: transposed, its time is contiguous.

    Shape: `[..., in_features]` to `[..., out_features]`.

    Source: Caracal, Section 3.2, Step 2.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to `[..., in_features]`."""
        one_token = x.ndim < 2 or x.shape[-2] == 1  # there is no order in time, and PyTorch's product is faster
        if one_token or self.bias is None or has_torch_function_unary(self.weight):  # such as a quantised weight
            return super().forward(x)
        columns = torch.addmm(self.bias.unsqueeze(1), self.weight, x.reshape(-1, x.shape[-1]).t())
        return columns.t().view(*x.shape[:-1], self.out_features)


class HeadMix(nn.Conv1d):
    """An `nn.Conv1d` that is fast where it has one tap and a bias, and `[D, B, L]` is contiguous in memory.

    With a group for each head it mixes channels within each head, token by token.

    Shape: `[B, D, L]` to `[B, D, L]`.

    Source: Caracal, Section 3.2, Step 2, the second stage of the gate.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Mix `[B, D, L]`."""
        if not _is_plain(self, x) or self.kernel_size != (1,) or self.bias is None:
            return super().forward(x)
        heads, channels = self.groups, self.in_channels // self.groups
        weight, bias = self.weight.view(heads, channels, channels), self.bias.view(heads, channels, 1)
        if x.numel() == self.in_channels and x.dtype == weight.dtype:  # one token: bmm would wait for its threads
            return ((weight * x.reshape(heads, 1, channels)).sum(-1, keepdim=True) + bias).view(x.shape)
        columns = x.movedim(-2, 0)  # (D, B, L)
        mixed = torch.baddbmm(bias, weight, columns.reshape(heads, channels, -1))
        return mixed.view(columns.shape).movedim(0, -2)


class TiedEmbedding(nn.Embedding):
    """An `nn.Embedding` whose matrix is that of the output layer, too: a call with hidden states applies this one.

    Shape: ids `[...]` to vectors `[..., D]`; hidden states `[..., D]` to what `product` returns of them.
    """

    def forward(self, x: Tensor, product: Callable[[Tensor, Tensor], Tensor] = F.linear) -> Tensor:
        """Look up ids, or return `product(x, weight)` of hidden states; by default logits, `[..., num_embeddings]`."""
        return product(x, self.weight) if x.is_floating_point() else super().forward(x)


def _is_plain(conv: nn.Conv1d, x: Tensor) -> bool:
    """Whether x fits the layer, which neither pads nor strides nor changes the width; all else is left to PyTorch."""
    return (x.ndim in (2, 3) and x.shape[-2] == conv.in_channels == conv.out_channels
            and conv.stride == conv.dilation == (1,) and conv.padding == (0,))
