"""How well a model predicts text that it has not seen: held-out loss, loss by position and by context length.

All losses are cross-entropies in nats per token; divide by ln 2 for bits.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..data.batches import sequential_windows
from ..data.shards import ShardedTokens
from ..language_model import LanguageModel, evaluating
from ..loss import rows_at_once, token_loss
from ..packing import document_ids
from ..progress import progress_bar

__all__ = ["held_out_loss", "loss_by_context_length", "loss_by_position", "token_losses"]


@torch.no_grad()
def token_losses(model: LanguageModel, windows: Tensor, batch_size: int = 16, progress: str = "",
                 end_of_text: int | None = None) -> Tensor:
    """Return the loss of every predicted token.

    Logits exist for `loss.rows_at_once` positions at a time, so memory does not grow with L times the vocabulary.

    Args:
        windows: ids, `[W, L + 1]`: L inputs and, shifted by one, L targets (`data.sequential_windows`).
        batch_size: windows per forward pass.
        progress: what a progress bar is called; empty: none is shown.
        end_of_text: the id that ends a document, each of which is then read alone; None: a window is one text.

    Returns:
        float32 `[W, L]` on the CPU, nats.  Entry t is the loss after seeing t + 1 tokens of the window.

    Raises:
        ValueError: windows that are not `[W, L + 1]` ids of this model.
    """
    if windows.ndim != 2 or windows.shape[0] == 0 or windows.shape[1] < 2:
        raise ValueError(f"windows have shape {tuple(windows.shape)}; give [count, length + 1], both at least 1")
    losses, rows = [], rows_at_once(len(model.embedding.weight))
    with evaluating(model):
        for batch in progress_bar(windows.split(batch_size), desc=progress, unit="batch", show=bool(progress)):
            batch = batch.to(model.embedding.weight.device)
            model.require_tokens(batch, "windows")
            tokens, targets = batch[:, :-1], batch[:, 1:].flatten().split(rows)
            hidden = (model.hidden(tokens) if end_of_text is None
                      else model.hidden_of(tokens, document_ids(tokens, end_of_text)))
            losses += [token_loss(model.unembed(h), t, reduction="none").float().cpu()
                       for h, t in zip(hidden.flatten(0, 1).split(rows), targets, strict=True)]
    return torch.cat(losses).view(len(windows), -1)


def held_out_loss(model: LanguageModel, tokens: np.ndarray | ShardedTokens, context: int, limit: int | None = None,
                  batch_size: int = 16, end_of_text: int | None = None) -> float:
    """Return the mean loss over consecutive windows of `tokens`, in nats per token.

    Args:
        tokens: ids, one dimension, as `Corpus.validation`.
        context: tokens per window.
        limit: most windows, spread evenly over the text; None takes all.
        batch_size, end_of_text: as in `token_losses`.

    Example:
        >>> from caracal_min import Caracal
        >>> text = np.frombuffer(b"to be or not to be " * 20, dtype=np.uint8)
        >>> loss = held_out_loss(Caracal.from_preset("nano"), text, context=64)
        >>> 4 < loss < 7    # an untrained model knows nothing: ln 256 = 5.5 nats
        True
    """
    losses = token_losses(model, sequential_windows(tokens, context, limit), batch_size, end_of_text=end_of_text)
    return losses.mean(dtype=torch.float64).item()


def loss_by_position(model: LanguageModel, tokens: np.ndarray | ShardedTokens, context: int, limit: int | None = None,
                     batch_size: int = 16) -> Tensor:
    """Return the mean loss at each position of a window: float32 `[context]`, nats.

    Entry t averages over windows the loss of the token that follows t + 1 seen ones.  Arguments as
    `held_out_loss`.
    """
    return token_losses(model, sequential_windows(tokens, context, limit), batch_size).mean(0)


def loss_by_context_length(model: LanguageModel, tokens: np.ndarray | ShardedTokens, context: int,
                           multiples: Sequence[int] = (1, 2, 4, 8, 16), limit: int | None = None,
                           batch_tokens: int = 8192, progress: bool = False,
                           end_of_text: int | None = None) -> dict[int, float]:
    """Return the mean loss over windows of several lengths, each length on the same predicted tokens.

    The text is cut into windows of the longest length, and those into windows of the shorter ones: only how much
    of the text before a token is seen differs.  A model trained at `context` should not do worse at its multiples.

    Args:
        tokens: ids, one dimension, as `Corpus.validation`.
        context: tokens per window at multiple 1, usually the length of training.
        multiples: window lengths as multiples of `context`; each must divide the largest.
        limit: most windows of the longest length, spread evenly over the text; None takes all.
        batch_tokens: tokens per forward pass, at least one window.
        progress: show a bar for each length.
        end_of_text: as in `token_losses`.

    Returns:
        Mean loss in nats per token by window length in tokens, shortest first.

    Raises:
        ValueError: multiples that do not divide the largest, or text shorter than the longest window.
    """
    lengths = sorted({m * context for m in multiples})
    if not lengths or lengths[0] < 1 or any(lengths[-1] % n for n in lengths):
        raise ValueError(f"multiples={tuple(multiples)}; give numbers >= 1 that all divide the largest")
    longest = sequential_windows(tokens, lengths[-1], limit)
    means = {}
    for n in lengths:
        windows = longest.unfold(1, n + 1, n).reshape(-1, n + 1)
        losses = token_losses(model, windows, max(1, batch_tokens // n), f"context {n}" if progress else "",
                              end_of_text)
        means[n] = losses.mean(dtype=torch.float64).item()
    return means
