"""Moved to `decoding`, but for the cache of `transformers`, which moves to `hf`."""

from contextlib import nullcontext
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from .decoding import Cache, FourierCache, WindowCache, is_one_token
from .packing import padded_right

__all__ = ["Cache", "CaracalCache", "FourierCache", "WindowCache", "advance_together", "is_one_token"]

# Does nothing; it stays until `model` no longer calls it.
advance_together = nullcontext


class CaracalCache:
    """What `generate` of `hf` hands from token to token: the caches of the layers, and the tokens that they have read.

    Full caches are replaced by longer ones, which read all tokens again, in one parallel pass.

    Attributes:
        layers: a cache for each block (`caches`); none before the first token.
        tokens, mask: what was given as input_ids, `[B, N]`, and where it is no padding, `[B, N]`.
    """

    is_compileable = is_croppable = False
    is_linear = (False,)
    __copy__ = deepcopy

    def __init__(self) -> None:
        self.layers: list[Cache] = []
        self.tokens = self.mask = torch.empty(0, 0)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return how many tokens a row was given, N, its padding included."""
        return self.tokens.shape[1]

    def reorder_cache(self, rows: Tensor) -> None:
        """Let row i be what row rows[i] was, as beam search does; rows: `[B]`."""
        for cache in self.layers:
            cache.reorder(rows)
        self.tokens, self.mask = self.tokens[rows], self.mask[rows]

    def reserve(self, model: Any, ids: Tensor) -> None:
        """Make room for `[B, L]` ids more; model: `hf.CaracalForCausalLM`, whose caches these are."""
        rows, count = ids.shape
        held = model.seen(self.layers) if self.layers else [0] * rows
        if len(held) != rows:
            raise ValueError(f"the cache has {len(held)} rows, input_ids {rows}; give as many, or begin without cache")
        needed = max(held) + count
        if self.layers and all(cache.capacity is None or needed <= cache.capacity for cache in self.layers):
            return
        layers = model.new_caches(rows, needed + max(256, needed // 2), device=ids.device)
        if self.layers:
            with torch.no_grad():
                model.hidden(padded_right(self.tokens, self.mask), layers, self.mask.sum(1).tolist())
        self.layers = layers

    def keep(self, tokens: Tensor, mask: Tensor) -> None:
        """Note what the layers have read."""
        if self.tokens.numel():
            tokens, mask = torch.cat([self.tokens, tokens], 1), torch.cat([self.mask, mask], 1)
        self.tokens, self.mask = tokens, mask
