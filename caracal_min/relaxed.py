"""Causal convolution of two sequences that arrive a token at a time, exactly, in O(L log^2 L) for L tokens.

When token t arrives, v_t and g_t become known and r_t = sum over j <= t of v_j g_{t-j} is wanted.  Both operands
are still growing, so no spectrum can be computed once and for all.  Relaxed (online) multiplication sorts the
pairs (i, j) by when the later of the two becomes known, and adds them to *future* results in blocks::

    after n tokens, with m the lowest bit of n and l = n - m, the results n ... n + m - 1 receive
        v[0:m] * g[0:m]                        if l = 0
        v[l:n] * g[0:2m] + g[l:n] * v[0:2m]    otherwise
    each by cyclic FFTs of length 2m, whose wrap-around falls on results that are not read.

Blocks shorter than `base` are not worth an FFT: pairs with an index in the current block of `base` tokens are
summed directly, so that this route was no slower at any length when measured on a CPU.  What a prompt contributes to
later results is the set of blocks n = P, P & (P - 1), ..., 0: the nodes of a Fenwick tree.

`DotProductConvolution` is the slow twin: one plain dot product over the past for every token, O(L^2) in all.
Both keep all of v and g, preallocated; rows of a batch may hold sequences of different lengths.

What a step did is in `state`, a value that is replaced when all else is done.  Until then a step, or a prompt, writes
only where the state before it does not look, so that whoever puts this one back has undone it.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .convolution import causal_conv_fft
from .spectral import BLOCK

__all__ = ["DotProductConvolution", "OnlineConvolution", "RelaxedConvolution", "row_groups", "schedule"]


class _State(NamedTuple):
    """How many tokens each row holds; the dot product needs no more."""
    lengths: list[int]
    block: Tensor | None = None
    """v and g of the tokens since the last full block, `[base, 2, B, D]`."""
    due: Tensor | None = None
    """What earlier blocks add to the results of this one, `[base, B, D]`."""
    pending: Tensor | None = None
    """What they add to all later results, `[B, D, capacity]`; of no meaning before the first token."""
    unwritten: tuple[tuple[slice, int, Tensor], ...] = ()
    """New values of `pending`, as (rows, first result, values): the next step writes them before anything else."""


def schedule(length: int) -> dict[tuple[int, int], int]:
    """Run the schedule above with blocks from one token on, and note when each pair is added.

    Returns:
        for each pair of indices (i, j) with i + j < length, the number of tokens that have arrived by then; a pair with
        an index 0 is added by hand, when the token of the other arrives.
    """
    after = {}
    for n in range(1, length + 1):
        m = n & -n
        after[n - 1, 0] = after[0, n - 1] = n
        for new in range(n - m, n):
            for old in range(m if n == m else 2 * m):
                if n <= new + old < min(n + m, length):
                    after[new, old] = after[old, new] = n
    return after


class OnlineConvolution:
    """What all share: storage of `[B, D, capacity]`, the lengths of the rows, and the checks.

    A subclass has `_append(state, rows, start, both)`, which stores v and g, `[2, rows, D, count]`, from token `start`
    on; `_read(rows, end)`, the first tokens of each, `[rows, D, end]`; and `_step(state, rows, t, both)`, which takes
    token t, `[2, rows, D]`, and returns r_t and the state after it.
    """

    def __init__(self, batch: int, channels: int, capacity: int, dtype: torch.dtype = torch.float32,
                 device: torch.device | str = "cpu"):
        if min(batch, channels, capacity) < 1:
            raise ValueError(f"batch={batch}, channels={channels}, capacity={capacity}; give whole numbers >= 1")
        self.capacity = capacity
        self.state = _State([0] * batch)
        self.arithmetic = torch.promote_types(dtype, torch.float32)
        self.streams = torch.zeros(2, batch, channels, capacity, dtype=dtype, device=device)  # v and g

    @property
    def lengths(self) -> list[int]:
        """Tokens held by each row."""
        return self.state.lengths

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, filled or not."""
        return sum(x.nbytes for x in (*vars(self).values(), *self.state) if isinstance(x, Tensor))

    def prefill(self, v: Tensor, g: Tensor, lengths: Sequence[int] | None = None) -> Tensor:
        """Append several tokens at once, by the parallel convolution.

        Args:
            v, g: content and gate of the new tokens, `[B, D, P]`, P >= 1.
            lengths: how many of them each row takes, 1 to P; the rest of a row is ignored.  Default: all.

        Returns:
            r at the new tokens, `[B, D, P]`; entries beyond the length of a row are zero.

        Raises:
            ValueError: wrong shapes, types or devices, lengths out of range, or more tokens than the capacity.
        """
        lengths = self._require(v, g, lengths)
        state, r = self._before_prompt(), torch.zeros_like(v)
        for start, count, rows in row_groups(self.lengths, lengths):
            both = torch.stack([v[rows, :, :count], g[rows, :, :count]])
            self._append(state, rows, start, both)
            if start:
                both = torch.stack(self._read(rows, start + count))
            r[rows, :, :count] = causal_conv_fft(both[0], both[1])[..., start:]
        self.state = state._replace(lengths=[n + c for n, c in zip(self.lengths, lengths, strict=True)])
        return r

    def step(self, v: Tensor, g: Tensor) -> Tensor:
        """Append one token to every row: `[B, D]` content and gate in, r of that token `[B, D]` out.

        Raises:
            ValueError: wrong shapes, types or devices, or a row that is full.
        """
        self._require_token(v, g)
        state, both, r = self._before_step(), torch.stack([v, g]), []
        for t, _, rows in row_groups(state.lengths, state.lengths):
            of_rows, state = self._step(state, rows, t, both[:, rows])
            r.append(of_rows)
        self.state = state._replace(lengths=[n + 1 for n in state.lengths])
        return torch.cat(r).to(v.dtype) if len(r) > 1 else r[0].to(v.dtype)

    def _require(self, v: Tensor, g: Tensor, lengths: Sequence[int] | None) -> list[int]:
        _, batch, channels, _ = self.streams.shape
        if v.shape != g.shape or v.ndim != 3 or v.shape[:2] != (batch, channels) or v.shape[2] < 1:
            raise ValueError(f"v and g have shapes {tuple(v.shape)} and {tuple(g.shape)}; "
                             f"this convolution takes [{batch}, {channels}, tokens], one shape for both")
        counts = [v.shape[2]] * batch if lengths is None else [int(n) for n in lengths]
        if len(counts) != batch or not all(1 <= c <= v.shape[2] for c in counts):
            raise ValueError(f"lengths={counts} for {batch} rows of {v.shape[2]} tokens; "
                             f"give {batch} numbers from 1 to {v.shape[2]}")
        self._require_fit(v, g, max(n + c for n, c in zip(self.lengths, counts, strict=True)))
        return counts

    def _require_token(self, v: Tensor, g: Tensor) -> None:
        if v.shape != self.streams.shape[1:3] or g.shape != v.shape:
            raise ValueError(f"v and g have shapes {tuple(v.shape)} and {tuple(g.shape)}; "
                             f"this convolution takes {list(self.streams.shape[1:3])} for both")
        self._require_fit(v, g, max(self.state.lengths) + 1)

    def _require_fit(self, v: Tensor, g: Tensor, tokens: int) -> None:
        if not (v.is_floating_point() and g.is_floating_point() and v.device == g.device == self.streams.device):
            raise ValueError(f"v and g have dtypes {v.dtype} and {g.dtype} and are on {v.device} and {g.device}; "
                             f"give floating-point streams on {self.streams.device}, where this convolution is")
        if tokens > self.capacity:
            raise ValueError(f"{tokens} tokens do not fit a cache for {self.capacity}; make the cache longer")

    def _before_prompt(self) -> _State:
        """Return the state, its tensors copied: `_append` writes into them."""
        return self.state

    _before_step = _before_prompt


class DotProductConvolution(OnlineConvolution):
    """Online causal convolution by one dot product per token: O(t) for token t.

    Args:
        batch, channels: rows B and channels D.
        capacity: most tokens per row.
        dtype: of the stored streams; sums are taken in at least float32.
        device: where the streams are stored.

    Raises:
        ValueError: a size below 1.

    Source: the sum of Caracal, Section 4.2, for one t.
    """

    def _append(self, state, rows, start, both):
        end = start + both.shape[-1]
        self.streams[0, rows, :, start:end] = both[0]
        # g is stored backwards, so that both factors of the dot product are read forwards
        self.streams[1, rows, :, self.capacity - end:self.capacity - start] = both[1].flip(-1)

    def _read(self, rows, end):
        return self.streams[0, rows, :, :end], self.streams[1, rows, :, self.capacity - end:].flip(-1)

    def _step(self, state, rows, t, both):
        self._append(state, rows, t, both.unsqueeze(-1))
        v = self.streams[0, rows, :, :t + 1].to(self.arithmetic)
        g = self.streams[1, rows, :, self.capacity - t - 1:].to(self.arithmetic)
        return (v * g).sum(-1), state


class RelaxedConvolution(OnlineConvolution):
    """Online causal convolution by relaxed multiplication: O(log^2 L) per token on average.

    Args:
        batch, channels, capacity, dtype, device: as `DotProductConvolution`.
        base: tokens per directly summed block, a power of two.

    A token that completes a large block pays for it: the cost is even only on average over 2^k tokens.

    Raises:
        ValueError: a size below 1, or a base that is no power of two.

    Source: relaxed multiplication (van der Hoeven), with both operands online.  Not in the paper.
    """

    def __init__(self, batch: int, channels: int, capacity: int, dtype: torch.dtype = torch.float32,
                 device: torch.device | str = "cpu", base: int = 32):
        super().__init__(batch, channels, capacity, dtype, device)
        if base < 1 or base & (base - 1):
            raise ValueError(f"base={base}; give a power of two")
        self.base = base
        # The first tokens of g and of v, backwards; kept time first, as all that a step reads and writes.
        self.prefixes = torch.zeros(base, 2, batch, channels, dtype=self.arithmetic, device=device)
        block, due = torch.zeros_like(self.prefixes), torch.zeros_like(self.prefixes[:, 0])
        self.state = _State(self.lengths, block, due, torch.zeros_like(self.streams[0], dtype=self.arithmetic))

    def _read(self, rows, end):
        return self.streams[0, rows, :, :end], self.streams[1, rows, :, :end]

    def _before_prompt(self):
        # Every row is about to be appended to, and what is pending is then computed anew.
        _, block, due, pending, _ = self.state
        pending = torch.zeros_like(pending) if any(self.lengths) else pending.zero_()
        return _State(self.lengths, block.clone(), due.clone(), pending)

    def _before_step(self):
        """Return the state, with nothing left to be written."""
        if not any(self.state.lengths):
            self.state.pending.zero_()
        for rows, first, values in self.state.unwritten:  # however often this is done, it is the same
            self.state.pending[rows, :, first:first + values.shape[-1]] = values
        return self.state._replace(unwritten=()) if self.state.unwritten else self.state

    def _append(self, state, rows, start, both):
        end = start + both.shape[-1]
        last = n = end - end % self.base
        self._store_block(state, rows, start - start % self.base, start)
        self.streams[:, rows, :, start:end] = both
        while n:
            state.pending[rows, :, n:n + (n & -n)] += self._added(rows, n)
            n &= n - 1
        due = state.pending[rows, :, last:last + self.base]
        state.due[:due.shape[-1], rows] = due.movedim(-1, 0)
        state.block[:end - last, :, rows] = self.streams[:, rows, :, last:end].movedim(-1, 0).to(self.arithmetic)
        prefix = self.streams[:, rows, :, :min(end, self.base)].to(self.arithmetic)
        self.prefixes[self.base - prefix.shape[-1]:, :, rows] = prefix.flip(0, -1).movedim(-1, 0)

    def _step(self, state, rows, t, both):
        i = t % self.base
        state.block[i, :, rows] = both
        if t < self.base:
            self.prefixes[self.base - 1 - t, :, rows] = both.flip(0)
        pairs = state.block[:i + 1, :, rows] * self.prefixes[self.base - 1 - i:, :, rows]
        # In the first block both products hold the same pairs, and nothing is due.
        r = pairs[:, 0].sum(0) if t < self.base else pairs.sum((0, 1)) + state.due[i, rows]
        if i < self.base - 1 or t + 1 == self.capacity:
            return r, state
        self._store_block(state, rows, t - i, t + 1)
        values = self._added(rows, t + 1)
        values += state.pending[rows, :, t + 1:t + 1 + values.shape[-1]]
        due, first = state.due.clone(), values[..., :self.base]
        due[:first.shape[-1], rows] = first.movedim(-1, 0)
        return r, state._replace(due=due, unwritten=(*state.unwritten, (rows, t + 1, values)))

    def _store_block(self, state: _State, rows: slice, start: int, end: int) -> None:
        """Copy the tokens of the current block, which are those from `start` to `end`, to the streams."""
        self.streams[:, rows, :, start:end] = state.block[:end - start, :, rows].movedim(0, -1).to(self.streams.dtype)

    def _added(self, rows: slice, n: int) -> Tensor:
        """Return what the last m of n tokens add to results n ... n + m - 1, m being the lowest bit of n."""
        m = n & -n
        end = max(n, min(n + m, self.capacity))
        added = torch.empty_like(self.streams[0, rows, :, :end - n], dtype=self.arithmetic)
        budget = BLOCK.get(self.streams.device.type)  # two streams of 2m numbers a channel, as in `spectral`
        channels = self.streams.shape[2] if budget is None else max(1, budget // (4 * m))
        for first in range(0, self.streams.shape[2], channels):
            some = slice(first, first + channels)
            new = torch.fft.rfft(self.streams[:, rows, some, n - m:n].to(self.arithmetic), n=2 * m)
            if n == m:
                product = new[0] * new[1]
            else:
                old = torch.fft.rfft(self.streams[:, rows, some, :2 * m].to(self.arithmetic))
                product = (new[0] * old[1]).addcmul_(new[1], old[0])
            added[:, some] = torch.fft.irfft(product, n=2 * m)[..., m:m + end - n]
        return added


def row_groups(lengths: Sequence[int], counts: Sequence[int]) -> Iterator[tuple[int, int, slice]]:
    """Group neighbouring rows of a batch that hold equally many tokens and take equally many more.

    Yields (tokens held, tokens taken, rows): a single group, of all rows, where no prompt differs in length.
    """
    end = 0
    for (held, taken), rows in itertools.groupby(zip(lengths, counts, strict=True)):
        start, end = end, end + len(list(rows))
        yield held, taken, slice(start, end)
