"""Causal convolution a token at a time, with a gate of K coefficients: a state of fixed size, however long the text.

With g_i = 0 for i >= K, r_t = sum of g_i v_{t-i} over i < K needs the last K of v and the first K of g.  That is the
"fixed-size rolling buffer" of Caracal, Section 3.3 and Appendix F; without the cut all of v and g would be needed.

The first K tokens bring both v and g: relaxed multiplication.  From then on the gate is a fixed filter and v alone is
new.  Time is cut into periods of K tokens, each with two sources of results::

    after n < K tokens of a period, with m the lowest bit of n, its results n ... n + m - 1 receive
        v[n-m:n] * g[0:2m]
    after all K, the results of the next period receive what of v * g lies beyond them

so each pair is added once, before its result is read, in O(log^2 K) operations per token and channel on average.
Blocks shorter than `base` are summed directly, as in `relaxed`.  Any token may begin a period: one begins after each
prompt, so that rows of a batch whose prompts had different lengths go on in step.

`RollingConvolution` is the slow twin: a dot product of K terms for every token.

As `online` says, a step or a prompt writes only where the state before it does not look.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .convolution import causal_conv_fft
from .online import OnlineConvolution, row_groups
from .relaxed import RelaxedConvolution
from .spectral import blocks, fast_length

__all__ = ["PartitionedConvolution", "RollingConvolution"]


class _State(NamedTuple):
    """As in `online`, K being the capacity and tokens counted within the period of their row."""

    lengths: list[int]
    places: list[int]
    """How many of the tokens of each row belong to the present period, fewer than K."""
    block: Tensor
    due: Tensor
    pending: Tensor
    unwritten: tuple[tuple[slice, int, Tensor], ...] = ()
    contents: tuple[tuple[slice, Tensor], ...] = ()
    """New contents of v after a prompt, as (rows, values): whatever comes next writes them before anything else."""


class PartitionedConvolution(RelaxedConvolution):
    """Online causal convolution with a gate of fixed length: O(log^2 K) per token on average, 3 K numbers a channel.

    Args:
        batch, channels: rows B and channels D.
        gate_length: K; gates from token K on count as zero.
        dtype, device, base: as `RelaxedConvolution`.

    The last token of a period pays for a block of K: the cost is even only on average over K tokens.

    Raises:
        ValueError: a size below 1, or a base that is no power of two.

    Source: partitioned convolution (Gardner 1995), by the blocks of relaxed multiplication (van der Hoeven).  Not in
    the paper.
    """

    endless = True

    def __init__(self, batch: int, channels: int, gate_length: int, dtype: torch.dtype = torch.float32,
                 device: torch.device | str = "cpu", base: int = 32):
        super().__init__(batch, channels, gate_length, dtype, device, base)
        _, block, due, pending, _ = self.state
        self.state = _State([0] * batch, [0] * batch, block, due, pending)

    def prefill(self, v: Tensor, g: Tensor, lengths: Sequence[int] | None = None) -> Tensor:
        """Append several tokens at once, by the parallel convolution.

        Args:
            v: content of the new tokens, `[B, D, P]`, P >= 1.
            g: their gates, `[B, D, G]`: those of a row's tokens before token K are needed.
            lengths: how many tokens each row takes, 1 to P; the rest of a row is ignored.  Default: all.

        Returns:
            r at the new tokens, `[B, D, P]`; entries beyond the length of a row are zero.

        Raises:
            ValueError: wrong shapes, types or devices, lengths out of range, or too few gates.
        """
        counts = _require_prompt(self, v, g, lengths)
        state, r, places = self._before_prompt(), torch.zeros_like(v), []
        for (held, place), count, rows in row_groups(list(zip(self.lengths, state.places, strict=True)), counts):
            new, gate = v[rows, :, :count], g[rows, :, :count]
            old, old_gate = self._seen(state, rows, held, place)
            gate = torch.cat([old_gate, gate], dim=-1)[..., :self.capacity]
            content = torch.cat([old, new], dim=-1)
            r[rows, :, :count] = causal_conv_fft(content, gate)[..., -count:]
            if held + count < self.capacity:
                self._append(state, rows, held, torch.stack([new, gate[..., held:]]))
            else:
                state = self._begin(state, rows, content[..., -self.capacity:], gate)
            places += [held + count if held + count < self.capacity else 0] * (rows.stop - rows.start)
        lengths = [n + c for n, c in zip(self.lengths, counts, strict=True)]
        self.state = state._replace(lengths=lengths, places=places)
        return r

    def step(self, v: Tensor, g: Tensor | None = None) -> Tensor:
        """Append one token to every row: `[B, D]` content and gate in, r of that token `[B, D]` out.

        The gate may be left out where every row holds at least K tokens.

        Raises:
            ValueError: wrong shapes, types or devices, or no gate where one is needed.
        """
        growing = [n < self.capacity for n in self.state.lengths]
        self._require_token(v, _gate_or(v, g, any(growing), self.capacity))
        state, r = self._before_step(), []
        for (place, grows), _, rows in row_groups(list(zip(state.places, growing, strict=True)), growing):
            if grows:
                of_rows, state = self._step(state, rows, place, torch.stack([v[rows], g[rows]]))
                if place + 1 == self.capacity:
                    self._store_block(state, rows, place - place % self.base, place + 1)
                    state = self._next_block(state, rows, place + 1)
            else:
                of_rows, state = self._filter_step(state, rows, place, v[rows])
            r.append(of_rows)
        self.state = state._replace(lengths=[n + 1 for n in state.lengths],
                                    places=[(p + 1) % self.capacity for p in state.places])
        return torch.cat(r).to(v.dtype) if len(r) > 1 else r[0].to(v.dtype)

    def _before_prompt(self):
        _, _, block, due, pending = self._before_step()[:5]
        return self.state._replace(block=block.clone(), due=due.clone(), pending=torch.zeros_like(pending),
                                   unwritten=(), contents=())

    def _before_step(self):
        for rows, content in self.state.contents:
            self.streams[0, rows] = content
        state = super()._before_step()
        return state._replace(contents=()) if state.contents else state

    def _seen(self, state: _State, rows: slice, held: int, place: int) -> tuple[Tensor, Tensor]:
        """Return what new tokens meet: all of v so far or its last K - 1 tokens, and the gates; `[rows, D, *]` each."""
        start = place - place % self.base
        if held < self.capacity:
            self._store_block(state, rows, start, place)
            return self.streams[0, rows, :, :held], self.streams[1, rows, :, :held]
        self._store_content(state, rows, start, place)
        v, g = self.streams[:, rows]
        return v.roll(-place, -1)[..., 1:], g

    def _begin(self, state: _State, rows: slice, content: Tensor, gate: Tensor) -> _State:
        """Return the state in which a period begins after some content, `[rows, D, K]`, under all of the gate."""
        self.streams[1, rows] = gate
        prefix = gate[..., :self.base].to(self.arithmetic)
        self.prefixes[self.base - prefix.shape[-1]:, 0, rows] = prefix.flip(-1).movedim(-1, 0)
        state.pending[rows] = self._beyond(content, gate)
        due = state.pending[rows, :, :self.base]
        state.due[:due.shape[-1], rows] = due.movedim(-1, 0)
        return state._replace(contents=(*state.contents, (rows, content)))

    def _filter_step(self, state: _State, rows: slice, place: int, v: Tensor) -> tuple[Tensor, _State]:
        """Take a token under the whole gate, `[rows, D]`; return its r, and the state after it."""
        i = place % self.base
        state.block[i, 0, rows] = v
        pairs = state.block[:i + 1, 0, rows] * self.prefixes[self.base - 1 - i:, 0, rows]
        r = pairs.sum(0) + state.due[i, rows]
        if i < self.base - 1 and place + 1 < self.capacity:
            return r, state
        self._store_content(state, rows, place - i, place + 1)
        return r, self._next_block(state, rows, place + 1)

    def _store_content(self, state: _State, rows: slice, start: int, end: int) -> None:
        """Copy v of the current block, whose places are those from `start` to `end`, to its stream."""
        self.streams[0, rows, :, start:end] = state.block[:end - start, 0, rows].movedim(0, -1).to(self.streams.dtype)

    def _next_block(self, state: _State, rows: slice, n: int) -> _State:
        """Return the state in which a block begins after n tokens of a period; after all K of them, a period."""
        v, g = self.streams[:, rows]
        if n == self.capacity:
            first, values = 0, self._beyond(v, g)
        else:
            first, m = n, n & -n
            count = min(m, self.capacity - n)
            values = self._product(v[..., n - m:n], g[..., :2 * m], 2 * m, m, count)
            values += state.pending[rows, :, n:n + count]
        due, nearest = state.due.clone(), values[..., :self.base]
        due[:nearest.shape[-1], rows] = nearest.movedim(-1, 0)
        return state._replace(due=due, unwritten=(*state.unwritten, (rows, first, values)))

    def _beyond(self, v: Tensor, g: Tensor) -> Tensor:
        """Return what K tokens add to the results of the next K."""
        return self._product(v, g, fast_length(2 * self.capacity), self.capacity, self.capacity)

    def _product(self, v: Tensor, g: Tensor, points: int, first: int, count: int) -> Tensor:
        """Return some coefficients of the product modulo z^points - 1 of v and g, `[rows, D, *]`."""
        found = torch.empty(*v.shape[:2], count, dtype=self.arithmetic, device=v.device)
        for v_, g_, found_ in blocks(v, g, found, points=2 * points):
            spectrum = torch.fft.rfft(v_.to(self.arithmetic), n=points)
            spectrum *= torch.fft.rfft(g_.to(self.arithmetic), n=points)
            found_.copy_(torch.fft.irfft(spectrum, n=points)[..., first:first + count])
        return found


class _Rolled(NamedTuple):
    lengths: list[int]
    v: Tensor
    """The last K tokens, `[B, D, K]`, the newest one last; zeros before the first token."""
    g: Tensor
    """The gates backwards, so that both factors of the dot product are read forwards; zeros where none is yet."""


class RollingConvolution(OnlineConvolution):
    """Online causal convolution with a gate of fixed length by one dot product per token: O(K), 2 K numbers a channel.

    Args:
        batch, channels, gate_length, dtype, device: as `PartitionedConvolution`; sums are taken in at least float32.

    `prefill` and `step` are those of `PartitionedConvolution`.

    Raises:
        ValueError: a size below 1.

    Source: the rolling buffer of Caracal, Section 3.3 and Appendix F.
    """

    endless = True

    def __init__(self, batch: int, channels: int, gate_length: int, dtype: torch.dtype = torch.float32,
                 device: torch.device | str = "cpu"):
        super().__init__(batch, channels, gate_length, dtype, device)
        v, g = self.streams
        self.streams = v.new_empty(2, batch, channels, 0)  # all is in the state, which a step replaces
        self.state = _Rolled([0] * batch, v.clone(), g.clone())

    def prefill(self, v: Tensor, g: Tensor, lengths: Sequence[int] | None = None) -> Tensor:
        """Append several tokens at once.  Arguments, result and errors as `PartitionedConvolution.prefill`."""
        counts = _require_prompt(self, v, g, lengths)
        kept, gates, r = torch.empty_like(self.state.v), self.state.g.clone(), torch.zeros_like(v)
        for held, count, rows in row_groups(self.lengths, counts):
            end = max(0, self.capacity - held)
            new = g[rows, :, :min(count, end)]
            gates[rows, :, end - new.shape[-1]:end] = new.flip(-1)
            content = torch.cat([self.state.v[rows], v[rows, :, :count]], dim=-1)
            r[rows, :, :count] = causal_conv_fft(content, gates[rows].flip(-1))[..., -count:]
            kept[rows] = content[..., -self.capacity:]
        self.state = _Rolled([n + c for n, c in zip(self.lengths, counts, strict=True)], kept, gates)
        return r

    def step(self, v: Tensor, g: Tensor | None = None) -> Tensor:
        """Append one token to every row.  Arguments, result and errors as `PartitionedConvolution.step`."""
        self._require_token(v, _gate_or(v, g, min(self.lengths) < self.capacity, self.capacity))
        lengths, kept, gates = self.state
        if min(lengths) < self.capacity:
            gates = gates.clone()
            for held, _, rows in row_groups(lengths, lengths):
                if held < self.capacity:
                    gates[rows, :, self.capacity - 1 - held] = g[rows]
        kept = torch.cat([kept[..., 1:], v.unsqueeze(-1).to(kept.dtype)], dim=-1)
        r = (kept.to(self.arithmetic) * gates.to(self.arithmetic)).sum(-1)
        self.state = _Rolled([n + 1 for n in lengths], kept, gates)
        return r.to(v.dtype)


def _gate_or(v: Tensor, g: Tensor | None, needed: bool, gate_length: int) -> Tensor:
    """Return the gate of a token; where none is given and none is needed, what passes for one."""
    if g is None and needed:
        raise ValueError(f"no gate was given; every token before token {gate_length} of a row needs one")
    return v if g is None else g


def _require_prompt(online: OnlineConvolution, v: Tensor, g: Tensor, lengths: Sequence[int] | None) -> list[int]:
    """Check a prompt, which may have fewer gates than tokens; return how many tokens each row takes."""
    counts = online._require(v, v, lengths)
    online._require_fit(v, g, 0)
    needed = max(min(c, online.capacity - n) for n, c in zip(online.lengths, counts, strict=True))
    if g.ndim != 3 or g.shape[:2] != v.shape[:2] or g.shape[2] < needed:
        raise ValueError(f"v and g have shapes {tuple(v.shape)} and {tuple(g.shape)}; "
                         f"give at least {max(0, needed)} gates, or as many as there are tokens")
    return counts
