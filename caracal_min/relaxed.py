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
"""

import torch
from torch import Tensor

from .online import OnlineConvolution, State
from .spectral import BLOCK

__all__ = ["DotProductConvolution", "RelaxedConvolution"]


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
        self.state = State(self.lengths, block, due, torch.zeros_like(self.streams[0], dtype=self.arithmetic))

    def _read(self, rows, end):
        return self.streams[0, rows, :, :end], self.streams[1, rows, :, :end]

    def _before_prompt(self):
        # Every row is about to be appended to, and what is pending is then computed anew.
        _, block, due, pending, _ = self.state
        pending = torch.zeros_like(pending) if any(self.lengths) else pending.zero_()
        return State(self.lengths, block.clone(), due.clone(), pending)

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

    def _store_block(self, state: State, rows: slice, start: int, end: int) -> None:
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
