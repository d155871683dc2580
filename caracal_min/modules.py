"""The layers of Caracal: Multi-Head Fourier, sliding-window attention, SwiGLU, and the block around them.

Symbols, with the names of the paper (Section 3.2)::

    B, L, D        batch, tokens, model width
    H, d           heads, channels per head, D = H d
    x~             pre_conv(x): depthwise causal convolution of 3 taps          Step 1
    v              to_value(norm(x~)): the content stream, x_v                  Step 2
    g              gate_mix(SiLU(to_gate(norm(x~)))): the gate stream, x_g      Step 2
    r              causal convolution of v and g, channel by channel            Steps 3 and 4
    y              to_out(r)                                                    Step 4

A mixer takes `[B, L, D]` and returns `[B, L, D]`.  Given a cache, it continues the sequence held there:
the outputs are those of the parallel pass at the new positions.
"""

from collections.abc import Callable, Sequence
from copy import copy
from operator import index
from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook
from torch.utils.checkpoint import checkpoint

from .attention import sliding_window_attention
from .caches import Cache, FourierCache, WindowCache, is_one_token
from .config import Gate
from .convolution import causal_conv_fft
from .partitioned import PartitionedConvolution, RollingConvolution
from .projections import HeadMix, ShortConv, TimeLastLinear
from .relaxed import DotProductConvolution, RelaxedConvolution
from .spectral import transformed

__all__ = ["Block", "MultiHeadFourier", "SlidingWindowAttention", "SwiGLU"]

# For a gate at every token, and for one that is cut.
_CONVOLUTIONS = {"relaxed": (RelaxedConvolution, PartitionedConvolution),
                 "dot_product": (DotProductConvolution, RollingConvolution)}


class MultiHeadFourier(nn.Module):
    """Mix tokens by convolving a content stream with a gate stream, both computed from the input.

    Args:
        d_model: width D.
        n_heads: heads H; the gate's second stage mixes channels inside a head. D % H must be 0.
        pre_conv: False drops the 3-tap convolution of Step 1 (the paper's ablation "w/o PC").
        gate: "two_stage" (the paper's), or "single_stage" (its ablation SSLP: one linear map).
        gate_length: None (the paper's), or the number K of tokens of a text that have a gate: g_i = 0 for i >= K.  Then
            r_t is a sum over the last K tokens, and decoding needs the last K of v and the first K of g: the
            "fixed-size rolling buffer" of Section 3.3 and Appendix F is available in this form.

    Shape: `[B, L, D]` to `[B, L, D]`, any floating dtype; the convolution runs in at least float32.

    Raises:
        ValueError: d_model not divisible by n_heads; unknown gate; gate_length below 1; an input that is not
            [B, L, d_model], not of a floating dtype, or not where the layer is.

    Example:
        >>> layer = MultiHeadFourier(d_model=64, n_heads=4)
        >>> layer(torch.randn(2, 100, 64)).shape
        torch.Size([2, 100, 64])

    Source: Caracal, Section 3.2 and Algorithm 1.
    """

    kernel_size = 3

    def __init__(self, d_model: int, n_heads: int, pre_conv: bool = True, gate: Gate = "two_stage",
                 gate_length: int | None = None):
        super().__init__()
        _require_heads(d_model, n_heads)
        if gate not in get_args(Gate):
            raise ValueError(f"unknown gate {gate!r}; accepted: {', '.join(get_args(Gate))}")
        if gate_length is not None and gate_length < 1:
            raise ValueError(f"gate_length={gate_length}; give a number >= 1, or None for a gate at every token")
        self.d_model, self.n_heads = index(d_model), index(n_heads)
        self.gate_length = None if gate_length is None else index(gate_length)
        self.pre_conv = ShortConv(d_model, d_model, self.kernel_size, groups=d_model, bias=False) if pre_conv else None
        self.norm = nn.LayerNorm(d_model)
        self.to_value = TimeLastLinear(d_model, d_model)
        self.to_gate = TimeLastLinear(d_model, d_model)
        self.gate_mix = HeadMix(d_model, d_model, 1, groups=n_heads) if gate == "two_stage" else None
        self.to_out = nn.Linear(d_model, d_model)

    def streams(self, x: Tensor, conv_state: Tensor | None = None, start: int = 0) -> tuple[Tensor, Tensor]:
        """Compute the content and gate streams: `[B, L, D]` to `[B, D, L]` each, the gate only before gate_length.

        `conv_state` holds the kernel_size - 1 inputs before x, `[B, 2, D]`; without it they are zeros.  `start` is
        how many tokens come before x, in the row with the fewest.

        In memory the streams are `[D, B, L]`: the projections write them like that at no cost, time ends up
        contiguous for the transforms, and no tensor is copied to change its layout.

        Source: Caracal, Section 3.2, Steps 1 and 2.
        """
        length = x.shape[1]
        gates = length if self.gate_length is None else max(0, min(length, self.gate_length - start))
        x = _recomputed(_normed, (self.norm, self.pre_conv), x, conv_state)
        v = self.to_value(x).transpose(1, 2)
        if gates == 0:
            return v, v[..., :0]
        g = self.to_gate(x[:, :gates]).transpose(1, 2)
        return v, g if self.gate_mix is None else _recomputed(_second_stage, (self.gate_mix,), g)

    def forward(self, x: Tensor, cache: FourierCache | None = None, lengths: Sequence[int] | None = None) -> Tensor:
        """Mix `[B, L, D]`; with a cache, continue it: its tokens come before x, and x is appended to it.

        With `lengths`, row i appends only its first lengths[i] tokens, and the outputs beyond mean nothing.
        """
        _require_input(x, self.d_model)
        if cache is None:
            return self.to_out(causal_conv_fft(*self.streams(x)).transpose(1, 2))
        start = 0 if self.gate_length is None else min(cache.lengths)
        r = cache.mix(*self.streams(x, cache.conv_state, start), lengths)
        cache.advance_conv_state(x, lengths)
        return self.to_out(r.transpose(1, 2))

    def new_cache(self, batch: int, capacity: int, convolution: str = "relaxed", dtype: torch.dtype | None = None,
                  device: torch.device | None = None) -> FourierCache:
        """Return an empty cache for `batch` sequences of up to `capacity` tokens.

        With a gate_length below the capacity it has the size of the former, and takes any number of tokens.

        Args:
            convolution: "relaxed", O(log^2 L) per token on average, or its slow twin "dot_product", O(L); L is the
                length of the text, or gate_length where that is smaller.
            dtype, device: of the inputs to come; None: those of the layer's weights.
        """
        if convolution not in _CONVOLUTIONS:
            raise ValueError(f"unknown convolution {convolution!r}; accepted: {', '.join(_CONVOLUTIONS)}")
        whole, cut = _CONVOLUTIONS[convolution]
        batch, capacity = index(batch), index(capacity)
        kind, size = (whole, capacity) if capacity <= (self.gate_length or capacity) else (cut, self.gate_length)
        place = _place(self, dtype, device)
        before = None if self.pre_conv is None else torch.zeros(batch, self.kernel_size - 1, self.d_model, **place)
        return FourierCache(kind(batch, self.d_model, size, **place), before)


class SlidingWindowAttention(nn.Module):
    """Multi-head attention over the last `window_size` tokens, without biases or positional encoding.

    Args:
        d_model: width D.
        n_heads: heads H; D % H must be 0.
        window_size: number of keys that a token sees, itself included.
        backend: as in `attention.sliding_window_attention`.

    Shape: `[B, L, D]` to `[B, L, D]`.  `to_qkv` stacks q, k and v in that order.

    Source: Caracal, Section 5.1 and Appendix E.
    """

    def __init__(self, d_model: int, n_heads: int, window_size: int, backend: str = "auto"):
        super().__init__()
        _require_heads(d_model, n_heads)
        if window_size < 1:
            raise ValueError(f"window_size={window_size}; a token sees at least itself, give window_size >= 1")
        self.d_model, self.n_heads = index(d_model), index(n_heads)
        self.window_size, self.backend = index(window_size), backend
        self.to_qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.to_out = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor, cache: WindowCache | None = None, lengths: Sequence[int] | None = None) -> Tensor:
        """Attend within `[B, L, D]`; with a cache, its keys and values come before those of x.

        With `lengths`, row i appends only its first lengths[i] tokens, and the outputs beyond mean nothing.
        """
        _require_input(x, self.d_model)
        q, k, v = (s.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for s in self.to_qkv(x).chunk(3, dim=-1))
        if cache is None:
            return self._out(sliding_window_attention(q, k, v, self.window_size, self.backend))
        one = is_one_token(x, lengths)
        return self._out(cache.step(q, k, v) if one else cache.prefill(q, k, v, lengths, self.backend))

    def _out(self, y: Tensor) -> Tensor:
        return self.to_out(y.transpose(1, 2).flatten(2))

    def new_cache(self, batch: int, capacity: int, convolution: str = "relaxed", dtype: torch.dtype | None = None,
                  device: torch.device | None = None) -> WindowCache:
        """Return an empty cache, no longer than the window.  Arguments as `MultiHeadFourier.new_cache`."""
        batch, capacity = index(batch), index(capacity)
        if min(batch, capacity) < 1:
            raise ValueError(f"batch={batch}, capacity={capacity}; give whole numbers >= 1")
        shape = (batch, self.n_heads, min(self.window_size, capacity), self.d_model // self.n_heads)
        k, v = (torch.zeros(shape, **_place(self, dtype, device)) for _ in range(2))
        return WindowCache(k, v, self.window_size)


class SwiGLU(nn.Module):
    """Gated feed-forward layer: to_out(to_value(x) * SiLU(to_gate(x))), no biases.

    Shape: `[..., d_model]` to `[..., d_model]` through `hidden` channels.
    Source: Shazeer, "GLU Variants Improve Transformer"; Caracal, Appendix E.
    """

    def __init__(self, d_model: int, hidden: int):
        super().__init__()
        self.to_value = nn.Linear(d_model, hidden, bias=False)
        self.to_gate = nn.Linear(d_model, hidden, bias=False)
        self.to_out = nn.Linear(hidden, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to `[..., d_model]`, token by token."""
        return self.to_out(self.to_value(x) * F.silu(self.to_gate(x)))


class Block(nn.Module):
    """Pre-norm residual block: x + mixer(norm(x)), then x + mlp(norm(x)).

    Args:
        mixer: `MultiHeadFourier` or `SlidingWindowAttention`.
        hidden: channels of the SwiGLU.

    Shape: `[B, L, D]` to `[B, L, D]`.  Source: Caracal, Figure 1 and Appendix E.
    """

    def __init__(self, mixer: MultiHeadFourier | SlidingWindowAttention, hidden: int):
        super().__init__()
        self.mixer_norm = nn.LayerNorm(mixer.d_model)
        self.mixer = mixer
        self.mlp_norm = nn.LayerNorm(mixer.d_model)
        self.mlp = SwiGLU(mixer.d_model, hidden)

    def forward(self, x: Tensor, cache: Cache | None = None, lengths: Sequence[int] | None = None) -> Tensor:
        """Apply the block to `[B, L, D]`; a cache, and the lengths of its rows, go to the mixer."""
        x = x + self.mixer(self.mixer_norm(x), cache, lengths)
        return x + self.mlp(self.mlp_norm(x))


def _normed(norm: Callable, pre_conv: Callable | None, x: Tensor, conv_state: Tensor | None) -> Tensor:
    if pre_conv is not None:
        before = MultiHeadFourier.kernel_size - 1
        x = F.pad(x, (0, 0, before, 0)) if conv_state is None else torch.cat([conv_state, x], dim=1)
        x = pre_conv(x.transpose(1, 2)).transpose(1, 2)
    return norm(x)


def _second_stage(gate_mix: Callable, g: Tensor) -> Tensor:
    return gate_mix(F.silu(g))


def _recomputed(f: Callable, layers: Sequence[nn.Module | None], *inputs: Tensor | None) -> Tensor:
    """Apply f, which is cheap; of its inside nothing is kept for the backward pass, which computes it again.

    Its layers have then the weights that they have now, as within `torch.func.functional_call`, and no hooks.
    """
    # The compiler chooses by itself, and the transforms of torch.func have no place for it.
    if (not torch.is_grad_enabled() or torch.compiler.is_compiling() or transformed() or _has_any_global_hook()
            or not all(layer is None or _is_as_built(layer) for layer in layers)):
        return f(*layers, *inputs)
    held = [None if layer is None else _as_it_is(layer) for layer in layers]
    weights = [weight for layer in held if layer is not None for weight in layer._parameters.values()]
    weights = [weight for weight in weights if weight is not None and not weight.is_inference()]
    versions = [weight._version for weight in weights]  # `checkpoint` looks at the inputs itself

    def again(*inputs: Tensor | None) -> Tensor:
        if versions != [weight._version for weight in weights]:
            raise RuntimeError("a weight of a Fourier layer was changed in place before the backward pass, which needs "
                               "it as it was; change it afterwards")
        return f(*(layer and layer.forward for layer in held), *inputs)

    return checkpoint(again, *inputs, use_reentrant=False, preserve_rng_state=False)


def _is_as_built(layer: nn.Module) -> bool:
    """Whether a layer is ours and has no hooks: an adapter in its place might draw other numbers the second time."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "forward")
    return type(layer) in (ShortConv, HeadMix, nn.LayerNorm) and not any(map(vars(layer).get, hooks))


def _as_it_is(layer: nn.Module) -> nn.Module:
    """Return a layer that keeps the weights which this one has now."""
    kept = copy(layer)
    kept._parameters = layer._parameters.copy()
    return kept


def _place(layer: nn.Module, dtype: torch.dtype | None, device: torch.device | None) -> dict[str, Any]:
    weight = next(layer.parameters(), torch.empty(0))  # a quantised layer may have none
    return {"dtype": dtype or weight.dtype, "device": device or weight.device}


def _require_heads(d_model: int, n_heads: int) -> None:
    if n_heads < 1 or d_model < 1 or d_model % n_heads:
        raise ValueError(f"d_model={d_model} does not split into n_heads={n_heads} equal heads; "
                         "give positive numbers with d_model % n_heads == 0")


def _require_input(x: Tensor, width: int) -> None:
    if x.ndim != 3 or x.shape[1] == 0 or x.shape[-1] != width:
        raise ValueError(f"the layer got shape {tuple(x.shape)}; it takes [batch, length, {width}], length >= 1")
    if not x.is_floating_point():
        raise ValueError(f"the layer got {x.dtype}; it takes floating-point numbers")
