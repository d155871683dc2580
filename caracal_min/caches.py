"""What the layers keep between tokens while decoding:

    FourierCache   all of v and g, as an online convolution, and the last inputs of pre_conv
    WindowCache    the last `window` keys and values of an attention layer

The rows of a batch may hold different numbers of tokens: prompts need not be equally long.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention import sliding_window_attention
from .relaxed import DotProductConvolution, RelaxedConvolution, row_groups

__all__ = ["FourierCache", "WindowCache"]


class FourierCache:
    """State of a Multi-Head Fourier layer: 2 D numbers per token, as many as the keys and values of full attention.

    Args:
        convolution: empty online convolution, which stores v and g.
        conv_state: the inputs before the first token, `[B, taps - 1, D]`, all zero; None for a layer without pre_conv.
    """

    def __init__(self, convolution: DotProductConvolution | RelaxedConvolution, conv_state: Tensor | None):
        self.convolution = convolution
        self.conv_state = conv_state

    @property
    def lengths(self) -> list[int]:
        """Tokens held by each row."""
        return self.convolution.lengths

    def mix(self, v: Tensor, g: Tensor, lengths: Sequence[int] | None) -> Tensor:
        """Append the streams `[B, D, L]` of L new tokens and return r there, `[B, D, L]`."""
        if v.shape[-1] == 1:
            return self.convolution.step(v[..., 0], g[..., 0]).unsqueeze(-1)
        return self.convolution.prefill(v, g, lengths)

    def advance_conv_state(self, x: Tensor, lengths: Sequence[int] | None) -> None:
        """Keep the last inputs of pre_conv; x holds the new ones, `[B, L, D]`."""
        if self.conv_state is None:
            return
        seen, kept = torch.cat([self.conv_state, x], dim=1), self.conv_state.shape[1]
        if lengths is None:
            self.conv_state = seen[:, -kept:]
        else:
            self.conv_state = torch.stack([row[n:n + kept] for row, n in zip(seen, lengths, strict=True)])


class WindowCache:
    """State of an attention layer: keys and values of the last `window` tokens, token t at slot t % window.

    Attention without positional encoding does not care in which order the slots are.

    Args:
        k, v: `[B, H, window, d]`, all zero.
    """

    def __init__(self, k: Tensor, v: Tensor):
        self.k, self.v = k, v
        self.lengths = [0] * k.shape[0]

    @property
    def window(self) -> int:
        """Keys that a query sees, its own token's included."""
        return self.k.shape[2]

    def step(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Append one token, `[B, H, 1, d]` each, and return its attention output, `[B, H, 1, d]`."""
        for t, _, rows in row_groups(self.lengths, [1] * len(self.lengths)):
            slot = t % self.window
            self.k[rows, :, slot], self.v[rows, :, slot] = k[rows, :, 0], v[rows, :, 0]
        self.lengths = [n + 1 for n in self.lengths]
        filled = [min(n, self.window) for n in self.lengths]
        most = max(filled)
        mask = None
        if min(filled) < most:
            mask = torch.arange(most, device=k.device) < torch.tensor(filled, device=k.device)[:, None, None, None]
        return F.scaled_dot_product_attention(q, self.k[:, :, :most], self.v[:, :, :most], attn_mask=mask)

    def prefill(self, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int] | None, backend: str) -> Tensor:
        """Append L tokens, `[B, H, L, d]` each, and return their attention outputs, `[B, H, L, d]`.

        Of a row with fewer than L new tokens the rest is ignored, and its outputs there are zero.
        """
        counts = [q.shape[2]] * q.shape[0] if lengths is None else list(lengths)
        y = torch.zeros_like(q)
        for start, count, rows in row_groups(self.lengths, counts):
            old = min(start, self.window - 1)
            slots = [t % self.window for t in range(start - old, start)]
            keys = torch.cat([self.k[rows, :, slots], k[rows, :, :count]], dim=2)
            values = torch.cat([self.v[rows, :, slots], v[rows, :, :count]], dim=2)
            queries = F.pad(q[rows, :, :count], (0, 0, old, 0))  # the outputs at old tokens are not read
            y[rows, :, :count] = sliding_window_attention(queries, keys, values, self.window, backend)[:, :, old:]
            kept = range(max(start, start + count - self.window), start + count)
            slots = [t % self.window for t in kept]
            self.k[rows, :, slots], self.v[rows, :, slots] = keys[:, :, -len(kept):], values[:, :, -len(kept):]
        self.lengths = [n + c for n, c in zip(self.lengths, counts, strict=True)]
        return y
