"""Rivals of the Fourier layer: mixers that take its place in a block, `[B, L, D]` to `[B, L, D]`.

Each is written from its formula, short and for the CPU: those of quadratic cost build their L x L scores, none loops
over time.  Compare what they learn, not how fast they are.  With x the input, t a token, j <= t the tokens up to it::

    StaticConvolution   y_t = sum_j h_{t-j} v_j                       h learned, the same for every text
    GatedConvolution    y_t = q_t sum_j h_{t-j} (k_j v_j)             Hyena of order 2
    LinearAttention     y_t = sum_j (a_t ... a_{j+1}) (q_t . k_j) v_j as in GLA and Mamba-2
    DeltaRule           S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T,  y_t = S_t^T q_t       Gated DeltaNet
    Attention           y_t = sum_j softmax_j(q_t . k_j) v_j          see `full_attention`

`MIXERS` names them beside the layers of `modules` and their ablations, and `make_mixer` builds one by name.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caracal_min.convolution import causal_conv_fft
from caracal_min.layers import MultiHeadFourier, ShortConv, SlidingWindowAttention

from .full_attention import Attention
from .grid import require_known
from .linear_recurrences import gated_delta_rule, linear_attention
from .mixer import Mixer, short_conv

__all__ = ["MIXERS", "DeltaRule", "GatedConvolution", "LinearAttention", "StaticConvolution", "make_mixer"]


class StaticConvolution(Mixer):
    """A Fourier layer whose gate is a parameter: y = to_out(h * v), one learned kernel per channel, explicit.

    Nothing else differs from `MultiHeadFourier`: v passes the same pre-convolution and norm.  So this rival shows what
    the gate gains by being computed from the text.

    Args:
        length: coefficients of the kernel; beyond them it is zero.
        pre_conv: False drops the short convolution before it.

    Source: explicit long convolutions, Fu et al. 2023 ("Simple Hardware-Efficient Long Convolutions").
    """

    def __init__(self, d_model: int, n_heads: int, length: int, pre_conv: bool = True):
        super().__init__(d_model, n_heads)
        self.pre_conv = ShortConv(d_model, d_model, 3, groups=d_model, bias=False) if pre_conv else None
        self.norm = nn.LayerNorm(d_model)
        self.to_value = nn.Linear(d_model, d_model)
        self.kernel = nn.Parameter(decaying_kernel(d_model, length))
        self.to_out = nn.Linear(d_model, d_model)

    def mix(self, x: Tensor) -> Tensor:
        """Mix `[B, L, D]`."""
        v = self.to_value(self.norm(x if self.pre_conv is None else short_conv(self.pre_conv, x)))
        return self.to_out(static_conv(v, self.kernel))


class GatedConvolution(Mixer):
    """Hyena of order 2: y = to_out(q * (h conv (k * v))), products channel by channel, h one kernel per channel.

    q, k and v pass a short convolution of width 3, and one long convolution stands between two products: so the
    published code has it.  The kernel is a parameter, where Hyena computes it from the lag by a small network.

    Args:
        length: coefficients of the kernel; beyond them it is zero.

    Source: Poli et al. 2023, "Hyena Hierarchy"; the same formula with a state-space kernel is H3 (Fu et al. 2022).
    """

    def __init__(self, d_model: int, n_heads: int, length: int):
        super().__init__(d_model, n_heads)
        self.to_qkv = nn.Linear(d_model, 3 * d_model)
        self.short = ShortConv(3 * d_model, 3 * d_model, 3, groups=3 * d_model, bias=False)
        self.kernel = nn.Parameter(decaying_kernel(d_model, length))
        self.to_out = nn.Linear(d_model, d_model)

    def mix(self, x: Tensor) -> Tensor:
        """Mix `[B, L, D]`."""
        q, k, v = short_conv(self.short, self.to_qkv(x)).chunk(3, dim=-1)
        return self.to_out(q * static_conv(k * v, self.kernel))


class LinearAttention(Mixer):
    """Masked linear attention with decay, per head: S_t = a_t S_{t-1} + k_t v_t^T, o_t = S_t^T q_t / sqrt(d).

    y = to_out(RMSNorm(o) * SiLU(to_swish(x))), the norm within each head; a_t = sigmoid(w . x_t)^(1/16), a number for
    each head and token, as in Mamba-2 (GLA has one for each channel).

    Source: Yang et al. 2023 (GLA).
    """

    def __init__(self, d_model: int, n_heads: int):
        super().__init__(d_model, n_heads)
        self.to_qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.to_decay = nn.Linear(d_model, n_heads)
        self.norm = nn.RMSNorm(d_model // n_heads)
        self.to_swish = nn.Linear(d_model, d_model, bias=False)
        self.to_out = nn.Linear(d_model, d_model, bias=False)

    def mix(self, x: Tensor) -> Tensor:
        """Mix `[B, L, D]`."""
        q, k, v = map(self.heads, self.to_qkv(x).chunk(3, dim=-1))
        log_decay = F.logsigmoid(self.to_decay(x)).transpose(1, 2) / 16
        o = self.norm(linear_attention(q, k, v, log_decay)).transpose(1, 2).flatten(2)
        return self.to_out(o * F.silu(self.to_swish(x)))


class DeltaRule(Mixer):
    """Gated DeltaNet: before it writes, the state forgets what it holds under the key.  See `gated_delta_rule`.

    q, k, v pass a short convolution of width 4 and SiLU, q and k are scaled to length 1; b_t = sigmoid(w . x_t), and
    a_t = exp(-exp(A) softplus(w' . x_t + c)) for each head and token; y = to_out(RMSNorm(o) * SiLU(to_swish(x))).

    Source: Yang et al. 2024, "Gated Delta Networks"; without a_t: DeltaNet.
    """

    def __init__(self, d_model: int, n_heads: int):
        super().__init__(d_model, n_heads)
        self.to_qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.short = ShortConv(3 * d_model, 3 * d_model, 4, groups=3 * d_model, bias=False)
        self.to_rate = nn.Linear(d_model, 2 * n_heads, bias=False)
        self.decay = nn.Parameter(torch.linspace(0.01, 16, n_heads).log())  # A; published: the log of uniform(0, 16)
        self.decay_bias = nn.Parameter(torch.full((n_heads,), -4.0))  # c; published: softplus(c) from 0.001 to 0.1
        self.norm = nn.RMSNorm(d_model // n_heads)
        self.to_swish = nn.Linear(d_model, d_model, bias=False)
        self.to_out = nn.Linear(d_model, d_model, bias=False)

    def mix(self, x: Tensor) -> Tensor:
        """Mix `[B, L, D]`."""
        q, k, v = map(self.heads, F.silu(short_conv(self.short, self.to_qkv(x))).chunk(3, dim=-1))
        beta, forget = self.to_rate(x).transpose(1, 2).chunk(2, dim=1)  # (B, H, L)
        log_decay = -self.decay.exp()[:, None] * F.softplus(forget + self.decay_bias[:, None])
        o = gated_delta_rule(F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, beta.sigmoid(), log_decay)
        return self.to_out(self.norm(o).transpose(1, 2).flatten(2) * F.silu(self.to_swish(x)))


MIXERS = {
    "fourier": lambda d, h, length, window: MultiHeadFourier(d, h),
    "fourier-no-pc": lambda d, h, length, window: MultiHeadFourier(d, h, pre_conv=False),
    "fourier-single-stage": lambda d, h, length, window: MultiHeadFourier(d, h, gate="single_stage"),
    "window": lambda d, h, length, window: SlidingWindowAttention(d, h, window),
    "attention": lambda d, h, length, window: Attention(d, h),
    "attention-no-positions": lambda d, h, length, window: Attention(d, h, rotary=False),
    "attention-taps": lambda d, h, length, window: Attention(d, h, pre_conv=True),
    "attention-taps-no-positions": lambda d, h, length, window: Attention(d, h, rotary=False, pre_conv=True),
    "static": lambda d, h, length, window: StaticConvolution(d, h, length),
    "gated-static": lambda d, h, length, window: GatedConvolution(d, h, length),
    "linear-attention": lambda d, h, length, window: LinearAttention(d, h),
    "delta-rule": lambda d, h, length, window: DeltaRule(d, h),
}
"""Mixers by name, as functions of width, heads, longest text (for explicit kernels) and window."""


def make_mixer(name: str, d_model: int, n_heads: int, length: int, window: int = 64) -> nn.Module:
    """Build a mixer that `modules.Block` takes.

    Args:
        name: a key of `MIXERS`.
        d_model, n_heads: width and heads.
        length: longest text, to which kernels that are parameters reach.
        window: keys that a token sees in a window layer.

    Raises:
        ValueError: unknown name, or sizes that do not fit.
    """
    require_known("mixer", (name,), MIXERS)
    if length < 1:
        raise ValueError(f"length={length}; give the tokens of the longest text, >= 1")
    return MIXERS[name](d_model, n_heads, length, window)


def decaying_kernel(channels: int, length: int) -> Tensor:
    """Draw kernels `[channels, length]` that reach from one lag to all: normal, times exp(-i / c), energy about 1.

    The reach c grows geometrically with the channel, as in Fu et al. 2023.
    """
    reach = length ** torch.linspace(0, 1, channels)[:, None]
    envelope = torch.exp(-torch.arange(length) / reach)
    return torch.randn(channels, length) * envelope / envelope.norm(dim=1, keepdim=True)


def static_conv(v: Tensor, kernel: Tensor) -> Tensor:
    """Convolve `[B, L, D]` causally with kernels `[D, n]`, zero from lag n on."""
    length = v.shape[1]
    kernel = F.pad(kernel[:, :length], (0, max(0, length - kernel.shape[1])))
    return causal_conv_fft(v.transpose(1, 2), kernel.to(v.dtype)).transpose(1, 2)
