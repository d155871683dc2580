"""The whole of Caracal in one file, to read and to copy, with PyTorch alone.  Symbols::

    B, L, D    batch, tokens, channels; these are H heads of d channels, D = H d
    v, g, r    content, gate, their causal convolution: r_t = sum of v_j g_(t-j), j <= t
    N          points at which the polynomials with coefficients v and g are evaluated
    n, w, W    blocks; tokens that attention sees; channels inside a SwiGLU

Beside the lines stand shapes and, in brackets, the equations of the paper: Gan et al.,
"Caracal: Causal Architecture via Spectral Mixing", ICML 2026.  Parameters are named as
in `caracal_min.Caracal`: its weights load here.  What it adds are checks and speed.
MIT License, Copyright (c) 2026 the authors of Caracal from Scratch.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.fft import irfft, rfft


@dataclass
class Config:
    """The shape of a model (Table 1); a `caracal_min.CaracalConfig` does as well."""
    vocab_size: int
    d_model: int                              # D
    n_layers: int                             # n
    n_heads: int                              # H
    window_size: int = 256                    # w, with the token itself (Section 5.1)
    fourier_per_attention: int | None = 2     # None: no attention (Tables 5 and 6)
    pre_conv: bool = True                     # False: w/o PC (Table 5)
    gate: str = "two_stage"                   # or "single_stage": SSLP (Table 5)
    gate_length: int | None = None            # tokens with a gate; None: all, as there
    positional_encoding: str | None = None    # or "learned": with PE (Table 5)
    max_positions: int = 2048
    init_std: float = 0.02
    embedding_std: float = 0.02


def causal_conv(v, g):                                     # (B, D, L); g may end
    """Pad, transform, multiply, transform back, truncate (Steps 3 and 4)."""
    L, N = v.shape[-1], 2 * v.shape[-1]                    # 2 L - 1 would be enough
    wide = torch.promote_types(v.dtype, torch.float32)     # half is too coarse
    V, G = rfft(v.to(wide), n=N), rfft(g.to(wide), n=N)    # (B, D, L + 1) each  (4)
    return irfft(V * G, n=N)[..., :L].to(v.dtype)          # (B, D, L)           (5-6)


class MultiHeadFourier(nn.Module):
    """Mix tokens by convolving two streams computed from them (Section 3.2)."""
    def __init__(self, D, H, pre_conv, gate, gate_length):
        super().__init__()
        self.pre_conv = nn.Conv1d(D, D, 3, groups=D, bias=False) if pre_conv else None
        self.norm, self.gate_length = nn.LayerNorm(D), gate_length
        self.to_value, self.to_gate = nn.Linear(D, D), nn.Linear(D, D)
        self.gate_mix = nn.Conv1d(D, D, 1, groups=H) if gate == "two_stage" else None
        self.to_out = nn.Linear(D, D)

    def forward(self, x):                                  # (B, L, D)
        if self.pre_conv is not None:
            x = self.pre_conv(F.pad(x.mT, (2, 0))).mT      # (B, L, D)           (1)
        x = self.norm(x)                                   # (B, L, D)           Step 2
        v, g = self.to_value(x).mT, self.to_gate(x[:, :self.gate_length]).mT   # (2)
        if self.gate_mix is not None:
            g = self.gate_mix(F.silu(g))                   # (B, D, L)           (3)
        r = causal_conv(v, g)                              # (B, D, L)           (4-6)
        return self.to_out(r.mT)                           # (B, L, D)           (7)


class SlidingWindowAttention(nn.Module):
    """Softmax attention to the last w tokens (Section 5.1, Appendix E)."""
    def __init__(self, D, H, w):
        super().__init__()
        self.H, self.w = H, w
        self.to_qkv = nn.Linear(D, 3 * D, bias=False)
        self.to_out = nn.Linear(D, D, bias=False)

    def forward(self, x):                                  # (B, L, D)
        qkv = self.to_qkv(x).unflatten(-1, (3, self.H, -1))        # (B, L, 3, H, d)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)               # (B, H, L, d) each
        t = torch.arange(x.shape[1], device=x.device)
        lag = t[:, None] - t                               # (L, L), from key to query
        y = F.scaled_dot_product_attention(q, k, v, (lag >= 0) & (lag < self.w))
        return self.to_out(y.transpose(1, 2).flatten(2))   # (B, L, D)


class SwiGLU(nn.Module):
    """Two maps to W channels, one gating the other, and a map back (Appendix E)."""
    def __init__(self, D, W):
        super().__init__()
        self.to_value = nn.Linear(D, W, bias=False)
        self.to_gate = nn.Linear(D, W, bias=False)
        self.to_out = nn.Linear(W, D, bias=False)

    def forward(self, x):                                  # (B, L, D)
        return self.to_out(self.to_value(x) * F.silu(self.to_gate(x)))


class Block(nn.Module):
    """Add to x what a mixer, then what an MLP makes of its normed copy (Figure 1)."""
    def __init__(self, mixer, D, W):
        super().__init__()
        self.mixer_norm, self.mixer = nn.LayerNorm(D), mixer
        self.mlp_norm, self.mlp = nn.LayerNorm(D), SwiGLU(D, W)

    def forward(self, x):                                  # (B, L, D)
        x = x + self.mixer(self.mixer_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Minimal(nn.Module):
    """The language model (Section 3.1, Appendix E), made from a `Config`."""
    def __init__(self, config):
        super().__init__()
        c, D, H, n = config, config.d_model, config.n_heads, config.n_layers
        W = (8 * D // 3 + 127) // 128 * 128                # 8 D / 3, rounded up
        k = c.fourier_per_attention or n                   # n: attention never comes
        self.embedding = nn.Embedding(c.vocab_size, D)
        learned = c.positional_encoding == "learned"
        self.positions = nn.Embedding(c.max_positions, D) if learned else None
        self.blocks = nn.ModuleList(
            Block(SlidingWindowAttention(D, H, c.window_size) if i % (k + 1) == k else
                  MultiHeadFourier(D, H, c.pre_conv, c.gate, c.gate_length), D, W)
            for i in range(n))
        self.norm = nn.LayerNorm(D)
        for name, p in self.named_parameters():            # Appendix E
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif "norm" not in name:                       # whose weights stay 1
                std = c.embedding_std if name == "embedding.weight" else c.init_std
                nn.init.normal_(p, 0, std / (2 * n) ** 0.5 if "to_out" in name else std)

    def forward(self, tokens, targets=None):               # ids, (B, L) each
        """Return logits and, given targets, the mean loss in nats; -100 is left out."""
        x = self.embedding(tokens)                         # (B, L, D)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.embedding.weight.T    # (B, L, vocab_size), tied
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def generate(self, tokens, max_new_tokens):            # ids, (B, P)
        """Append the likeliest token again and again, computing all anew each time."""
        for _ in range(max_new_tokens):
            likeliest = self(tokens)[0][:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, likeliest], dim=1)
        return tokens                                      # (B, P + max_new_tokens)
