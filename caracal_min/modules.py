"""The layers of Caracal: Multi-Head Fourier, sliding-window attention, SwiGLU, and the block around them.

Symbols, with the names of the paper (Section 3.2):

    B, L, D        batch, tokens, model width
    H, d           heads, channels per head, D = H d
    x~             pre_conv(x): depthwise causal convolution of 3 taps          Step 1
    v              to_value(norm(x~)): the content stream, x_v                  Step 2
    g              gate_mix(SiLU(to_gate(norm(x~)))): the gate stream, x_g      Step 2
    r              causal convolution of v and g, channel by channel            Steps 3 and 4
    y              to_out(r)                                                    Step 4

A mixer takes `[B, L, D]` and returns `[B, L, D]`.  Given a cache, it continues the sequence held there:
the outputs are those of the parallel pass at the new positions.

Read next: `model`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import sliding_window_attention
from .convolution import causal_conv_fft

__all__ = ["Block", "FourierCache", "MultiHeadFourier", "SlidingWindowAttention", "SwiGLU", "WindowCache"]


@dataclass
class FourierCache:
    """What a Multi-Head Fourier layer keeps between tokens: all of v and g, and the last inputs of pre_conv.

    Tensors are `[B, D, capacity]` for `v` and `g` and `[B, kernel - 1, D]` for `tail`; `length` tokens are
    filled.  That is 2 D numbers per token, the same as the keys and values of full attention.
    """

    v: Tensor
    g: Tensor
    tail: Tensor
    length: int = 0


@dataclass
class WindowCache:
    """The last `window - 1` keys and values of an attention layer, `[B, H, <= window - 1, d]` each."""

    k: Tensor
    v: Tensor


class MultiHeadFourier(nn.Module):
    """Mix tokens by convolving a content stream with a gate stream, both computed from the input.

    Args:
        d_model: width D.
        n_heads: heads H; the gate's second stage mixes channels inside a head. D % H must be 0.
        pre_conv: False drops the 3-tap convolution of Step 1 (the paper's ablation "w/o PC").
        gate: "two_stage" (the paper's), or "single_stage" (its ablation SSLP: one linear map).

    Shape: `[B, L, D]` to `[B, L, D]`, any floating dtype; the convolution runs in at least float32.

    Raises:
        ValueError: d_model not divisible by n_heads; unknown gate; an input that is not [B, L, d_model].

    Source: Caracal, Section 3.2 and Algorithm 1.
    """

    kernel_size = 3

    def __init__(self, d_model: int, n_heads: int, pre_conv: bool = True, gate: str = "two_stage"):
        super().__init__()
        _require_heads(d_model, n_heads)
        if gate not in ("two_stage", "single_stage"):
            raise ValueError(f"unknown gate {gate!r}; accepted: two_stage, single_stage")
        self.d_model, self.n_heads = d_model, n_heads
        self.pre_conv = nn.Conv1d(d_model, d_model, self.kernel_size, groups=d_model, bias=False) if pre_conv else None
        self.norm = nn.LayerNorm(d_model)
        self.to_value = nn.Linear(d_model, d_model)
        self.to_gate = nn.Linear(d_model, d_model)
        self.gate_mix = nn.Conv1d(d_model, d_model, 1, groups=n_heads) if gate == "two_stage" else None
        self.to_out = nn.Linear(d_model, d_model)

    def streams(self, x: Tensor, tail: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Compute the content and gate streams: `[B, L, D]` to a pair of `[B, D, L]` (time last).

        `tail` holds the kernel_size - 1 inputs before x, `[B, 2, D]`; without it they are zeros.
        Source: Caracal, Section 3.2, Steps 1 and 2.
        """
        if self.pre_conv is not None:
            x = F.pad(x, (0, 0, self.kernel_size - 1, 0)) if tail is None else torch.cat([tail, x], dim=1)
            x = self.pre_conv(x.transpose(1, 2)).transpose(1, 2)
        x = self.norm(x)
        v = self.to_value(x).transpose(1, 2)
        g = self.to_gate(x).transpose(1, 2)
        if self.gate_mix is not None:
            g = self.gate_mix(F.silu(g))
        return v, g

    def forward(self, x: Tensor, cache: FourierCache | None = None) -> Tensor:
        """Mix `[B, L, D]`; with a cache, continue it: its tokens come before x, and x is appended to it."""
        _require_input(x, self.d_model)
        if cache is None:
            v, g = self.streams(x)
            return self.to_out(causal_conv_fft(v, g).transpose(1, 2))

        start, end = cache.length, cache.length + x.shape[1]
        if end > cache.v.shape[-1]:
            raise ValueError(f"{end} tokens do not fit a cache for {cache.v.shape[-1]}; make the cache longer")
        v, g = self.streams(x, cache.tail)
        cache.v[..., start:end], cache.g[..., start:end] = v, g
        cache.tail = torch.cat([cache.tail, x], dim=1)[:, -cache.tail.shape[1]:]
        cache.length = end
        v, g = cache.v[..., :end], cache.g[..., :end]
        if end - start == 1:  # one output: one dot product, r_t = sum_j v_j g_{t-j}
            acc = torch.promote_types(v.dtype, torch.float32)
            r = (v.to(acc) * g.to(acc).flip(-1)).sum(-1, keepdim=True).to(v.dtype)
        else:
            r = causal_conv_fft(v, g)[..., start:]
        return self.to_out(r.transpose(1, 2))

    def new_cache(self, batch: int, capacity: int) -> FourierCache:
        """Return an empty cache for `batch` sequences of up to `capacity` tokens."""
        make = self.to_value.weight.new_zeros
        shape = (batch, self.d_model, capacity)
        return FourierCache(make(shape), make(shape), make(batch, self.kernel_size - 1, self.d_model))


class SlidingWindowAttention(nn.Module):
    """Multi-head attention over the last `window_size` tokens, without biases or positional encoding.

    Args:
        d_model: width D.  n_heads: heads H, D % H must be 0.
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
        self.d_model, self.n_heads = d_model, n_heads
        self.window_size, self.backend = window_size, backend
        self.to_qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.to_out = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor, cache: WindowCache | None = None) -> Tensor:
        """Attend within `[B, L, D]`; with a cache, its keys and values come before those of x."""
        _require_input(x, self.d_model)
        q, k, v = (s.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for s in self.to_qkv(x).chunk(3, dim=-1))
        if cache is None:
            y = sliding_window_attention(q, k, v, self.window_size, self.backend)
        else:
            old = cache.k.shape[2]
            k, v = torch.cat([cache.k, k], dim=2), torch.cat([cache.v, v], dim=2)
            if x.shape[1] == 1:  # at most window_size keys are held, and the query sees them all
                y = F.scaled_dot_product_attention(q, k, v)
            else:  # queries for the old positions are not needed; zeros keep the lengths equal
                y = sliding_window_attention(F.pad(q, (0, 0, old, 0)), k, v, self.window_size, self.backend)[:, :, old:]
            keep = max(0, k.shape[2] - (self.window_size - 1))
            cache.k, cache.v = k[:, :, keep:], v[:, :, keep:]
        return self.to_out(y.transpose(1, 2).flatten(2))

    def new_cache(self, batch: int, capacity: int) -> WindowCache:
        """Return an empty cache for `batch` sequences; `capacity` is not needed, the window bounds it."""
        empty = self.to_qkv.weight.new_zeros(batch, self.n_heads, 0, self.d_model // self.n_heads)
        return WindowCache(empty, empty)


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

    def forward(self, x: Tensor, cache: FourierCache | WindowCache | None = None) -> Tensor:
        """Apply the block to `[B, L, D]`; a cache goes to the mixer."""
        x = x + self.mixer(self.mixer_norm(x), cache)
        return x + self.mlp(self.mlp_norm(x))


def _require_heads(d_model: int, n_heads: int) -> None:
    if n_heads < 1 or d_model < 1 or d_model % n_heads:
        raise ValueError(f"d_model={d_model} does not split into n_heads={n_heads} equal heads; "
                         "give positive numbers with d_model % n_heads == 0")


def _require_input(x: Tensor, d_model: int) -> None:
    if x.ndim != 3 or x.shape[-1] != d_model:
        raise ValueError(f"the layer got shape {tuple(x.shape)}; it takes [batch, length, {d_model}]")
