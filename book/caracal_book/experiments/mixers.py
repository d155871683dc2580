"""Rivals of the Fourier layer: mixers that take its place in a block, `[B, L, D]` to `[B, L, D]`.

Each is written from its formula, short and for the CPU: those of quadratic cost build their L x L scores, none loops
over time.  Compare what they learn, not how fast they are.  With x the input, t a token, j <= t the tokens up to it::

    StaticConvolution   y_t = sum_j h_{t-j} v_j                       h learned, the same for every text
    GatedConvolution    y_t = q_t sum_j h_{t-j} (k_j v_j)             Hyena of order 2
    LinearAttention     y_t = sum_j (a_t ... a_{j+1}) (q_t . k_j) v_j as in GLA and Mamba-2
    DeltaRule           S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T,  y_t = S_t^T q_t       Gated DeltaNet
    Attention           y_t = sum_j softmax_j(q_t . k_j) v_j

`MIXERS` names them beside the layers of `caracal_min` and their ablations, and `make_mixer` builds one by name.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caracal_min.config import require_known
from caracal_min.convolution import causal_conv_fft
from caracal_min.layers import MultiHeadFourier, ShortConv, SlidingWindowAttention

__all__ = ["MIXERS", "Attention", "DeltaRule", "GatedConvolution", "LinearAttention", "Mixer", "StaticConvolution",
           "decaying_kernel", "gated_delta_rule", "linear_attention", "make_mixer", "require_whole_text", "rotated",
           "short_conv", "static_conv"]


class Mixer(nn.Module):
    """Base class of the mixers: `mix` is applied to the whole text at once, and there is no decoding.

    Args:
        d_model: width D.
        n_heads: heads H; D % H must be 0.

    Shape: `[B, L, D]` to `[B, L, D]`, floating dtype.

    Raises:
        ValueError: a cache.
    """

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.d_model, self.n_heads = d_model, n_heads

    def mix(self, x: Tensor) -> Tensor:
        """Mix `[B, L, D]`."""
        raise NotImplementedError

    def forward(self, x: Tensor, cache: None = None, lengths: None = None) -> Tensor:
        """Mix `[B, L, D]`; a block passes a cache along, and there is none for this mixer."""
        require_whole_text(self, cache, lengths)
        return self.mix(x)

    def heads(self, x: Tensor) -> Tensor:
        """Split channels into heads: `[B, L, D]` to `[B, H, L, d]`."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


def require_whole_text(layer: nn.Module, cache: object, lengths: object) -> None:
    """Raise ValueError if a layer that does not decode is given a cache, or lengths of what to append to one."""
    if cache is not None or lengths is not None:
        raise ValueError(f"{type(layer).__name__} keeps nothing between tokens; give the whole text at once")


def short_conv(conv: nn.Conv1d, x: Tensor) -> Tensor:
    """Apply a short causal convolution to `[B, L, D]`, with zeros before the first token."""
    return conv(F.pad(x, (0, 0, conv.kernel_size[0] - 1, 0)).transpose(1, 2)).transpose(1, 2)


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


class Attention(Mixer):
    """Full causal attention, without biases: softmax(q . k / sqrt(d)) over all tokens up to the own.

    Args:
        rotary: rotate q and k by angles in proportion to the position, base 10,000 (as in Llama); False: no positions.
        pre_conv: True puts the short convolution of the Fourier layer before it, so that q, k and v reach two tokens
            back.

    Source: Vaswani et al. 2017; rotary positions: Su et al. 2021.
    """

    def __init__(self, d_model: int, n_heads: int, rotary: bool = True, pre_conv: bool = False):
        super().__init__(d_model, n_heads)
        self.rotary = rotary
        self.pre_conv = ShortConv(d_model, d_model, 3, groups=d_model, bias=False) if pre_conv else None
        self.to_qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.to_out = nn.Linear(d_model, d_model, bias=False)

    def mix(self, x: Tensor) -> Tensor:
        """Mix `[B, L, D]`."""
        x = x if self.pre_conv is None else short_conv(self.pre_conv, x)
        q, k, v = map(self.heads, self.to_qkv(x).chunk(3, dim=-1))
        if self.rotary:
            q, k = rotated(q), rotated(k)
        return self.to_out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


def rotated(x: Tensor) -> Tensor:
    """Rotate pairs of channels of `[..., L, d]` by position / 10,000^(2i / d)."""
    half = x.shape[-1] // 2
    rate = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)[:, None] * rate
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


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
    """Build a mixer that a `Block` takes.

    Args:
        name: a key of `MIXERS`.
        d_model, n_heads: width and heads.
        length: longest text, to which kernels that are parameters reach.
        window: keys that a token sees in a window layer.

    Raises:
        ValueError: unknown name.
    """
    require_known("mixer", name, MIXERS)
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


def linear_attention(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """Return o_t = S_t^T q_t / sqrt(d) with S_t = a_t S_{t-1} + k_t v_t^T, as masked scores, in O(L^2).

    Args:
        q, k, v: `[B, H, L, d]`.
        log_decay: log a_t <= 0, `[B, H, L]`.

    Returns:
        `[B, H, L, d]`.

    Source: the parallel form of Sun et al. 2023, Section 2.1.
    """
    return (q @ k.mT * q.shape[-1] ** -0.5 * pairwise_decay(log_decay)) @ v


def gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor) -> Tensor:
    """Return o_t = S_t^T q_t / sqrt(d) with S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T, in O(L^2).

    What step t writes is b_t (v_t - what the decayed state holds under k_t): all writes solve one triangular system,
    which is the UT transform of the published chunked form with the whole text as one chunk.

    Args:
        q, k, v: `[B, H, L, d]`; k of length 1.
        beta: b_t, from 0 (writes nothing) to 1 (overwrites), `[B, H, L]`.
        log_decay: log a_t <= 0, `[B, H, L]`.

    Returns:
        `[B, H, L, d]`.

    Source: Yang et al. 2024, "Gated Delta Networks", Section 3.
    """
    decay, beta = pairwise_decay(log_decay), beta.unsqueeze(-1)
    written = torch.linalg.solve_triangular(beta * (k @ k.mT) * decay, beta * v, upper=False, unitriangular=True)
    return (q @ k.mT * q.shape[-1] ** -0.5 * decay) @ written


def pairwise_decay(log_decay: Tensor) -> Tensor:
    """Return a_t ... a_{j+1}, what is left at t of a write at j <= t, and 0 for j > t: `[..., L]` to `[..., L, L]`."""
    total = log_decay.cumsum(-1)
    causal = torch.ones(total.shape[-1:] * 2, dtype=torch.bool, device=total.device).tril()
    return (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(~causal, -torch.inf).exp()
