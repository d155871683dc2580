"""The losses of a trained model under every ablation of `surgery`, and beyond the length of its training.

`surgery` makes a table: the whole model, and what each ablation changes, on the same tokens.  `loss_by_length` takes
windows of several lengths, with the gate as it is or cut at the training length; `loss_by_octave` takes long windows,
by how many tokens are seen, in the same two ways.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from torch import Tensor, cat

from caracal_min.evaluation import loss_by_context_length, loss_by_position, token_losses
from caracal_min.layers import MultiHeadFourier, SlidingWindowAttention, SwiGLU
from caracal_min.model import Caracal

from .surgery import (
    gate_as,
    gate_of_another,
    gate_up_to,
    in_eight_bits,
    layers_of,
    mean_gates,
    pre_conv_of_one_tap,
    windows_of,
    without,
)

__all__ = ["Outcome", "loss_by_length", "loss_by_octave", "surgery"]

_KINDS = {"Fourier": MultiHeadFourier, "attention": SlidingWindowAttention, "feed-forward": SwiGLU}


@dataclass(frozen=True)
class Outcome:
    """The loss of a model under an ablation, on the same tokens as that of the whole model."""

    operation: str
    """Name of the ablation."""
    loss: float
    """Mean over all tokens, in nats per token."""
    change: float
    """That, minus the loss of the whole model."""
    error: float
    """Standard error of the change, over windows."""


def surgery(model: Caracal, windows: Tensor, lags: Sequence[int] = (0, 4, 32), batch_size: int = 16) -> list[Outcome]:
    """Measure a model whole and under every ablation, on the same tokens.

    Args:
        windows: ids, `[W, L + 1]`, at least two (`data.batches.sequential_windows`).
        lags: up to which the gate is kept.
        batch_size: windows per forward pass, at least two.

    Returns:
        outcomes, the whole model first.

    Raises:
        ValueError: fewer than two windows, or a model that cannot be ablated.
    """
    if len(windows) < 2 or batch_size < 2:
        raise ValueError(f"{len(windows)} windows in batches of {batch_size}; give at least two at a time, since one "
                         "has no other's gate")

    def losses(context, of: Tensor = windows) -> Tensor:
        # The size nearest to batch_size that leaves no single text at the end, which would have no other's gate.
        sizes = (*range(batch_size, 1, -1), *range(batch_size, len(of) + 1))
        with context:
            rows = next((size for size in sizes if len(of) % size != 1), batch_size)
            return token_losses(model, of, rows).double().mean(1)

    def with_means() -> Tensor:
        halves = windows.tensor_split(2)  # each gets the mean gate of the other
        return cat([losses(gate_as(model, mean_gates(model, other[:, :-1], batch_size)), own)
                    for own, other in zip(halves, halves[::-1], strict=True)])

    whole = losses(nullcontext())
    found: dict[str, Callable[[], Tensor]] = {f"gate up to lag {lag}": lambda lag=lag: losses(gate_up_to(model, lag))
                                              for lag in lags}
    found |= {"mean gate": with_means, "gate of another text": lambda: losses(gate_of_another(model))}
    if layers_of(model, SlidingWindowAttention):
        found["windows of one key"] = lambda: losses(windows_of(model, 1))
    if any(layer.pre_conv is not None for layer in layers_of(model, MultiHeadFourier)):
        found["pre-convolution of one tap"] = lambda: losses(pre_conv_of_one_tap(model))
    found |= {f"no {name} layers": lambda kind=kind: losses(without(model, kind))
              for name, kind in _KINDS.items() if layers_of(model, kind)}
    found["matrices of eight bits"] = lambda: losses(in_eight_bits(model))
    outcomes = [Outcome("whole", whole.mean().item(), 0.0, 0.0)]
    for operation, measure in found.items():
        loss = measure()
        change = loss - whole
        outcomes.append(Outcome(operation, loss.mean().item(), change.mean().item(),
                                (change.std() / len(change) ** 0.5).item()))
    return outcomes


def loss_by_length(model: Caracal, tokens: np.ndarray, context: int, cut: bool,
                   multiples: Sequence[int] = (1, 2, 4, 8, 16), limit: int | None = None,
                   batch_tokens: int = 8192) -> dict[int, float]:
    """Return the mean loss over windows of several lengths, each on the same tokens, in nats per token.

    Args:
        tokens: ids, one dimension.
        context: length of training, L.
        cut: set g_i = 0 for i >= L, so that nothing changes within L.
        multiples, limit, batch_tokens: as `evaluation.losses.loss_by_context_length`.
    """
    with gate_up_to(model, context - 1) if cut else nullcontext():
        return loss_by_context_length(model, tokens, context, multiples, limit, batch_tokens)


def loss_by_octave(model: Caracal, tokens: np.ndarray, context: int, cut: bool, length: int,
                   limit: int | None = None, batch_tokens: int = 8192) -> dict[int, float]:
    """Return the mean loss after 1 token, 2, 3 to 4, 5 to 8, ... tokens of windows, by the largest of these numbers.

    Args:
        tokens, context, cut, limit, batch_tokens: as `loss_by_length`.
        length: tokens per window.

    Returns:
        nats per token; the last key is `length`.
    """
    with gate_up_to(model, context - 1) if cut else nullcontext():
        losses = loss_by_position(model, tokens, length, limit, max(1, batch_tokens // length)).double()
    ends = [*(2 ** i for i in range((length - 1).bit_length())), length]
    return {end: losses[start:end].mean().item() for start, end in zip([0, *ends], ends, strict=False)}
