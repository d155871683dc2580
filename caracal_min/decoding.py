"""What the layers remember while decoding, so that a step gives what the parallel pass would::

    RelaxedConvolution      v and g of all tokens: O(log^2 L) operations per token and channel
    PartitionedConvolution  the same for a gate of K coefficients: fixed memory, texts of any length
    DotProductConvolution   its reference implementation by dot products, O(L)
    RollingConvolution      that of PartitionedConvolution, O(K)
    FourierCache            one of these, and the last inputs of the short convolution
    WindowCache             keys and values of the last `window` tokens

When token t arrives, r_t = sum over j <= t of v_j g_{t-j} is wanted.  Both v and g still grow, so
no spectrum can be computed once and for all.  Relaxed multiplication adds the product of a pair
(j, i) to the *future* result j + i as soon as v_j and g_i are known, in blocks::

    after n tokens, with m the lowest set bit of n and l = n - m, results n ... n + m - 1 receive
        v[0:m] * g[0:m]                        if l = 0
        v[l:n] * g[0:2m] + g[l:n] * v[0:2m]    otherwise
    by cyclic FFTs of 2m points, whose wrap-around falls on results that are not read.

Blocks shorter than `base` tokens are not worth an FFT: their pairs are summed directly.  A prompt
of P tokens leaves the blocks n = P, P & (P - 1), ...: the nodes of a Fenwick tree.

With a gate of K coefficients, r_t needs the last K of v and the first K of g: the "fixed-size
rolling buffer" of Caracal, Section 3.3.  The first K tokens are read as above.  From then on only v
is new, and time is cut into periods of K tokens::

    after n < K tokens of a period, its results n ... n + m - 1 receive    v[l:n] * g[0:2m]
    after all K, the results of the next period receive                    the tail of v * g

Rows of a batch may hold different numbers of tokens.  Neighbours with equally many go together.
"""

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fft import irfft, rfft

from .attention import sliding_window_attention
from .convolution import causal_conv_fft

__all__ = ["Cache", "DotProductConvolution", "FourierCache", "PartitionedConvolution",
           "RelaxedConvolution", "RollingConvolution", "WindowCache", "is_one_token"]

# Numbers in one block of FFTs on a CPU: spectra of a group of channels then stay in its cache.
CPU_BLOCK = 1 << 19


class _State:
    """Tensors whose first dimension is the row of the batch, lists by row, and other states."""

    lengths: list[int]
    """Tokens held by each row."""
    capacity: int | None
    """Most tokens per row; None: any number."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, filled or not."""
        parts = vars(self).values()
        return sum(x.nbytes for x in parts if isinstance(x, Tensor | _State))

    def reorder(self, rows: Sequence[int] | Tensor) -> None:
        """Let row i be what row rows[i] was, as beam search does; the number of rows may change."""
        rows = torch.as_tensor(rows).tolist()
        for name, value in vars(self).items():
            if isinstance(value, _State):
                value.reorder(rows)
            elif isinstance(value, Tensor):
                setattr(self, name, value[rows])
            elif isinstance(value, list):
                setattr(self, name, [value[i] for i in rows])

    def _append(self, tokens: int, lengths: Sequence[int] | None = None) -> list[tuple]:
        """Lengthen the rows.  Return runs of equal rows: slice, tokens held before, new tokens."""
        before = self.lengths
        added = lengths or [tokens] * len(before)
        pairs = list(zip(before, added, strict=True))
        after = list(map(sum, pairs))
        most = max(after)
        if self.capacity is not None and most > self.capacity:
            raise ValueError(f"{most} tokens do not fit a cache for {self.capacity}; "
                             "make the cache longer")
        self.lengths = after
        # Prompts of one length, the usual case, make a single run.
        runs = []
        start = 0
        for (held, new), run in itertools.groupby(pairs):
            end = start + len(list(run))
            runs.append((slice(start, end), held, new))
            start = end
        return runs


class DotProductConvolution(_State):
    """Online causal convolution by one dot product per token: O(t) operations for token t.

    This is the reference implementation.  It holds 2 L numbers per channel, v and g.

    Args:
        batch, channels: rows B and channels D.
        capacity: most tokens per row, L.
        dtype: of the streams to come; they are stored in at least float32.
        device: where they are stored.

    Source: the sum of Caracal, Section 4.2, for one t.
    """

    endless = False
    n_streams = 2
    base = 1

    def __init__(self, batch: int, channels: int, capacity: int,
                 dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"):
        self.lengths = [0] * batch
        self.capacity = None if self.endless else capacity
        self.slots = capacity
        # v and g, time last, in whole blocks.  Under a gate of K coefficients, v is a ring of K
        # slots: token t is in slot t % K, its place in the present period.
        size = capacity + -capacity % self.base
        dtype = torch.promote_types(dtype, torch.float32)
        shape = batch, self.n_streams, channels, size
        self.streams = torch.zeros(shape, dtype=dtype, device=device)

    def prefill(self, v: Tensor, g: Tensor, lengths: Sequence[int] | None = None) -> Tensor:
        """Append several tokens at once, by one parallel convolution.

        Args:
            v: content of the new tokens, `[B, D, P]`, P >= 1, floating.
            g: their gates, `[B, D, P]`; of a gate of K coefficients, those before token K.
            lengths: how many tokens each row takes, 1 to P; the rest is ignored.  None: all.

        Returns:
            r at the new tokens, `[B, D, P]`, in the dtype of v; zero beyond the length of a row.

        Raises:
            ValueError: more tokens than the capacity.
        """
        # Recompute over the stored and the new tokens: exact for chunks of any size.
        r = torch.zeros_like(v)
        for rows, held, new in self._append(v.shape[-1], lengths):
            content, gate = self._read(rows, held)
            content = torch.cat([content, v[rows, :, :new]], dim=-1)
            gate = torch.cat([gate, g[rows, :, :new]], dim=-1)
            gate = gate[..., :self.slots]
            results = causal_conv_fft(content, gate)
            r[rows, :, :new] = results[..., -new:]
            end = held + new
            if end > self.slots:
                # Later results need this period and the one before.  Zeros stand for its forgotten
                # tokens, which are more than K tokens old and so outside the kernel.
                needed = self.slots + end % self.slots
                missing = needed - content.shape[-1]
                content = F.pad(content, (missing, 0))
            for period in content.split(self.slots, dim=-1):
                self._load(rows, period, gate)
        return r

    def step(self, v: Tensor, g: Tensor | None = None) -> Tensor:
        """Append one token to every row.

        Args:
            v: its content, `[B, D]`, floating.
            g: its gate, `[B, D]`; None if every row has all coefficients of a gate of fixed length.

        Returns:
            r at this token, `[B, D]`, in the dtype of v.

        Raises:
            ValueError: a row is full.
        """
        r = []
        for rows, held, _ in self._append(1):
            gate = g[rows] if held < self.slots else None
            r.append(self._step(rows, held, v[rows], gate))
        return torch.cat(r).to(v.dtype)

    def _read(self, rows: slice, held: int) -> tuple[Tensor, Tensor]:
        """Return v and g, oldest token first; at most the last K of v and the first K of g."""
        stored = min(held, self.slots)
        v, g = self.streams[rows, :2, :, :stored].unbind(1)
        # Slot 0 of a ring that has been filled is not the oldest token.
        if held > self.slots:
            v = v.roll(-held, dims=-1)
        return v, g

    def _load(self, rows: slice, v: Tensor, g: Tensor) -> None:
        """Store the first tokens of a period, `[rows, D, *]`, and the gate."""
        self.streams[rows, 0, :, :v.shape[-1]] = v
        self.streams[rows, 1, :, :g.shape[-1]] = g

    def _step(self, rows: slice, held: int, v: Tensor, g: Tensor | None) -> Tensor:
        """Append a token, `[rows, D]`, and return its r; g is None if the gate is complete."""
        self.streams[rows, 0, :, held % self.slots] = v
        if g is not None:
            self.streams[rows, 1, :, held] = g
        v, g = self._read(rows, held + 1)
        return (v * g.flip(-1)).sum(-1)


class RollingConvolution(DotProductConvolution):
    """Online causal convolution with a gate of fixed length K by dot products: O(K) per token.

    It holds 2 K numbers per channel.  Args: as `PartitionedConvolution`.

    Source: the rolling buffer of Caracal, Section 3.3 and Appendix F.
    """

    endless = True


class RelaxedConvolution(DotProductConvolution):
    """Online causal convolution by relaxed multiplication: O(log^2 L) per token on average.

    The cost is amortised: a token that completes a large block pays for the block.  The state
    holds 3 L numbers per channel: v, g, and what earlier blocks have added to later results.

    Args:
        batch, channels, capacity, dtype, device: as `DotProductConvolution`.
        base: tokens per directly summed block, a power of two.

    Example:
        >>> v, g = torch.randn(2, 1, 8, 100)    # one row, 8 channels, 100 tokens
        >>> online = RelaxedConvolution(1, 8, capacity=100)
        >>> prompt = online.prefill(v[..., :60], g[..., :60])
        >>> rest = [online.step(v[..., t], g[..., t]) for t in range(60, 100)]
        >>> r = torch.cat([prompt, torch.stack(rest, dim=-1)], dim=-1)
        >>> torch.allclose(r, causal_conv_fft(v, g), atol=1e-4)
        True

    Source: relaxed multiplication (van der Hoeven), with both operands online.  Not in the paper.
    """

    # v, g, and what is due: the sums so far of the results of this period.
    n_streams = 3

    def __init__(self, batch: int, channels: int, capacity: int,
                 dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu",
                 base: int = 32):
        self.base = base
        super().__init__(batch, channels, capacity, dtype, device)
        # A step reads and writes these alone.  Channels are contiguous in them, whereas one token
        # of `streams` is scattered over as many pages of memory as there are channels.
        # The present block of `streams`:
        self.block = self.streams.new_zeros(batch, base, 3, channels)
        # g and v of the first block, backwards, to be multiplied with v and g of the present one:
        self.first = self.streams.new_zeros(batch, base, 2, channels)

    @property
    def due(self) -> Tensor:
        """What earlier blocks have added to the results of the present one, `[B, base, D]`."""
        return self.block[:, :, 2]

    def _read(self, rows, held):
        # The newest tokens are still in `block` alone.
        stored = self._stored_block(rows, held % self.slots)
        stored.copy_(self.block[rows])
        return super()._read(rows, held)

    def _load(self, rows, v, g):
        super()._load(rows, v, g)
        n = v.shape[-1]
        growing = g.shape[-1] < self.slots
        if growing:
            self.streams[rows, 2] = 0
        if n == self.slots:
            self._add_block(rows, n, growing)
        else:
            # Full blocks alone; the Fenwick tree's next node has one set bit less.
            end = n - n % self.base
            while end:
                self._add_block(rows, end, growing)
                end &= end - 1
        streams = self._stored_block(rows, 0)[:, :, :2]
        self.first[rows] = streams.flip(1, 2)
        self.block[rows] = self._stored_block(rows, n % self.slots)

    def _step(self, rows, held, v, g):
        place = held % self.slots
        i = place % self.base
        growing = g is not None
        token = self.block[rows, i]
        token[:, 0] = v
        # v meets the first gates.  While the kernel is incomplete, g meets the first contents, too;
        # in the first block both are the same products, so one is added.
        kinds = 1
        if growing:
            token[:, 1] = g
            if held < self.base:
                self.first[rows, -1 - held] = token[:, :2].flip(1)
            else:
                kinds = 2
        present = self.block[rows, :i + 1, :kinds]
        pairs = present * self.first[rows, -1 - i:, :kinds]
        r = pairs.sum((1, 2)) + token[:, 2]
        n = place + 1
        if n % self.base == 0 or n == self.slots:
            # The block is full: write it back, compute what it adds, and load the next one.
            self._stored_block(rows, place).copy_(self.block[rows])
            self._add_block(rows, n, growing)
            self.block[rows] = self._stored_block(rows, n % self.slots)
        return r

    def _stored_block(self, rows: slice, place: int) -> Tensor:
        """Return the block of `streams` around a place as a view, in the layout of `block`."""
        start = place - place % self.base
        block = self.streams[rows, ..., start:start + self.base]
        return block.permute(0, 3, 1, 2)

    def _add_block(self, rows: slice, n: int, growing: bool) -> None:
        """Add to later results what the last m of the first n tokens of a period contribute."""
        m, start = n & -n, n
        if n == self.slots:
            if not self.endless:
                return
            # The period is complete: results are counted from the beginning of the next one.
            m, start = n, 0
            self.streams[rows, 2] = 0
        # The first tokens of a growing gate meet the first contents in one product; see the head.
        points = 2 * m
        lags = m if growing and n == m else points
        channels = self.streams.shape[2]
        if self.streams.device.type == "cpu":
            channels = max(1, CPU_BLOCK // (2 * points))
        new = slice(n - m, n)
        for some in self.streams[rows].split(channels, dim=2):
            v, g, due = some.unbind(1)
            product = rfft(v[..., new], points) * rfft(g[..., :lags], points)
            if growing and n > m:
                early = rfft(v[..., :points], points)
                product.addcmul_(rfft(g[..., new], points), early)
            due = due[..., start:start + m]
            end = m + due.shape[-1]
            due += irfft(product, points)[..., m:end]


class PartitionedConvolution(RelaxedConvolution):
    """Online causal convolution with a gate of fixed length K: O(log^2 K) per token on average.

    It takes any number of tokens, and holds 3 K numbers per channel.  The last token of a period
    of K pays for a block of K.

    Args:
        batch, channels: rows B and channels D.
        capacity: the length K of the gate; gates of later tokens are ignored.
        dtype, device, base: as `RelaxedConvolution`.

    Source: partitioned convolution (Gardner 1995), by the blocks of relaxed multiplication.  Not in
    the paper.
    """

    endless = True


class FourierCache(_State):
    """State of a Multi-Head Fourier layer; gradients do not flow through it.

    For each token of the capacity, relaxed multiplication holds 3 D numbers, one and a half times
    as many as the keys and values of full attention.  The dot product holds 2 D.

    Args:
        convolution: empty online convolution, which stores v and g.
        conv_state: inputs of the short convolution before the first token, `[B, taps - 1, D]`, all
            zero; None for a layer without it.
    """

    def __init__(self, convolution: DotProductConvolution, conv_state: Tensor | None):
        self.convolution = convolution
        self.conv_state = conv_state

    @property
    def lengths(self) -> list[int]:
        """Tokens held by each row."""
        return self.convolution.lengths

    @property
    def capacity(self) -> int | None:
        """Most tokens per row; None: any number."""
        return self.convolution.capacity

    @torch.no_grad()
    def mix(self, v: Tensor, g: Tensor, lengths: Sequence[int] | None) -> Tensor:
        """Append L new tokens and return r there, `[B, D, L]`.

        Args:
            v, g: streams of the new tokens, `[B, D, L]`; g may end at gate_length.
            lengths: how many of them each row takes; None: all.
        """
        if is_one_token(v.mT, lengths):
            # No gate at all where the layer's is complete.
            r = self.convolution.step(v[..., 0], *g.unbind(-1))
            return r.unsqueeze(-1)
        return self.convolution.prefill(v, g, lengths)

    @torch.no_grad()
    def advance_conv_state(self, x: Tensor, lengths: Sequence[int] | None) -> None:
        """Keep the last inputs of the short convolution; x holds the new ones, `[B, L, D]`."""
        if self.conv_state is None:
            return
        taps = self.conv_state.shape[1]
        seen = torch.cat([self.conv_state, x], dim=1)
        ends = lengths or [x.shape[1]] * len(x)
        last = [row[end:end + taps] for row, end in zip(seen, ends, strict=True)]
        self.conv_state = torch.stack(last)


class WindowCache(_State):
    """State of an attention layer: keys and values of the last tokens, the newest in the last slot.

    Gradients do not flow through it.

    Args:
        k, v: `[B, H, slots, d]`, all zero.  There are as many slots as the window has tokens, or as
            a text will have where that is fewer.
        window: keys that a query sees, its own token's included.
    """

    def __init__(self, k: Tensor, v: Tensor, window: int):
        self.k = k
        self.v = v
        self.window = window
        self.slots = k.shape[2]
        self.lengths = [0] * len(k)
        self.capacity = self.slots if self.slots < window else None

    @torch.no_grad()
    def step(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Append one token, `[B, H, 1, d]` each, and return its attention output, `[B, H, 1, d]`.

        Raises:
            ValueError: a cache smaller than the window is full.
        """
        self._append(1)
        self.k = torch.cat([self.k[:, :, 1:], k], dim=2)
        self.v = torch.cat([self.v[:, :, 1:], v], dim=2)
        mask = None
        if min(self.lengths) < self.slots:
            # Hide the slots that are still empty.
            age = torch.arange(self.slots, 0, -1, device=k.device)
            lengths = torch.tensor(self.lengths, device=k.device)
            mask = age <= lengths.view(-1, 1, 1, 1)
        return F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask)

    @torch.no_grad()
    def prefill(self, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int] | None,
                backend: str) -> Tensor:
        """Append L tokens, `[B, H, L, d]` each, and return their attention outputs.

        Args:
            q, k, v: queries, keys and values of the new tokens.
            lengths: how many of them each row takes, 1 to L; outputs beyond are 0.  None: all.
            backend: as in `attention.sliding_window_attention`.

        Returns:
            `[B, H, L, d]`.

        Raises:
            ValueError: more tokens than fit a cache smaller than the window.
        """
        y = torch.zeros_like(q)
        for rows, held, new in self._append(q.shape[2], lengths):
            old = min(held, self.slots)
            seen = []
            for cache, added in ((self.k, k), (self.v, v)):
                # Under autocast, new keys have another dtype than the cache.
                past = cache[rows].to(added.dtype)
                past = torch.cat([past, added[rows, :, :new]], dim=2)
                cache[rows] = past[:, :, -self.slots:]
                seen.append(past[:, :, self.slots - old:])
            # Attention takes as many queries as keys; those of old tokens are dropped afterwards.
            queries = q[rows, :, :new]
            queries = F.pad(queries, (0, 0, old, 0))
            found = sliding_window_attention(queries, *seen, self.window, backend)
            y[rows, :, :new] = found[:, :, old:]
        return y


Cache = FourierCache | WindowCache


def is_one_token(x: Tensor, lengths: Sequence[int] | None) -> bool:
    """Whether x, `[B, L, ...]`, brings one token to each row: then a step is enough."""
    return x.shape[1] == 1 and set(lengths or [1]) == {1}
