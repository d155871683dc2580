"""What the layers keep between tokens while decoding::

    FourierCache   v and g, as an online convolution, and the last inputs of pre_conv
    WindowCache    the last `window` keys and values of an attention layer
    CaracalCache   those of all layers, for `transformers`

The rows of a batch may hold different numbers of tokens: prompts need not be equally long.

A step writes into the large tensors of a cache in place: a second cache that a step returned would share them.  What
counts of them is said by `state`, a value that is replaced when the step is done; until then a step writes only where
the state before it does not look.  So `advance_together` can put that one back, and the caches of a model advance all
or none.  A caller of a layer alone may use it too.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention import sliding_window_attention
from .online import OnlineConvolution, row_groups
from .packing import padded_right

__all__ = ["Cache", "CaracalCache", "FourierCache", "WindowCache", "advance_together", "is_one_token"]


class FourierCache:
    """State of a Multi-Head Fourier layer: all of v and g, 2 D numbers per token of the capacity.

    That is as many as the keys and values of full attention.  The relaxed convolution holds 3 D: beside v and g, in
    at least float32, what the tokens so far add to later results.  Under a gate_length, that is the capacity, of a
    cache that never fills: a state of fixed size.

    Args:
        convolution: empty online convolution, which stores v and g (`relaxed`, `partitioned`).
        conv_state: the inputs before the first token, `[B, taps - 1, D]`, all zero; None for a layer without pre_conv.
    """

    __copy__ = deepcopy  # two that share their tensors would write over each other

    def __init__(self, convolution: OnlineConvolution, conv_state: Tensor | None):
        self.convolution = convolution
        self.conv_state = conv_state

    @property
    def lengths(self) -> list[int]:
        """Tokens held by each row."""
        return self.convolution.lengths

    @property
    def capacity(self) -> int | None:
        """Most tokens that a row takes; None: any number."""
        return None if self.convolution.endless else self.convolution.capacity

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, filled or not."""
        return self.convolution.nbytes + (0 if self.conv_state is None else self.conv_state.nbytes)

    @property
    def state(self) -> tuple:
        """What a step replaces."""
        return self.convolution.state, self.conv_state

    @state.setter
    def state(self, state: tuple) -> None:
        self.convolution.state, self.conv_state = state

    def reorder(self, rows: Sequence[int] | Tensor) -> None:
        """Let row i be what row rows[i] was, as beam search does; there may be more or fewer rows than before.

        Raises:
            ValueError: no rows, or one that is not there.
        """
        rows = _rows(rows, len(self.lengths))
        self.convolution.reorder(rows)
        self.conv_state = None if self.conv_state is None else self.conv_state[rows]

    def mix(self, v: Tensor, g: Tensor, lengths: Sequence[int] | None) -> Tensor:
        """Append the streams of L new tokens, `[B, D, L]`, or fewer gates, and return r there, `[B, D, L]`."""
        if is_one_token(v.mT, lengths):
            return self.convolution.step(v[..., 0], g[..., 0] if g.shape[-1] else None).unsqueeze(-1)
        return self.convolution.prefill(v, g, lengths)

    def advance_conv_state(self, x: Tensor, lengths: Sequence[int] | None) -> None:
        """Keep the last inputs of pre_conv; x holds the new ones, `[B, L, D]`."""
        if self.conv_state is None:
            return
        seen, kept = torch.cat([self.conv_state, x], dim=1), self.conv_state.shape[1]
        if lengths is None:
            last = seen[:, -kept:]
            self.conv_state = last if x.shape[1] == 1 else last.clone()  # a view would keep the whole prompt
        else:
            self.conv_state = torch.stack([row[n:n + kept] for row, n in zip(seen, lengths, strict=True)])


class WindowCache:
    """State of an attention layer: keys and values of the last `window` tokens, token t at slot t % window.

    Attention without positional encoding does not care in which order the slots are.  A cache for fewer tokens than
    the window has a slot for each of them, and takes no more.

    Args:
        k, v: `[B, H, slots, d]`, all zero; slots is the window, or the capacity where that is smaller.
        window: keys that a query sees, its own token's included.
    """

    __copy__ = deepcopy  # two that share their tensors would write over each other

    def __init__(self, k: Tensor, v: Tensor, window: int):
        self.window = window
        self.state: tuple[list[int], Tensor, Tensor] = [0] * k.shape[0], k, v

    @property
    def lengths(self) -> list[int]:
        """Tokens held by each row."""
        return self.state[0]

    @property
    def capacity(self) -> int | None:
        """Most tokens that a row takes; None: any number."""
        slots = self.k.shape[2]
        return slots if slots < self.window else None

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values, filled or not."""
        return self.k.nbytes + self.v.nbytes

    @property
    def k(self) -> Tensor:
        """Keys, `[B, H, slots, d]`."""
        return self.state[1]

    @property
    def v(self) -> Tensor:
        """Values, `[B, H, slots, d]`."""
        return self.state[2]

    def reorder(self, rows: Sequence[int] | Tensor) -> None:
        """Let row i be what row rows[i] was, as `FourierCache.reorder` says."""
        rows = _rows(rows, len(self.lengths))
        self.state = [self.lengths[i] for i in rows], self.k[rows], self.v[rows]

    def step(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Append one token, `[B, H, 1, d]` each, and return its attention output, `[B, H, 1, d]`.

        Raises:
            ValueError: wrong shapes, or a cache smaller than the window is full.
        """
        lengths, keys, values = self.state
        slots = self._require(q, [1] * len(lengths))
        for t, _, rows in row_groups(lengths, [1] * len(lengths)):
            slot = t % slots  # of token t - window, which no later query sees
            keys[rows, :, slot], values[rows, :, slot] = k[rows, :, 0], v[rows, :, 0]
        lengths = [n + 1 for n in lengths]
        filled = [min(n, slots) for n in lengths]
        most = max(filled)
        mask = None
        if min(filled) < most:
            mask = torch.arange(most, device=k.device) < torch.tensor(filled, device=k.device)[:, None, None, None]
        y = F.scaled_dot_product_attention(q, keys[:, :, :most], values[:, :, :most], attn_mask=mask)
        self.state = lengths, keys, values
        return y

    def prefill(self, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int] | None, backend: str) -> Tensor:
        """Append L tokens, `[B, H, L, d]` each, and return their attention outputs, `[B, H, L, d]`.

        Of a row with fewer than L new tokens the rest is ignored, and its outputs there are zero.

        Raises:
            ValueError: wrong shapes, lengths out of range, or more tokens than fit a cache smaller than the window.
        """
        counts = [q.shape[2]] * len(self.lengths) if lengths is None else [int(n) for n in lengths]
        slots = self._require(q, counts)
        new_k, new_v, y = self.k.clone(), self.v.clone(), torch.zeros_like(q)
        for start, count, rows in row_groups(self.lengths, counts):
            old = min(start, self.window - 1)
            seen = [t % slots for t in range(start - old, start)]
            keys = torch.cat([self.k[rows, :, seen].to(k.dtype), k[rows, :, :count]], dim=2)  # autocast: other types
            values = torch.cat([self.v[rows, :, seen].to(v.dtype), v[rows, :, :count]], dim=2)
            queries = F.pad(q[rows, :, :count], (0, 0, old, 0))  # the outputs at old tokens are not read
            y[rows, :, :count] = sliding_window_attention(queries, keys, values, self.window, backend)[:, :, old:]
            kept = range(max(start, start + count - slots), start + count)
            at = [t % slots for t in kept]
            new_k[rows, :, at] = keys[:, :, -len(kept):].to(new_k.dtype)
            new_v[rows, :, at] = values[:, :, -len(kept):].to(new_v.dtype)
        self.state = [n + c for n, c in zip(self.lengths, counts, strict=True)], new_k, new_v
        return y

    def _require(self, q: Tensor, counts: list[int]) -> int:
        """Check the new tokens and how many of them each row takes; return the number of slots."""
        batch, heads, slots, width = self.k.shape
        if q.ndim != 4 or q.shape[2] < 1 or (*q.shape[:2], q.shape[3]) != (batch, heads, width):
            raise ValueError(f"queries have shape {tuple(q.shape)}; this cache takes "
                             f"[{batch}, {heads}, tokens, {width}]")
        if len(counts) != batch or not all(1 <= c <= q.shape[2] for c in counts):
            raise ValueError(f"lengths={counts} for {batch} rows of {q.shape[2]} tokens; "
                             f"give {batch} numbers from 1 to {q.shape[2]}")
        tokens = max(n + c for n, c in zip(self.lengths, counts, strict=True))
        if self.capacity is not None and tokens > self.capacity:
            raise ValueError(f"{tokens} tokens do not fit a cache for {slots}; make the cache longer")
        return slots


Cache = FourierCache | WindowCache


def _rows(rows: Sequence[int] | Tensor, batch: int) -> list[int]:
    found = torch.as_tensor(rows).tolist()
    if not found or any(type(i) is not int or not 0 <= i < batch for i in found):
        raise ValueError(f"rows={found}; give at least one whole number from 0 to {batch - 1}")
    return found


def is_one_token(x: Tensor, lengths: Sequence[int] | None) -> bool:
    """Whether x, `[B, L, ...]`, brings one token to each row, `lengths` heeded: then a step is enough."""
    return x.shape[1] == 1 and (lengths is None or [*lengths] == [1] * len(x))


class advance_together:
    """A context in which caches advance all or none: an error or an interrupt inside puts back what each began with."""

    def __init__(self, caches: Sequence[Cache]):
        self.before = [(cache, cache.state) for cache in caches]

    def __enter__(self) -> None:
        pass

    def __exit__(self, error: type[BaseException] | None, *_) -> None:
        if error is not None:
            for cache, state in self.before:
                cache.state = state


class CaracalCache:
    """What `generate` of `hf` hands from token to token: the caches of the layers, and the tokens that they have read.

    Full caches are replaced by longer ones, which read all tokens again, in one parallel pass.

    Attributes:
        layers: a cache for each block (`caches`); none before the first token.
        tokens, mask: what was given as input_ids, `[B, N]`, and where it is no padding, `[B, N]`.
    """

    is_compileable = is_croppable = False
    is_linear = (False,)
    __copy__ = deepcopy

    def __init__(self) -> None:
        self.layers: list[Cache] = []
        self.tokens = self.mask = torch.empty(0, 0)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return how many tokens a row was given, N, its padding included."""
        return self.tokens.shape[1]

    def reorder_cache(self, rows: Tensor) -> None:
        """Let row i be what row rows[i] was, as beam search does; rows: `[B]`."""
        for cache in self.layers:
            cache.reorder(rows)
        self.tokens, self.mask = self.tokens[rows], self.mask[rows]

    def reserve(self, model: Any, ids: Tensor) -> None:
        """Make room for `[B, L]` ids more; model: `hf.CaracalForCausalLM`, whose caches these are."""
        rows, count = ids.shape
        held = model.seen(self.layers) if self.layers else [0] * rows
        if len(held) != rows:
            raise ValueError(f"the cache has {len(held)} rows, input_ids {rows}; give as many, or begin without cache")
        needed = max(held) + count
        if self.layers and all(cache.capacity is None or needed <= cache.capacity for cache in self.layers):
            return
        layers = model.new_caches(rows, needed + max(256, needed // 2), device=ids.device)
        if self.layers:
            with torch.no_grad():
                model.hidden(padded_right(self.tokens, self.mask), layers, self.mask.sum(1).tolist())
        self.layers = layers

    def keep(self, tokens: Tensor, mask: Tensor) -> None:
        """Note what the layers have read."""
        if self.tokens.numel():
            tokens, mask = torch.cat([self.tokens, tokens], 1), torch.cat([self.mask, mask], 1)
        self.tokens, self.mask = tokens, mask
