"""Sliding-window attention: a token attends to itself and to the window - 1 tokens before it.

Symbols: B batch, H heads, L tokens, d channels per head, w the window.

Three backends compute the same thing, and none builds a mask of L x L::

    blocked   any device.  The text is cut into blocks of w tokens.  A query sees keys of its own
              block and of the block before, so one mask of w x 2w serves all blocks: O(L w) time
              and memory.
    flex      FlexAttention inside torch.compile on CUDA: skips tiles that the window does not touch.
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
    """Softmax attention restricted to the `window` most recent keys, the token's own included.

    Args:
        q, k, v: queries, keys and values, `[B, H, L, d]`, one shape and floating dtype.
        window: number of keys that a query sees, at least 1.  256 means 255 back and itself.
        backend: "blocked", "flex", "flash", or "auto": flash where it runs, flex inside `torch.compile`
            on CUDA from compute capability 8.0 on (a T4 has too little shared memory), else blocked.

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
        raise ValueError(f"q, k, v have shapes {shapes}; give one, [batch, heads, length, channels]")
    if backend == "auto":
        backend = _choose(q)
    if backend not in _BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; accepted: auto, {', '.join(_BACKENDS)}")
    return _BACKENDS[backend](q, k, v, window)


def _blocked(q, k, v, window):
    if not torch.compiler.is_compiling():
        return _in_blocks(q, k, v, window)
    # PyTorch (2.11 at least) caches a cuDNN backward by the strides of q, k and v, not of the incoming
    # gradient.  Compiled code lays that out differently: a plan cached by an eager call misreads it.
    with sdpa_kernel(_NOT_CUDNN):
        return _in_blocks(q, k, v, window)


def _in_blocks(q, k, v, window):
    length = q.shape[2]
    w = min(window, length)
    # The first block has none before it: it is plain causal attention.
    first = (x[:, :, :w] for x in (q, k, v))
    first = F.scaled_dot_product_attention(*first, is_causal=True)
    if length == w:
        return first

    # Cut into n blocks, the last one padded.
    n = -(-length // w)
    missing = n * w - length

    def cut(x):
        return F.pad(x, (0, 0, 0, missing)).unflatten(2, (n, w))  # (B, H, n, w, d)

    # A block of queries sees the keys of two blocks.
    def pairs(x):
        return torch.cat([x[:, :, :-1], x[:, :, 1:]], dim=3)

    # Query i of a block stands at key w + i of the pair, and sees keys i + 1 to i + w.
    visible = torch.ones(w, 2 * w, dtype=torch.bool, device=q.device).triu(1).tril(w)
    # Blocks become heads, over which the mask broadcasts: SDPA takes 4 dimensions.
    rest = F.scaled_dot_product_attention(
        cut(q)[:, :, 1:].flatten(1, 2), pairs(cut(k)).flatten(1, 2), pairs(cut(v)).flatten(1, 2),
        attn_mask=visible
    )
    rest = rest.unflatten(1, (-1, n - 1)).flatten(2, 3)  # (B, H, (n-1) w, d)
    return torch.cat([first, rest], dim=2)[:, :, :length]


def _flex(q, k, v, window):
    tiles = _window_tiles(q.shape[2], window, q.device)
    return flex_attention(q, k, v, block_mask=tiles)


def _window_tiles(length, window, device):
    """Name the tiles that the window touches; `create_block_mask` would build an L x L mask."""
    size = 128
    n = -(-length // size)
    tile = torch.arange(n, device=device)
    # Query tile i sees key tiles from that of its first query's oldest key to its own.
    key = tile * size - (window - 1)
    oldest = key.clamp(min=0) // size
    count = tile - oldest + 1
    # The list of every tile has n entries, of which the first `count` are read.
    tiles = (oldest[:, None] + tile).clamp(max=n - 1)
    return BlockMask.from_kv_blocks(
        count.int()[None, None],
        tiles.int()[None, None],
        BLOCK_SIZE=size,
        mask_mod=lambda b, h, i, j: (i >= j) & (i - j < window),
        seq_lengths=(length, length),
    )


def _flash(q, k, v, window):
    # flash-attn takes (B, L, H, d), and the number of keys before and after the token.
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return flash_attn_func(q, k, v, causal=True, window_size=(window - 1, 0)).transpose(1, 2)


_BACKENDS = {"blocked": _blocked, "flex": _flex, "flash": _flash}
_NOT_CUDNN = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_exporting = getattr(torch.compiler, "is_exporting", lambda: False)  # from PyTorch 2.7 on


def _choose(q):
    # An exported program has standard operators only.
    if _exporting() or not _from_ampere(q):
        return "blocked"
    if flash_attn_func is not None and q.dtype in (torch.float16, torch.bfloat16):
        return "flash"
    # FlexAttention builds L x L scores where it is not compiled, and needs 16 channels per head.
    if torch.compiler.is_compiling() and q.shape[-1] >= 16:
        return "flex"
    return "blocked"


def _from_ampere(q):
    return q.is_cuda and torch.cuda.get_device_properties(q.device).major >= 8
