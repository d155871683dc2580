"""How well a model predicts unseen text: held-out loss, by position, by context length.

All losses are cross-entropies in nats per token; divide by ln 2 for bits.  The tasks of the paper's
Table 2 are those of lm-evaluation-harness, whose own command `python -m caracal_min lm_eval` runs.
"""

import math
from collections.abc import Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from .data.batches import sequential_windows
from .loss import rows_at_once, token_loss
from .packing import document_ids
from .tokenizer import Tokenizer

__all__ = ["bits_per_byte", "bytes_of_targets", "evaluating", "held_out_loss",
           "loss_by_context_length", "loss_by_position", "token_losses"]


@contextmanager
def evaluating(model: torch.nn.Module):
    """Put a model into evaluation mode, and back into that which it had."""
    # The trainer measures between two steps, and needs its model in training mode again.
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@torch.no_grad()
def token_losses(
    model: torch.nn.Module, windows: Tensor, batch_size: int = 16, progress: str = "",
    end_of_text: int | None = None
) -> Tensor:
    """Return the loss of every predicted token.

    Args:
        model: a `Caracal`, or another with its `hidden` and `unembed`.
        windows: ids, `[W, L + 1]`: L inputs and, shifted by one, L targets
            (`data.sequential_windows`).
        batch_size: windows per forward pass.
        progress: title of a progress bar; empty: none is shown.
        end_of_text: the id that ends a document, each of which is then read alone; None: a window
            is one text.

    Returns:
        float32 `[W, L]` on the CPU, nats.  Entry t is the loss after seeing t + 1 tokens.

    Raises:
        ValueError: windows that are not `[W, L + 1]`.
    """
    if windows.ndim != 2 or windows.shape[1] < 2:
        raise ValueError(f"windows have shape {tuple(windows.shape)}; give [count, length + 1]")
    losses = []
    device = model.device
    # Logits exist for some positions at a time, so memory does not grow with L x vocabulary.
    rows = rows_at_once(model.config.vocab_size)
    with evaluating(model):
        batches = windows.split(batch_size)
        hidden_bar = None if progress else True
        for batch in tqdm(batches, progress, disable=hidden_bar):
            # Windows wait on the CPU, so that a long text fits beside the model.
            batch = batch.to(device)
            tokens = batch[:, :-1]
            targets = batch[:, 1:].flatten()
            if end_of_text is None:
                hidden = model.hidden(tokens)
            else:
                hidden = model.hidden(tokens, documents=document_ids(tokens, end_of_text))
            # Rows of all windows in one list, which pieces of any size then share.
            hidden = hidden.flatten(0, 1)
            for h, t in zip(hidden.split(rows), targets.split(rows), strict=True):
                loss = token_loss(model.unembed(h), t, "none")
                losses.append(loss.float().cpu())
    return torch.cat(losses).view(len(windows), -1)


def held_out_loss(
    model: torch.nn.Module, tokens: np.ndarray, context: int, limit: int | None = None,
    batch_size: int = 16, end_of_text: int | None = None
) -> float:
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
    windows = sequential_windows(tokens, context, limit)
    losses = token_losses(model, windows, batch_size, end_of_text=end_of_text)
    # A float32 sum over millions of tokens would lose the digits that models differ in.
    return losses.mean(dtype=torch.float64).item()


def loss_by_position(
    model: torch.nn.Module, tokens: np.ndarray, context: int, limit: int | None = None,
    batch_size: int = 16
) -> Tensor:
    """Return the mean loss at each position of a window: float32 `[context]`, nats.

    Entry t averages over windows the loss of the token that follows t + 1 seen ones.  Arguments as
    `held_out_loss`.
    """
    windows = sequential_windows(tokens, context, limit)
    losses = token_losses(model, windows, batch_size)
    return losses.mean(0)


def loss_by_context_length(
    model: torch.nn.Module, tokens: np.ndarray, context: int,
    multiples: Sequence[int] = (1, 2, 4, 8, 16), limit: int | None = None,
    batch_tokens: int = 8192, progress: bool = False, end_of_text: int | None = None
) -> dict[int, float]:
    """Return the mean loss over windows of several lengths, each on the same predicted tokens.

    The text is cut into windows of the longest length, and those into windows of the shorter ones:
    only how much of the text before a token is seen differs.

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
        ValueError: multiples that do not divide the largest, or text shorter than a window.
    """
    lengths = sorted(m * context for m in set(multiples))
    largest = lengths[-1]
    # Windows that do not fill the longest one would leave out its last tokens.
    if any(largest % length for length in lengths):
        raise ValueError(f"multiples={tuple(multiples)}; give numbers that all divide the largest")
    longest = sequential_windows(tokens, largest, limit)
    means = {}
    for length in lengths:
        # Neighbouring windows share one token: the last target is the next window's first input.
        windows = longest.unfold(1, length + 1, length).reshape(-1, length + 1)
        title = f"context {length}" if progress else ""
        batch_size = max(1, batch_tokens // length)
        losses = token_losses(model, windows, batch_size, title, end_of_text)
        means[length] = losses.mean(dtype=torch.float64).item()
    return means


def bytes_of_targets(windows: Tensor, tokenizer: Tokenizer) -> int:
    """Return how many bytes of UTF-8 the targets of some windows `[W, L + 1]` stand for.

    An end of text stands for none.  A tokenizer that changes text (capitals, spaces) gives a number
    that means nothing.
    """
    targets = windows[:, 1:].flatten()
    ids = targets[targets != tokenizer.end_of_text]
    text = tokenizer.decode(ids.tolist())
    return len(text.encode())


def bits_per_byte(loss: float, tokens: int, text_bytes: int) -> float:
    """Return a mean loss in nats per token as bits per byte of the same text.

    Bits per byte compare models with different tokenizers.

    Example:
        >>> round(bits_per_byte(math.log(256), 100, 100), 9)
        8.0
    """
    return loss * tokens / (math.log(2) * text_bytes)
