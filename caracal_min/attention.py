"""Sliding-window attention: a token attends to itself and to the window - 1 tokens before it.

Symbols: B batch, H heads, L tokens, d channels per head, w the window.

Three backends compute the same thing, and none builds a mask of L x L::

    blocked   any device.  The text is cut into blocks of w tokens.  A query sees keys of its own
              block and of the one before, so one mask of w x 2w serves all: O(L w) time and memory.
    flex      skips tiles outside the window.  Only compiled; eager, it builds L x L scores.
    flash     the kernel of the package flash-attn: half precision, CUDA compute capability >= 8.0.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, flex_attention

# A build for another torch fails here with an undefined symbol, which is an ImportError too.
try:
    from flash_attn import flash_attn_func
except ImportError:
    flash_attn_func = None

__all__ = ["sliding_window_attention"]


def sliding_window_attention(
    q: Tensor, k: Tensor, v: Tensor, window: int, backend: str = "auto"
) -> Tensor:
    """Softmax attention to the `window` most recent keys, that of the token itself included.

    Args:
        q, k, v: queries, keys and values, `[B, H, L, d]`, one shape and floating dtype.
        window: number of keys that a query sees, at least 1: its own and window - 1 before it.
        backend: "blocked", "flex", "flash", or "auto": flash where it runs, flex inside
            `torch.compile` on CUDA from compute capability 8.0 on (a T4 has too little shared
            memory), else blocked.

    Returns:
        `[B, H, L, d]`, same dtype; scores are scaled by 1 / sqrt(d).

    Raises:
        ValueError: the shapes differ, or the backend is unknown.

    Example:
        >>> q, k, v = torch.randn(3, 1, 2, 100, 16)
        >>> sliding_window_attention(q, k, v, window=32).shape
        torch.Size([1, 2, 100, 16])

    Source: Caracal, Section 5.1 (window 256); sliding-window attention of Longformer.
    """
    if q.ndim != 4 or not q.shape == k.shape == v.shape:
        shapes = [tuple(x.shape) for x in (q, k, v)]
        raise ValueError(f"q, k, v have shapes {shapes}; give one, [batch, heads, length, "
                         "channels]")
    if backend == "auto":
        backend = _choose(q)
    if backend not in _BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; accepted: auto, {', '.join(_BACKENDS)}")
    return _BACKENDS[backend](q, k, v, window)


def _blocked(q, k, v, window):
    if not torch.compiler.is_compiling():
        return _by_blocks(q, k, v, window)
    # Seen in PyTorch 2.11: it caches cuDNN's backward plan by the strides of q, k and v, but not of
    # the incoming gradient.  Compiled code gives that one other strides than eager code, so a plan
    # that an eager call has cached would misread it.
    with sdpa_kernel(_WITHOUT_CUDNN):
        return _by_blocks(q, k, v, window)


def _by_blocks(q, k, v, window):
    length = q.shape[2]
    w = min(window, length)
    # The first block has no block before it, so its attention is plain causal attention.
    beginnings = (x[:, :, :w] for x in (q, k, v))
    first = F.scaled_dot_product_attention(*beginnings, is_causal=True)
    if length == w:
        return first

    # n blocks, the last one padded.
    n = -(-length // w)
    missing = n * w - length

    def as_blocks(x):
        return F.pad(x, (0, 0, 0, missing)).unflatten(2, (n, w))  # (B, H, n, w, d)

    def with_block_before(x):
        blocks = as_blocks(x)
        return torch.cat([blocks[:, :, :-1], blocks[:, :, 1:]], dim=3)  # (B, H, n - 1, 2 w, d)

    # Of its 2 w keys, query i of a block is number w + i, and sees numbers i + 1 to i + w.
    visible = torch.ones(w, 2 * w, dtype=torch.bool, device=q.device).triu(1).tril(w)
    # SDPA takes 4 dimensions, so blocks become heads, over which the mask broadcasts.
    queries = as_blocks(q)[:, :, 1:].flatten(1, 2)
    keys = with_block_before(k).flatten(1, 2)
    values = with_block_before(v).flatten(1, 2)
    later = F.scaled_dot_product_attention(queries, keys, values, attn_mask=visible)
    later = later.unflatten(1, (-1, n - 1)).flatten(2, 3)  # (B, H, (n - 1) w, d)
    return torch.cat([first, later], dim=2)[:, :, :length]


def _flex(q, k, v, window):
    mask = _window_tiles(q.shape[2], window, q.device)
    return flex_attention(q, k, v, block_mask=mask)


def _window_tiles(length, window, device):
    """Return the mask as a list of tiles; `create_block_mask` would build it as L x L numbers."""
    size = 128
    n = -(-length // size)
    tile = torch.arange(n, device=device)
    # The queries of a tile need the key tiles from `oldest`, where the window of its first query
    # begins, up to the tile itself.
    window_start = tile * size - (window - 1)
    oldest = window_start.clamp(min=0) // size
    count = tile - oldest + 1
    # Each query tile lists n key tiles, of which the first `count` are read.
    key_tiles = (oldest[:, None] + tile).clamp(max=n - 1)
    return BlockMask.from_kv_blocks(
        count.int()[None, None],
        key_tiles.int()[None, None],
        BLOCK_SIZE=size,
        mask_mod=lambda b, h, i, j: (i >= j) & (i - j < window),
        seq_lengths=(length, length),
    )


def _flash(q, k, v, window):
    # flash-attn takes (B, L, H, d), and the numbers of keys before and after that of the query.
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return flash_attn_func(q, k, v, causal=True, window_size=(window - 1, 0)).transpose(1, 2)


_BACKENDS = {"blocked": _blocked, "flex": _flex, "flash": _flash}
_WITHOUT_CUDNN = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_exporting = getattr(torch.compiler, "is_exporting", lambda: False)  # from PyTorch 2.7 on


def _choose(q):
    if _exporting() or not _is_ampere_or_newer(q):
        return "blocked"
    if flash_attn_func is not None and q.dtype in (torch.float16, torch.bfloat16):
        return "flash"
    # FlexAttention builds L x L scores unless it is compiled, and needs 16 channels per head.
    if torch.compiler.is_compiling() and q.shape[-1] >= 16:
        return "flex"
    return "blocked"


def _is_ampere_or_newer(q):
    return q.is_cuda and torch.cuda.get_device_properties(q.device).major >= 8
