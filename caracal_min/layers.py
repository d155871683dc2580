"""The layers of Caracal: Multi-Head Fourier, sliding-window attention, SwiGLU, and their block.

Symbols, with the names of the paper (Section 3.2)::

    B, L, D        batch, tokens, model width
    H, d           heads, channels per head, D = H d
    v              content stream: to_value(norm(pre_conv(x)))                  Steps 1 and 2
    g              gate stream: gate_mix(SiLU(to_gate(norm(pre_conv(x)))))      Steps 1 and 2
    r              causal convolution of v and g, channel by channel            Steps 3 and 4
    y              to_out(r)                                                    Step 4

A mixer takes `[B, L, D]` and returns `[B, L, D]`.  With a cache it continues the sequence stored
there: the outputs are those of the parallel pass at the new positions.

Memory layout.  Tokens enter as `[B, L, D]`, channels contiguous; the convolution wants time
contiguous.  A matrix product writes either layout at the same cost, so `to_value` and `to_gate`
change it: the streams have the shape `[B, D, L]` and lie in memory as `[D, B, L]`.
"""

from collections.abc import Sequence
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import sliding_window_attention
from .config import Gate, require_known
from .convolution import causal_conv_fft
from .decoding import (
    Cache,
    DotProductConvolution,
    FourierCache,
    PartitionedConvolution,
    RelaxedConvolution,
    RollingConvolution,
    WindowCache,
    is_one_token,
)

__all__ = ["Block", "MultiHeadFourier", "SlidingWindowAttention", "SwiGLU"]

# name: (class for a gate at every token, class for a cut gate)
_CONVOLUTIONS = {
    "relaxed": (RelaxedConvolution, PartitionedConvolution),
    "dot_product": (DotProductConvolution, RollingConvolution),
}


class MultiHeadFourier(nn.Module):
    """Mix tokens by convolving a content stream with a gate stream, both computed from the input.

    Args:
        d_model: width D.
        n_heads: heads H; the gate's second stage mixes channels inside a head.  D % H must be 0.
        pre_conv: False drops the 3-tap convolution of Step 1 (the paper's ablation "w/o PC").
        gate: "two_stage" (the paper's), or "single_stage" (its ablation SSLP: one linear map).
        gate_length: None (the paper's), or the number K of leading tokens that have a gate: g_i = 0
            for i >= K.  Then r_t is a sum over the last K tokens, and decoding needs the last K of
            v and the first K of g: the "fixed-size rolling buffer" of Section 3.3, Appendix F.

    Shape: `[B, L, D]` to `[B, L, D]`, any floating dtype; the convolution runs in at least float32.

    Raises:
        ValueError: d_model not divisible by n_heads, unknown gate, gate_length below 1, or input
            that is not `[B, L, D]`.

    Example:
        >>> layer = MultiHeadFourier(d_model=64, n_heads=4)
        >>> layer(torch.randn(2, 100, 64)).shape
        torch.Size([2, 100, 64])

    Source: Caracal, Section 3.2 and Algorithm 1.
    """

    kernel_size = 3

    def __init__(
            self, d_model: int, n_heads: int, pre_conv: bool = True, gate: Gate = "two_stage",
            gate_length: int | None = None
    ):
        super().__init__()
        _check_heads(d_model, n_heads)
        require_known("gate", gate, get_args(Gate))
        if gate_length is not None and gate_length < 1:
            raise ValueError(f"gate_length={gate_length}; give a whole number >= 1")
        self.d_model = d_model
        self.n_heads = n_heads
        self.gate_length = gate_length
        # An ablation has None in place of a module.
        self.pre_conv = self.gate_mix = None
        if pre_conv:
            self.pre_conv = ShortConv(
                d_model, d_model, self.kernel_size, groups=d_model, bias=False
            )
        self.norm = nn.LayerNorm(d_model)
        self.to_value = TimeLastLinear(d_model, d_model)
        self.to_gate = TimeLastLinear(d_model, d_model)
        if gate == "two_stage":
            self.gate_mix = HeadMix(d_model, d_model, 1, groups=n_heads)
        self.to_out = nn.Linear(d_model, d_model)

    def streams(
        self, x: Tensor, conv_state: Tensor | None = None, start: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Compute the content and gate streams: `[B, L, D]` to `[B, D, L]` each.

        Args:
            x: inputs, `[B, L, D]`.
            conv_state: the kernel_size - 1 inputs before x, `[B, 2, D]`; None: zeros.
            start: tokens read before x; where rows differ, the fewest.  With a cut gate only g of
                the first gate_length - start tokens is computed; rows that have read more get gates
                beyond K, which the cache drops.

        Source: Caracal, Section 3.2, Steps 1 and 2.
        """
        if self.pre_conv is not None:
            # Padded on the left alone, with zeros or the inputs before x: causal.
            if conv_state is None:
                x = F.pad(x, (0, 0, self.kernel_size - 1, 0))
            else:
                x = torch.cat([conv_state, x], dim=1)
            x = self.pre_conv(x.mT).mT
        x = self.norm(x)
        v = self.to_value(x).mT

        # Gates beyond gate_length count as zero and are not computed.
        if self.gate_length is not None:
            x = x[:, :max(0, self.gate_length - start)]
            if x.shape[1] == 0:
                return v, v[..., :0]
        g = self.to_gate(x).mT
        if self.gate_mix is not None:
            # Inductor writes SiLU contiguous as it sees it: [D, B, L], which gate_mix can view.
            g = F.silu(g.movedim(1, 0)).movedim(0, 1)
            g = self.gate_mix(g)
        return v, g

    def forward(
            self, x: Tensor, cache: FourierCache | None = None, lengths: Sequence[int] | None = None
    ) -> Tensor:
        """Mix `[B, L, D]`; a cache holds the tokens before x, and x is appended to it.

        With `lengths`, row i appends only its first lengths[i] tokens; outputs beyond mean nothing.
        """
        _check_input(x, self.d_model)
        if cache is None:
            r = causal_conv_fft(*self.streams(x))
        else:
            streams = self.streams(x, cache.conv_state, min(cache.held))
            r = cache.convolve(*streams, lengths)
            cache.advance_conv_state(x, lengths)
        return self.to_out(r.mT)

    def new_cache(
            self, batch: int, capacity: int, convolution: str = "relaxed",
            dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> FourierCache:
        """Return an empty cache for `batch` sequences of up to `capacity` tokens.

        With a gate_length below the capacity, it stores gate_length tokens and takes any number.

        Args:
            convolution: "relaxed", O(log^2 L) per token on average, or "dot_product", its reference
                implementation, O(L); L is the capacity, or gate_length where that is smaller.
            dtype, device: of the inputs to come; None: those of the layer's weights.
        """
        require_known("convolution", convolution, _CONVOLUTIONS)
        uncut_class, cut_class = _CONVOLUTIONS[convolution]
        options = _tensor_options(self, dtype, device)
        if self.gate_length is not None and self.gate_length < capacity:
            online = cut_class(batch, self.d_model, self.gate_length, **options)
        else:
            online = uncut_class(batch, self.d_model, capacity, **options)
        conv_state = None
        if self.pre_conv is not None:
            conv_state = torch.zeros(batch, self.kernel_size - 1, self.d_model, **options)
        return FourierCache(online, conv_state)


class SlidingWindowAttention(nn.Module):
    """Multi-head attention over the last `window_size` tokens, without biases or positions.

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
        _check_heads(d_model, n_heads)
        self.d_model = d_model
        self.n_heads = n_heads
        self.window_size = window_size
        self.backend = backend
        self.to_qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.to_out = nn.Linear(d_model, d_model, bias=False)

    def forward(
            self, x: Tensor, cache: WindowCache | None = None, lengths: Sequence[int] | None = None
    ) -> Tensor:
        """Attend within `[B, L, D]`; a cache holds the keys and values before those of x.

        With `lengths`, row i appends only its first lengths[i] tokens; outputs beyond mean nothing.
        """
        _check_input(x, self.d_model)
        qkv = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in qkv)
        if cache is None:
            y = sliding_window_attention(q, k, v, self.window_size, self.backend)
        elif is_one_token(x.shape[1], lengths):
            y = cache.step(q, k, v)
        else:
            y = cache.prefill(q, k, v, lengths, self.backend)
        return self.to_out(y.transpose(1, 2).flatten(2))

    def new_cache(
        self, batch: int, capacity: int, convolution="relaxed", dtype=None, device=None
    ) -> WindowCache:
        """Return an empty cache, no longer than the window.

        Arguments as `MultiHeadFourier.new_cache`; `convolution` is ignored.
        """
        slots = min(self.window_size, capacity)
        shape = (batch, self.n_heads, slots, self.d_model // self.n_heads)
        k = torch.zeros(shape, **_tensor_options(self, dtype, device))
        return WindowCache(k, k.clone(), self.window_size)


class SwiGLU(nn.Module):
    """Gated feed-forward layer: to_out(to_value(x) * SiLU(to_gate(x))), no biases.

    Args:
        d_model: width D.
        hidden: channels inside, of to_value and to_gate.

    Shape: `[..., D]` to `[..., D]`.
    Source: Shazeer, "GLU Variants Improve Transformer"; Caracal, Appendix E.
    """

    def __init__(self, d_model: int, hidden: int):
        super().__init__()
        self.to_value = nn.Linear(d_model, hidden, bias=False)
        self.to_gate = nn.Linear(d_model, hidden, bias=False)
        self.to_out = nn.Linear(hidden, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to `[..., D]`, token by token."""
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

    def forward(
            self, x: Tensor, cache: Cache | None = None, lengths: Sequence[int] | None = None
    ) -> Tensor:
        """Apply the block to `[B, L, D]`; a cache, and the lengths of its rows, go to the mixer."""
        x = x + self.mixer(self.mixer_norm(x), cache, lengths)
        return x + self.mlp(self.mlp_norm(x))


# Three subclasses, for speed alone: parameters, shapes and values are those of the base class, so
# adapters and hooks may treat them as such.  PEFT builds adapters of the same class without a bias
# or with another kernel size; the first `if` of each forward sends them to the base class.


class ShortConv(nn.Conv1d):
    """An `nn.Conv1d` that is fast if depthwise and without bias, where channels are contiguous.

    Shape: `[B, D, L + kernel_size - 1]` to `[B, D, L]`; after padding on the left it is causal.

    Source: Caracal, Section 3.2, Step 1.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Convolve `[B, D, L + kernel_size - 1]`."""
        if self.groups != self.out_channels or self.bias is not None:
            return super().forward(x)
        # The library's convolution rounds to TF32 on a GPU, cannot be fused by a compiler, and for
        # one token its overhead is longer than its work.
        one_token = x.shape[-1] == self.kernel_size[0]
        if one_token or x.is_cuda or torch.compiler.is_compiling():
            weight = self.weight
            device = x.device.type
            # Autocast does the same before a convolution: fewer bytes are written and kept.
            if torch.is_autocast_enabled(device):
                dtype = torch.get_autocast_dtype(device)
                x = x.to(dtype)
                weight = weight.to(dtype)
            return shifted_products(x.mT, weight).mT
        # As an image of height 1 in channels-last layout, x is read without a copy.
        y = F.conv2d(x.unsqueeze(-2), self.weight.unsqueeze(2), groups=self.groups)
        return y.squeeze(-2)


def shifted_products(x: Tensor, weight: Tensor) -> Tensor:
    """Convolve as `ShortConv` does, by one product per lag, which compilers fuse with others.

    Args:
        x: `[..., L + kernel_size - 1, D]`.
        weight: `[D, 1, kernel_size]`.

    Returns:
        `[..., L, D]`.
    """
    by_lag = weight.squeeze(1).unbind(-1)
    length = x.shape[-2] - len(by_lag) + 1
    r = x[..., :length, :] * by_lag[0]
    for k in range(1, len(by_lag)):
        r = torch.addcmul(r, x[..., k:k + length, :], by_lag[k])
    return r


class TimeLastLinear(nn.Linear):
    """An `nn.Linear` whose result lies in memory as `[out_features, ...]`, so time is contiguous.

    Shape: `[..., in_features]` to `[..., out_features]`.

    Source: Caracal, Section 3.2, Step 2.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to `[..., in_features]`."""
        # With one token both layouts are the same, and the library's product is faster.
        if self.bias is None or x.ndim < 2 or x.shape[-2] == 1:
            return super().forward(x)
        columns = x.reshape(-1, self.in_features).t()
        # W x^T instead of x W^T: the same numbers, written with time last.
        y = torch.addmm(self.bias.unsqueeze(1), self.weight, columns)
        return y.t().view(*x.shape[:-1], self.out_features)


class HeadMix(nn.Conv1d):
    """An `nn.Conv1d` of kernel size 1 with a bias, fast where `[D, B, L]` is contiguous in memory.

    With one group per head it mixes the channels of a head, token by token.

    Shape: `[B, D, L]` to `[B, D, L]`.

    Source: Caracal, Section 3.2, Step 2, the second stage of the gate.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Mix `[B, D, L]`."""
        if self.bias is None or self.kernel_size != (1,):
            return super().forward(x)
        # One matrix product per head, over all tokens at once, reads x without a copy.
        heads = self.groups
        columns = x.movedim(-2, 0)  # (D, B, L)
        weight = self.weight.view(heads, -1, self.in_channels // heads)
        bias = self.bias.view(heads, -1, 1)
        y = torch.baddbmm(bias, weight, columns.reshape(heads, weight.shape[2], -1))
        return y.view(self.out_channels, *columns.shape[1:]).movedim(0, -2)


def _tensor_options(layer, dtype, device):
    """Return dtype and device of a cache, by default those of the weights."""
    weight = next(layer.parameters())
    return {"dtype": dtype or weight.dtype, "device": device or weight.device}


def _check_heads(d_model, n_heads):
    if d_model % n_heads:
        raise ValueError(f"d_model={d_model} is not divisible by n_heads={n_heads}")


def _check_input(x, width):
    if x.ndim != 3 or x.shape[-1] != width:
        raise ValueError(f"the layer got shape {tuple(x.shape)}; it takes [batch, length, {width}]")
