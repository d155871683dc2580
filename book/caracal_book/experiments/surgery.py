"""What does a trained model use?  Inference-time ablations: remove or replace a component, and measure the loss.

Each ablation is a context: inside it the model computes otherwise, after it the model is as it was.  Hooks on layers
change activations; only the last one changes weights.  They work on the parallel pass of a Caracal that is not
compiled, or of a `Learner` (but for the mean, which needs a language model), and are for measuring: the backward pass,
which recomputes some of the layer, must lie inside the context too::

    gate_up_to(model, lag)        g_i = 0 for i > lag: r_t keeps the lags 0 to lag.  At lag 0 no convolution is left
    gate_as(model, gates)         every text gets the same gates, such as `mean_gates(model, texts)`
    gate_of_another(model)        every text of a batch gets the gates of the text after it (resample ablation)
    windows_of(model, keys)       attention sees its last keys only; 1: itself, so nothing is mixed
    pre_conv_of_one_tap(model)    the short convolution keeps the weight of the token itself
    without(model, kind)          layers of a kind add nothing: Fourier, attention, or feed-forward
    in_eight_bits(model)          every matrix is rounded to eight bits, one scale per row (`web_export`)

`ablated` measures a model under each of them.  In this layer lag and position are one: g_i is computed by the token at
position i and weighs the token i back.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from caracal_min.layers import MultiHeadFourier, SlidingWindowAttention

from ..web_export import dequantize_rows, quantize_rows

__all__ = ["gate_as", "gate_of_another", "gate_up_to", "in_eight_bits", "layers_of", "mean_gates",
           "pre_conv_of_one_tap", "windows_of", "without"]


@contextmanager
def gate_up_to(model: nn.Module, lag: int) -> Iterator[None]:
    """Set g_i = 0 for i > lag in every Fourier layer.

    Raises:
        ValueError: a model that cannot be ablated so (as for all ablations here).
    """
    with _gates(model, lambda layer, g: g * (torch.arange(g.shape[-1], device=g.device) <= lag)):
        yield


@contextmanager
def gate_as(model: nn.Module, gates: Sequence[Tensor]) -> Iterator[None]:
    """Give every text the same gates.

    Args:
        gates: for each Fourier layer `[D, L]`, at least as long as the texts; see `mean_gates`.

    Raises:
        ValueError: not one for each Fourier layer.
    """
    given = dict(zip(layers_of(model, MultiHeadFourier), gates, strict=True))
    with _gates(model, lambda layer, g: given[layer][:, :g.shape[-1]].to(g).unsqueeze(1).expand_as(g)):
        yield


@contextmanager
def gate_of_another(model: nn.Module) -> Iterator[None]:
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
def windows_of(model: nn.Module, keys: int = 1) -> Iterator[None]:
    """Let every attention layer see its last `keys` keys only, at least 1, the token's own included."""
    layers = layers_of(model, SlidingWindowAttention)
    before = [layer.window_size for layer in layers]
    try:
        for layer, window in zip(layers, before, strict=True):
            layer.window_size = min(keys, window)
        yield
    finally:
        for layer, window in zip(layers, before, strict=True):
            layer.window_size = window


@contextmanager
def pre_conv_of_one_tap(model: nn.Module) -> Iterator[None]:
    """Let every pre-convolution keep the weight of the token itself: x~_t = w_2 x_t."""
    def own_tap(conv: nn.Module, given: tuple[Tensor], result: Tensor) -> Tensor:
        return given[0][..., conv.kernel_size[0] - 1:] * conv.weight[:, 0, -1:]

    with ExitStack() as hooks:
        for layer in layers_of(model, MultiHeadFourier):
            if layer.pre_conv is not None:
                hooks.callback(layer.pre_conv.register_forward_hook(own_tap).remove)
        yield


@contextmanager
def without(model: nn.Module, kind: type[nn.Module]) -> Iterator[None]:
    """Let the layers of a kind add nothing to the residual stream.

    Args:
        kind: `MultiHeadFourier`, `SlidingWindowAttention` or `SwiGLU`.
    """
    with ExitStack() as hooks:
        for layer in layers_of(model, kind):
            hooks.callback(layer.register_forward_hook(lambda _, given, result: torch.zeros_like(result)).remove)
        yield


@contextmanager
def in_eight_bits(model: nn.Module) -> Iterator[None]:
    """Round every matrix as `web_export.quantize_rows` does.

    Raises:
        ValueError: a weight that is not finite.
    """
    layers_of(model, nn.Module)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    try:
        model.load_state_dict(dequantize_rows(quantize_rows(before)))
        yield
    finally:
        model.load_state_dict(before)


@torch.no_grad()
def mean_gates(model: nn.Module, texts: Tensor, batch_size: int = 16) -> list[Tensor]:
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
    return [sums[layer].to(torch.float32) / len(texts) for layer in layers_of(model, MultiHeadFourier)]


def layers_of(model: nn.Module, kind: type) -> list:
    """Return the mixers and feed-forward layers of a kind, after a check that hooks on them are called."""
    if getattr(model, "_compiled", "no") != "no":
        raise ValueError("this model is compiled, and compiled code passes hooks by; load it anew")
    return [layer for block in model.blocks for layer in (block.mixer, block.mlp) if isinstance(layer, kind)]


@contextmanager
def _gates(model: nn.Module, change: Callable[[MultiHeadFourier, Tensor], Tensor]) -> Iterator[None]:
    """Let g pass `change(layer, g)` in every Fourier layer, g as `[D, B, L]`."""
    if not (layers := layers_of(model, MultiHeadFourier)):
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
