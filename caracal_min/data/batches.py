"""Tokens to batches: a deterministic, endless order for training, consecutive windows for evaluation."""

from __future__ import annotations  # PyTorch is imported when the first batch is cut

from typing import TYPE_CHECKING

import numpy as np

from .shards import ShardedTokens

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Batches", "require_window", "sequential_windows"]


class Batches:
    """Training batches in a fixed, shuffled, endless order: `batches[i]` depends on nothing but i.

    Each epoch cuts the tokens into windows of `context` + 1 at an offset of its own and permutes them;
    no window repeats within an epoch.  To resume, go on with the next i.

    Args:
        tokens: ids, one dimension: an array, or a `shards.ShardedTokens`.
        context: tokens per sequence, L.
        batch_size: sequences per batch of this process, B.
        seed: of the offsets and permutations.
        rank, world_size: of `world_size` processes that train together, process `rank` takes rows rank * batch_size
            and on of what one process would read with all their rows.

    `batches[i]` is a pair of int64 tensors `[B, L]`: inputs, and the same shifted by one as targets.

    The permutation is numpy's, in 4 bytes a window: 10B tokens at context 512 are 19.5M windows, 78 MB.

    Raises:
        ValueError: fewer than context + 1 tokens per batch row, a size below 1, or a rank that is not one of them.
    """

    def __init__(self, tokens: np.ndarray | ShardedTokens, context: int, batch_size: int, seed: int = 0,
                 rank: int = 0, world_size: int = 1):
        if context < 1 or batch_size < 1:
            raise ValueError(f"context={context}, batch_size={batch_size}; give numbers >= 1")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank={rank}, world_size={world_size}; give a rank from 0 to world_size - 1")
        rows = batch_size * world_size
        self.windows = (len(tokens) - context) // context  # per epoch, whatever the offset
        self.per_epoch = self.windows // rows
        if self.per_epoch < 1:
            raise ValueError(f"{len(tokens)} tokens hold {max(0, self.windows)} windows of {context}, fewer than "
                             f"batch_size={rows}; give more text, or a smaller context or batch")
        self.tokens, self.context, self.batch_size, self.seed = tokens, context, batch_size, seed
        self.rank, self.world_size = rank, world_size
        self._epoch = -1

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        import torch

        epoch, position = divmod(i, self.per_epoch)
        if epoch != self._epoch:
            draw = np.random.default_rng([self.seed, epoch])
            self._epoch, self._offset = epoch, int(draw.integers(self.context))
            self._order = np.arange(self.windows, dtype=np.min_scalar_type(self.windows))
            draw.shuffle(self._order)
        first = (position * self.world_size + self.rank) * self.batch_size
        starts = self._offset + self.context * self._order[first:first + self.batch_size].astype(np.int64)
        rows = np.stack([self.tokens[s:s + self.context + 1] for s in starts]).astype(np.int64)
        rows = torch.from_numpy(rows)
        return rows[:, :-1], rows[:, 1:]

    def epochs(self, n: int) -> float:
        """Return how many passes over the tokens n batches are."""
        return n / self.per_epoch


def require_window(tokens: np.ndarray | ShardedTokens, context: int, what: str = "") -> None:
    """Raise ValueError, in one line, if tokens are fewer than a window of L + 1; `what` says which tokens they are."""
    if len(tokens) < context + 1:
        raise ValueError(f"{len(tokens)} tokens{what} are fewer than one window of {context} + 1; give more text")


def sequential_windows(tokens: np.ndarray | ShardedTokens, context: int, limit: int | None = None) -> Tensor:
    """Cut tokens into consecutive windows for evaluation.

    Args:
        tokens: ids, one dimension.
        context: tokens per window, L.
        limit: most windows to return, spread evenly over the text; None returns all.

    Returns:
        int64 `[windows, L + 1]`: L inputs and, shifted by one, L targets; windows overlap by that one token.

    Raises:
        ValueError: fewer than L + 1 tokens.
    """
    import torch

    require_window(tokens, context)
    count = (len(tokens) - 1) // context
    chosen = np.arange(count) if limit is None or limit >= count else np.linspace(0, count - 1, limit).astype(int)
    rows = np.stack([tokens[i * context:i * context + context + 1] for i in chosen])
    return torch.from_numpy(rows.astype(np.int64))
