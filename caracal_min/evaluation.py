"""How well a model predicts text that it has not seen: held-out loss, and loss by position.

All losses are cross-entropies in nats per token; divide by ln 2 for bits.

Read next: `training`, which watches the held-out loss.
"""

import numpy as np
import torch
from torch import Tensor

from .data import sequential_windows
from .language_model import LanguageModel
from .loss import token_loss

__all__ = ["held_out_loss", "loss_by_position", "token_losses"]


@torch.inference_mode()
def token_losses(model: LanguageModel, windows: Tensor, batch_size: int = 16) -> Tensor:
    """Return the loss of every predicted token.

    Args:
        windows: ids, `[W, L + 1]`: L inputs and, shifted by one, L targets (`data.sequential_windows`).
        batch_size: windows per forward pass.

    Returns:
        float32 `[W, L]` on the CPU, nats.  Entry t is the loss after seeing t + 1 tokens of the window.

    Raises:
        ValueError: windows that are not `[W, L + 1]` ids of this model.
    """
    if windows.ndim != 2 or windows.shape[0] == 0 or windows.shape[1] < 2:
        raise ValueError(f"windows have shape {tuple(windows.shape)}; give [count, length + 1], both at least 1")
    device, was_training = model.embedding.weight.device, model.training
    model.eval()
    losses = []
    for batch in windows.split(batch_size):
        batch = batch.to(device)
        logits, _ = model(batch[:, :-1])
        losses.append(token_loss(logits, batch[:, 1:], reduction="none").float().cpu())
    model.train(was_training)
    return torch.cat(losses)


def held_out_loss(model: LanguageModel, tokens: np.ndarray, context: int, limit: int | None = None,
                  batch_size: int = 16) -> float:
    """Return the mean loss over consecutive windows of `tokens`, in nats per token.

    Args:
        tokens: ids, one dimension, as `Corpus.validation`.
        context: tokens per window.
        limit: most windows, spread evenly over the text; None takes all.
    """
    return token_losses(model, sequential_windows(tokens, context, limit), batch_size).mean(dtype=torch.float64).item()


def loss_by_position(model: LanguageModel, tokens: np.ndarray, context: int, limit: int | None = None,
                     batch_size: int = 16) -> Tensor:
    """Return the mean loss at each position of a window: float32 `[context]`, nats.

    Entry t averages over windows the loss of the token that follows t + 1 seen ones.  Arguments as
    `held_out_loss`.
    """
    return token_losses(model, sequential_windows(tokens, context, limit), batch_size).mean(0)
