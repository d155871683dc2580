"""Sliding-window attention: each token attends to itself and to the window - 1 tokens before it.

Symbols: B batch, H heads, L tokens, d channels per head, w the window.

The backend `blocked` cuts the sequence into blocks of w tokens.  A query in block n can only see keys
in blocks n - 1 and n, so one w x 2w mask, shared by every block, is enough: O(L * w) time and memory,
exact, and no mask of L x L anywhere.

Read next: `modules`, which projects tokens to queries, keys and values.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["sliding_window_attention"]


def sliding_window_attention(q: Tensor, k: Tensor, v: Tensor, window: int, backend: str = "auto") -> Tensor:
    """Softmax attention restricted to the `window` most recent keys, the token's own included.

    Args:
        q, k, v: queries, keys and values, `[B, H, L, d]`, one floating dtype, same shape.
        window: number of keys that a query sees, at least 1.  256 means 255 back and itself.
        backend: "blocked" (any device), or "auto", which picks for the device.

    Returns:
        `[B, H, L, d]`, same dtype; scores are scaled by 1 / sqrt(d).

    Raises:
        ValueError: shapes or dtypes differ, window < 1, or the backend is unknown.

    Source: Caracal, Section 5.1 (window 256); sliding-window attention of Longformer.
    """
    if q.ndim != 4 or q.shape != k.shape or q.shape != v.shape:
        raise ValueError(f"q, k, v have shapes {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}; "
                         "all three must be [batch, heads, length, channels] and equal")
    if not (q.dtype == k.dtype == v.dtype and q.dtype.is_floating_point):
        raise ValueError(f"q, k, v have dtypes {q.dtype}, {k.dtype}, {v.dtype}; give one floating-point dtype")
    if window < 1:
        raise ValueError(f"window={window}; a token needs to see at least itself, give window >= 1")
    if backend == "auto":
        backend = "blocked"
    if backend not in _BACKENDS:
        raise ValueError(f"unknown attention backend {backend!r}; accepted: auto, {', '.join(_BACKENDS)}")
    return _BACKENDS[backend](q, k, v, window)


def _blocked(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    batch, heads, length, channels = q.shape
    w = min(window, length)
    first = F.scaled_dot_product_attention(q[:, :, :w], k[:, :, :w], v[:, :, :w], is_causal=True)
    if length == w:
        return first

    n = -(-length // w)  # number of blocks, the last one padded
    pad = n * w - length
    q, k, v = (F.pad(x, (0, 0, 0, pad)).unflatten(2, (n, w)) for x in (q, k, v))  # (B, H, n, w, d)
    k2 = torch.cat([k[:, :, :-1], k[:, :, 1:]], dim=3)  # (B, H, n-1, 2w, d): the block before, and the block
    v2 = torch.cat([v[:, :, :-1], v[:, :, 1:]], dim=3)

    distance = torch.arange(w, 2 * w, device=q.device)[:, None] - torch.arange(2 * w, device=q.device)
    visible = (distance >= 0) & (distance < w)  # (w, 2w)
    fold = (batch, heads * (n - 1))  # every block is one more head: the mask broadcasts over them
    rest = F.scaled_dot_product_attention(
        q[:, :, 1:].reshape(*fold, w, channels),
        k2.reshape(*fold, 2 * w, channels),
        v2.reshape(*fold, 2 * w, channels),
        attn_mask=visible,
    ).reshape(batch, heads, (n - 1) * w, channels)
    return torch.cat([first, rest], dim=2)[:, :, :length]


_BACKENDS = {"blocked": _blocked}
