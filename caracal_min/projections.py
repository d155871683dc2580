"""Moved to `layers`, but for `TiedEmbedding`."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from .layers import HeadMix, ShortConv, TimeLastLinear, shifted_products  # noqa: F401


class TiedEmbedding(nn.Embedding):
    """An `nn.Embedding` whose matrix is that of the output layer, too: a call with hidden states applies this one.

    Shape: ids `[...]` to vectors `[..., D]`; hidden states `[..., D]` to what `product` returns of them.
    """

    def forward(self, x: Tensor, product: Callable[[Tensor, Tensor], Tensor] = F.linear) -> Tensor:
        """Look up ids, or return `product(x, weight)` of hidden states; by default logits, `[..., num_embeddings]`."""
        return product(x, self.weight) if x.is_floating_point() else super().forward(x)
