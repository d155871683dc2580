"""What does a trained model use?  Inference-time ablations: remove or replace a component, and measure the loss.

Each ablation is a context: inside it the model computes otherwise, after it the model is as it was.  No weight changes;
hooks on the layers change activations.  They work on the parallel pass of a Caracal that is not compiled, or of a
`Learner` (but for the mean, which needs a language model), and are for measuring: the backward pass, which recomputes
some of the layer, must lie inside the context too::

    gate_up_to(model, lag)        g_i = 0 for i > lag: r_t keeps the lags 0 to lag.  At lag 0 no convolution is left
    gate_as(model, gates)         every text gets the same gates, such as `mean_gates(model, texts)`
    gate_of_another(model)        every text of a batch gets the gates of the text after it (resample ablation)
    windows_of(model, keys)       attention sees its last keys only; 1: itself, so nothing is mixed
    pre_conv_of_one_tap(model)    the short convolution keeps the weight of the token itself

`surgery` measures a model under each of them, and `loss_by_length` whether the gate must be cut beyond the training
length.  In this layer lag and position are one: g_i is computed by the token at position i and weighs the token i back.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from caracal_min.evaluation.losses import loss_by_context_length, token_losses
from caracal_min.model import Caracal
from caracal_min.modules import MultiHeadFourier, SlidingWindowAttention

from .learner import Learner

__all__ = ["Outcome", "gate_as", "gate_of_another", "gate_up_to", "loss_by_length", "mean_gates",
           "pre_conv_of_one_tap", "surgery", "windows_of"]


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


@contextmanager
def gate_up_to(model: Caracal | Learner, lag: int) -> Iterator[None]:
    """Set g_i = 0 for i > lag in every Fourier layer.

    Raises:
        ValueError: lag < 0, or a model that cannot be ablated so (as for all ablations here).
    """
    if lag < 0:
        raise ValueError(f"lag={lag}; give a lag >= 0")
    with _gates(model, lambda layer, g: g * (torch.arange(g.shape[-1], device=g.device) <= lag)):
        yield


@contextmanager
def gate_as(model: Caracal | Learner, gates: Sequence[Tensor]) -> Iterator[None]:
    """Give every text the same gates.

    Args:
        gates: for each Fourier layer `[D, L]`, at least as long as the texts; see `mean_gates`.

    Raises:
        ValueError: not one for each Fourier layer, or texts that are longer.
    """
    layers = _layers(model, MultiHeadFourier)
    if len(gates) != len(layers):
        raise ValueError(f"{len(gates)} gates for {len(layers)} Fourier layers; give one for each")
    given = dict(zip(layers, gates, strict=True))

    def put(layer: MultiHeadFourier, g: Tensor) -> Tensor:
        if given[layer].shape[-1] < g.shape[-1]:
            raise ValueError(f"gates of {given[layer].shape[-1]} tokens for a text of {g.shape[-1]}; "
                             "take their mean over texts that are as long")
        return given[layer][:, :g.shape[-1]].to(g).unsqueeze(1).expand_as(g)

    with _gates(model, put):
        yield


@contextmanager
def gate_of_another(model: Caracal | Learner) -> Iterator[None]:
    """Give every text of a batch the gates of the text after it, and the last those of the first.

    Raises:
        ValueError: a batch of one text.
    """
    def swap(layer: MultiHeadFourier, g: Tensor) -> Tensor:
        if g.shape[1] < 2:
            raise ValueError("a batch of one text has no other's gate; give at least two texts at a time")
        return g.roll(-1, dims=1)

    with _gates(model, swap):
        yield


@contextmanager
def windows_of(model: Caracal | Learner, keys: int = 1) -> Iterator[None]:
    """Let every attention layer see its last `keys` keys only, the token's own included.

    Raises:
        ValueError: keys < 1.
    """
    if keys < 1:
        raise ValueError(f"keys={keys}; a token sees at least itself, give keys >= 1")
    layers = _layers(model, SlidingWindowAttention)
    before = [layer.window_size for layer in layers]
    try:
        for layer, window in zip(layers, before, strict=True):
            layer.window_size = min(keys, window)
        yield
    finally:
        for layer, window in zip(layers, before, strict=True):
            layer.window_size = window


@contextmanager
def pre_conv_of_one_tap(model: Caracal | Learner) -> Iterator[None]:
    """Let every pre-convolution keep the weight of the token itself: x~_t = w_2 x_t."""
    def own_tap(conv: nn.Module, given: tuple[Tensor], result: Tensor) -> Tensor:
        return given[0][..., conv.kernel_size[0] - 1:] * conv.weight[:, 0, -1:]

    with ExitStack() as hooks:
        for layer in _layers(model, MultiHeadFourier):
            if layer.pre_conv is not None:
                hooks.callback(layer.pre_conv.register_forward_hook(own_tap).remove)
        yield


@torch.no_grad()
def mean_gates(model: Caracal | Learner, texts: Tensor, batch_size: int = 16) -> list[Tensor]:
    """Return the mean gates of some texts, position by position: for each Fourier layer `[D, L]`.

    Take other texts than those that are measured, since the mean includes a fraction of each.

    Args:
        texts: ids, `[W, L]`.
    """
    sums: dict[MultiHeadFourier, Tensor] = {}

    def add(layer: MultiHeadFourier, g: Tensor) -> Tensor:
        sums[layer] = sums.get(layer, 0) + g.sum(1, dtype=torch.float64)
        return g

    with _gates(model, add):
        for batch in texts.split(batch_size):
            model.hidden(batch.to(model.embedding.weight.device))
    return [sums[layer].to(torch.float32) / len(texts) for layer in _layers(model, MultiHeadFourier)]


def surgery(model: Caracal, windows: Tensor, lags: Sequence[int] = (0, 4, 32), others: Tensor | None = None,
            batch_size: int = 16) -> list[Outcome]:
    """Measure a model whole and under every ablation, on the same tokens.

    Args:
        windows: ids, `[W, L + 1]`, at least two (`data.batches.sequential_windows`).
        lags: up to which the gate is kept.
        others: windows of other texts, `[W', L + 1]`, for the mean gate; None splits `windows` in two halves, and each
            gets the mean of the other.
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
        if others is not None:
            return losses(gate_as(model, mean_gates(model, others[:, :-1], batch_size)))
        halves = windows.tensor_split(2)
        return torch.cat([losses(gate_as(model, mean_gates(model, other[:, :-1], batch_size)), own)
                          for own, other in zip(halves, halves[::-1], strict=True)])

    whole = losses(nullcontext())
    found: dict[str, Callable[[], Tensor]] = {f"gate up to lag {lag}": lambda lag=lag: losses(gate_up_to(model, lag))
                                              for lag in lags}
    found |= {"mean gate": with_means, "gate of another text": lambda: losses(gate_of_another(model))}
    if _layers(model, SlidingWindowAttention):
        found["windows of one key"] = lambda: losses(windows_of(model, 1))
    if any(layer.pre_conv is not None for layer in _layers(model, MultiHeadFourier)):
        found["pre-convolution of one tap"] = lambda: losses(pre_conv_of_one_tap(model))
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


def _layers(model: Caracal | Learner, kind: type) -> list:
    """Return the mixers of a kind, after a check that the model can be ablated."""
    if not isinstance(model, Caracal | Learner):
        raise ValueError(f"ablations are of a Caracal or a Learner, this is a {type(model).__name__}")
    if isinstance(model, Caracal) and model._compiled != "no":
        raise ValueError("this model is compiled, and compiled code passes hooks by; load it anew")
    return [block.mixer for block in model.blocks if isinstance(block.mixer, kind)]


@contextmanager
def _gates(model: Caracal | Learner, change: Callable[[MultiHeadFourier, Tensor], Tensor]) -> Iterator[None]:
    """Let g pass `change(layer, g)` in every Fourier layer, g as `[D, B, L]`."""
    if not (layers := _layers(model, MultiHeadFourier)):
        raise ValueError("this model has no Fourier layer, and so no gate")
    with ExitStack() as hooks:
        for layer in layers:
            for handle in _gate_hooks(layer, change):
                hooks.callback(handle.remove)
        yield


def _gate_hooks(layer: MultiHeadFourier, change: Callable) -> Iterable:
    def refuse_caches(_, given: tuple) -> None:
        if any(argument is not None for argument in given[1:]):
            raise ValueError("ablations are of the parallel pass: a cache would take lags for positions; give whole "
                             "texts")

    def mixed(_, given: tuple, g: Tensor) -> Tensor:  # (B, D, L)
        return change(layer, g.transpose(0, 1)).transpose(0, 1)

    def projected(_, given: tuple, g: Tensor) -> Tensor:  # (B, L, D)
        return change(layer, g.permute(2, 0, 1)).permute(1, 2, 0)

    last = layer.to_gate.register_forward_hook(projected) if layer.gate_mix is None else \
        layer.gate_mix.register_forward_hook(mixed)
    return layer.register_forward_pre_hook(refuse_caches), last
