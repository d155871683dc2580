"""Sliding-window attention: each token attends to itself and to the window - 1 tokens before it.

Symbols: B batch, H heads, L tokens, d channels per head, w the window.

Three backends compute the same thing, and none builds a mask of L x L::

    blocked   any device.  The sequence is cut into blocks of w tokens.  A query in block n can only see keys in
              blocks n - 1 and n, so one w x 2w mask, shared by every block, is enough: O(L * w) time and memory.
              The mask leaves PyTorch its memory-efficient kernel, or cuDNN's, and not its flash kernel, which takes
              none.  Two calls without one, causal each, would have to be added up by their normalisers, which PyTorch
              does not return.
    flex      FlexAttention of PyTorch, which skips the tiles that the window does not touch (CUDA).
    flash     the kernel of the flash-attn package, half precision only (CUDA from compute capability 8.0 on).
"""

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

__all__ = ["sliding_window_attention"]

_NOT_CUDNN = [kernel for name, kernel in SDPBackend.__members__.items() if name not in ("ERROR", "CUDNN_ATTENTION")]


def sliding_window_attention(q: Tensor, k: Tensor, v: Tensor, window: int, backend: str = "auto") -> Tensor:
    """Softmax attention restricted to the `window` most recent keys, the token's own included.

    Args:
        q, k, v: queries, keys and values, `[B, H, L, d]`, one floating dtype, same shape.
        window: number of keys that a query sees, at least 1.  256 means 255 back and itself.
        backend: "blocked", "flex", "flash", or "auto": flash where it runs, flex inside `torch.compile` on
            CUDA from compute capability 8.0 on (a T4 has too little shared memory for it) for at least 16 channels
            per head, otherwise blocked.

    Returns:
        `[B, H, L, d]`, same dtype; scores are scaled by 1 / sqrt(d).

    Raises:
        ValueError: shapes, dtypes or devices differ, window < 1, or the backend is unknown.
        RuntimeError: the backend does not run on this device, with this dtype, or without its package.

    Source: Caracal, Section 5.1 (window 256); sliding-window attention of Longformer.
    """
    if q.ndim != 4 or q.shape != k.shape or q.shape != v.shape:
        raise ValueError(f"q, k, v have shapes {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}; "
                         "all three must be [batch, heads, length, channels] and equal")
    if not (q.dtype == k.dtype == v.dtype and q.dtype.is_floating_point):
        raise ValueError(f"q, k, v have dtypes {q.dtype}, {k.dtype}, {v.dtype}; give one floating-point dtype")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k, v are on {q.device}, {k.device}, {v.device}; move them to one device")
    if window < 1:
        raise ValueError(f"window={window}; a token needs to see at least itself, give window >= 1")
    if backend == "auto":
        backend = _choose(q)
    if backend not in _BACKENDS:
        raise ValueError(f"unknown attention backend {backend!r}; accepted: auto, {', '.join(_BACKENDS)}")
    return _BACKENDS[backend](q, k, v, window)


def _blocked(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    if not torch.compiler.is_compiling():
        return _in_blocks(q, k, v, window)
    # For cuDNN, PyTorch keeps a backward pass by the strides of q, k and v, and (2.11 at least) not by those of the
    # incoming gradient, for which it was built too.  Compiled, this gradient lies otherwise than in a pass that was not
    # compiled; after one of those it would be read in the wrong places, and beyond its end.
    with sdpa_kernel(_NOT_CUDNN):  # in place of what the caller has chosen so
        return _in_blocks(q, k, v, window)


def _in_blocks(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
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


def _flex(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    if torch.compiler.is_compiling():  # which makes a few kernels of them, and no use of what is kept
        return flex_attention(q, k, v, block_mask=_window_tiles(q.shape[2], window, q.device))
    attend = _compiled_flex() if q.is_cuda else flex_attention  # uncompiled, it would build all L x L scores
    return attend(q, k, v, block_mask=_kept_tiles(q.shape[2], window, q.device))


@functools.cache
def _compiled_flex() -> Callable:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


@functools.lru_cache(maxsize=16)
def _kept_tiles(length: int, window: int, device: torch.device) -> "BlockMask":
    return _window_tiles(length, window, device)


def _window_tiles(length: int, window: int, device: torch.device) -> "BlockMask":
    """Say which tiles of the L x L scores the window touches, without building them."""
    from torch.nn.attention.flex_attention import BlockMask

    tile = 128
    query = torch.arange(-(-length // tile), device=device, dtype=torch.int32)
    # Query tile i sees the key tiles from that of its first query's oldest key to its own.
    first = (query * tile - (window - 1)).clamp(min=0) // tile
    seen = (first[:, None] + query).clamp(max=len(query) - 1).to(torch.int32)
    return BlockMask.from_kv_blocks(
        (query - first + 1).to(torch.int32)[None, None], seen[None, None], BLOCK_SIZE=tile,
        seq_lengths=(length, length), mask_mod=lambda b, h, i, j: (i >= j) & (i - j < window),
    )


def _flash(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    if not _flash_runs(q):
        raise RuntimeError(f"the flash backend needs the flash-attn package, float16 or bfloat16 and CUDA from compute "
                           f"capability 8.0; got {str(q.dtype).removeprefix('torch.')} on {q.device.type}; "
                           "use backend=\"auto\"")
    from flash_attn import flash_attn_func

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # flash-attn takes (B, L, H, d)
    return flash_attn_func(q, k, v, causal=True, window_size=(window - 1, 0)).transpose(1, 2)


_exporting = getattr(torch.compiler, "is_exporting", lambda: False)  # from PyTorch 2.7 on
_HAS_FLASH = find_spec("flash_attn") is not None  # asked inside torch.compile, it would break the graph


def _from_ampere(q: Tensor) -> bool:
    return q.is_cuda and torch.cuda.get_device_properties(q.device).major >= 8


def _flash_runs(q: Tensor) -> bool:
    return _HAS_FLASH and q.dtype in (torch.float16, torch.bfloat16) and _from_ampere(q)


def _choose(q: Tensor) -> str:
    if _exporting():
        return "blocked"  # of standard operators
    if _flash_runs(q):
        return "flash"
    runs = _from_ampere(q) and q.shape[-1] >= 16  # which FlexAttention's kernels need
    return "flex" if runs and torch.compiler.is_compiling() else "blocked"


_BACKENDS = {"blocked": _blocked, "flex": _flex, "flash": _flash}
