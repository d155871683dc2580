"""The state of each layer while decoding, so that a step gives what the parallel pass would::

    RelaxedConvolution      v and g of all tokens: O(log^2 L) operations per token and channel
    PartitionedConvolution  the same under a cut gate: fixed memory, texts of any length, O(log^2 K)
    DotProductConvolution   reference implementation of RelaxedConvolution: O(L)
    RollingConvolution      reference implementation of PartitionedConvolution: O(K)
    FourierCache            one of these four, and the last inputs of the short convolution
    WindowCache             keys and values of the last `window` tokens

K, the `period`, is the number of leading tokens whose gates count: the model's `gate_length` if its
gate is cut, else the capacity L of the cache.

Token t needs r_t = sum over j <= t of v_j g_{t-j}.  Both v and g still grow, so no spectrum can be
computed once and for all.  Relaxed multiplication adds the product of a pair (j, i) to the *future*
result j + i as soon as v_j and g_i are known, in blocks::

    after n tokens, with m the lowest set bit of n and l = n - m, results n ... n + m - 1 receive
        v[0:m] * g[0:m]                        if l = 0
        v[l:n] * g[0:2m] + g[l:n] * v[0:2m]    otherwise
    by cyclic FFTs of 2m points, whose wrap-around falls on results that are not read.

Blocks shorter than `base` tokens are not worth an FFT: their pairs are summed directly.  A prompt
of P tokens adds the blocks n = P, P & (P - 1), ...: the nodes of a Fenwick tree.

Under a cut gate, r_t needs the last K of v and the first K of g: the "fixed-size rolling buffer" of
Caracal, Section 3.3.  The first K tokens are handled as above.  After them only v is new, and time
is cut into periods of K tokens::

    after n < K tokens of a period, its results n ... n + m - 1 receive    v[l:n] * g[0:2m]
    after all K, the results of the next period receive                    the tail of v * g

Rows of a batch may hold different numbers of tokens; neighbours that hold equally many are computed
together.  A cache's `held` counts the tokens of each row; the argument `lengths`, the new ones.
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

# Numbers in the spectra of a group of channels, for each row: on a CPU they stay in its cache.
CPU_BLOCK = 1 << 19


class _State:
    """Decoding state: every attribute that is a tensor or list has an entry for each batch row."""

    held: list[int]
    """Tokens held by each row."""
    capacity: int | None
    """Most tokens per row; None: any number."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, filled or not."""
        attributes = vars(self).values()
        return sum(x.nbytes for x in attributes if isinstance(x, Tensor | _State))

    def reorder(self, rows: Sequence[int] | Tensor) -> None:
        """Replace row i by row rows[i], as beam search does; the number of rows may change."""
        rows = torch.as_tensor(rows).tolist()
        for name, value in vars(self).items():
            if isinstance(value, _State):
                value.reorder(rows)
            elif isinstance(value, Tensor):
                setattr(self, name, value[rows])
            elif isinstance(value, list):
                setattr(self, name, [value[i] for i in rows])

    def _advance(self, tokens: int, lengths: Sequence[int] | None = None) -> list[tuple]:
        """Count the new tokens.  Return groups of neighbours: (rows, held before, new)."""
        pairs = list(zip(self.held, lengths or [tokens] * len(self.held), strict=True))
        totals = list(map(sum, pairs))
        longest = max(totals)
        if self.capacity is not None and longest > self.capacity:
            raise ValueError(f"{longest} tokens do not fit a cache for {self.capacity}; "
                             "make the cache longer")
        self.held = totals
        # Prompts of one length, the usual case, make a single group.
        groups = []
        start = 0
        for (held, new), equal in itertools.groupby(pairs):
            end = start + len(list(equal))
            if new:  # nothing changes for rows of padding alone
                groups.append((slice(start, end), held, new))
            start = end
        return groups


class DotProductConvolution(_State):
    """Online causal convolution by one dot product per token: O(t) operations for token t.

    This is the reference implementation.  It holds 2 L numbers per channel, v and g.

    Args:
        batch, channels: rows B and channels D.
        period: K: the gate length if the gate is cut, else the capacity L, most tokens per row.
        dtype: of v and g to come; they are stored in at least float32.
        device: where v and g are stored.

    Source: the sum of Caracal, Section 4.2, for one t.
    """

    gate_is_cut = False
    n_streams = 2  # v and g
    base = 1

    def __init__(self, batch: int, channels: int, period: int,
                 dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"):
        self.held = [0] * batch
        self.capacity = None if self.gate_is_cut else period
        self.period = period
        # Time is last, in whole blocks.  Under a cut gate v is a ring of K slots: token t is in
        # slot t % K, and slot 0 begins each period.
        slots = period + -period % self.base
        dtype = torch.promote_types(dtype, torch.float32)
        shape = batch, self.n_streams, channels, slots
        # [B, n_streams, D, slots]: v, g and, in subclasses, unfinished results.
        self.stored = torch.zeros(shape, dtype=dtype, device=device)

    def prefill(self, v: Tensor, g: Tensor, lengths: Sequence[int] | None = None) -> Tensor:
        """Append several tokens at once, by one parallel convolution.

        Args:
            v: content of the new tokens, `[B, D, P]`, P >= 1, floating.
            g: their gates, `[B, D, P]`; under a cut gate only those before token K.
            lengths: how many tokens each row takes, 0 to P; the rest is ignored.  None: all.

        Returns:
            r at the new tokens, `[B, D, P]`, in the dtype of v; zero beyond the length of a row.

        Raises:
            ValueError: more tokens than the capacity.
        """
        # Recompute over the stored and the new tokens: exact for chunks of any size.
        # Shared by all four classes; only a cut gate has more than one period.
        r = torch.zeros_like(v)
        for rows, held, new in self._advance(v.shape[-1], lengths):
            self._flush(rows, held)
            old_v, old_g = self._read_streams(rows, held)
            all_v = torch.cat([old_v, v[rows, :, :new]], dim=-1)
            all_g = torch.cat([old_g, g[rows, :, :new]], dim=-1)
            all_g = all_g[..., :self.period]
            results = causal_conv_fft(all_v, all_g)
            r[rows, :, :new] = results[..., -new:]
            total = held + new
            if total > self.period:
                # Later results need all of this period and the one before.  Zeros replace what is
                # no longer stored of that one: no gate reaches so far back.
                needed = self.period + total % self.period
                missing = needed - all_v.shape[-1]
                # missing < 0 crops instead: older periods are not needed.
                all_v = F.pad(all_v, (missing, 0))
            # In order: a whole period leaves its tail in the results of the next.
            for part in all_v.split(self.period, dim=-1):
                self._rebuild(rows, part, all_g)
        return r

    def step(self, v: Tensor, g: Tensor | None = None) -> Tensor:
        """Append one token to every row.

        Args:
            v: its content, `[B, D]`, floating.
            g: its gate, `[B, D]`; None if every row holds all K tokens whose gates count.

        Returns:
            r at this token, `[B, D]`, in the dtype of v.

        Raises:
            ValueError: a row is full.
        """
        results = []
        for rows, held, _ in self._advance(1):
            gate = g[rows] if held < self.period else None
            results.append(self._step_rows(rows, held, v[rows], gate))
        return torch.cat(results).to(v.dtype)

    def _flush(self, rows: slice, held: int) -> None:
        """Write to `stored` what a subclass keeps elsewhere."""

    def _read_streams(self, rows: slice, held: int) -> tuple[Tensor, Tensor]:
        """Return v and g, oldest token first; at most the last K of v and the first K of g."""
        filled = min(held, self.period)
        v, g = self.stored[rows, :2, :, :filled].unbind(1)
        # After the first period, slot 0 does not hold the oldest token.
        if held > self.period:
            v = v.roll(-held, dims=-1)
        return v, g

    def _rebuild(self, rows: slice, v: Tensor, g: Tensor) -> None:
        """Set the state to that after n tokens of a period: v, `[rows, D, n]`, and g so far."""
        self.stored[rows, 0, :, :v.shape[-1]] = v
        self.stored[rows, 1, :, :g.shape[-1]] = g

    def _step_rows(self, rows: slice, held: int, v: Tensor, g: Tensor | None) -> Tensor:
        """Append a token, `[rows, D]`, and return its r; g is None after the first K tokens."""
        self.stored[rows, 0, :, held % self.period] = v
        if g is not None:
            self.stored[rows, 1, :, held] = g
        v, g = self._read_streams(rows, held + 1)
        return (v * g.flip(-1)).sum(-1)


class RollingConvolution(DotProductConvolution):
    """Online causal convolution under a cut gate by dot products: O(K) operations per token.

    It holds 2 K numbers per channel.  Args: as `PartitionedConvolution`.

    Source: the rolling buffer of Caracal, Section 3.3 and Appendix F.
    """

    gate_is_cut = True


class RelaxedConvolution(DotProductConvolution):
    """Online causal convolution by relaxed multiplication: O(log^2 L) per token on average.

    The cost is amortised: a token that completes a large block pays for the block.  The state
    holds 3 L numbers per channel: v, g, and what earlier blocks have added to later results.

    Args:
        batch, channels, period, dtype, device: as `DotProductConvolution`.
        base: tokens per directly summed block, a power of two.

    Example:
        >>> v, g = torch.randn(2, 1, 8, 100)    # one row, 8 channels, 100 tokens
        >>> online = RelaxedConvolution(1, 8, period=100)
        >>> prompt = online.prefill(v[..., :60], g[..., :60])
        >>> rest = [online.step(v[..., t], g[..., t]) for t in range(60, 100)]
        >>> r = torch.cat([prompt, torch.stack(rest, dim=-1)], dim=-1)
        >>> torch.allclose(r, causal_conv_fft(v, g), atol=1e-4)
        True

    Source: relaxed multiplication (van der Hoeven), with both operands online.  Not in the paper.
    """

    n_streams = 3  # v, g, and the unfinished results of this period

    def __init__(self, batch: int, channels: int, period: int,
                 dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu",
                 base: int = 32):
        self.base = base
        super().__init__(batch, channels, period, dtype, device)
        # A step reads and writes these copies alone.  Their channels are contiguous, whereas one
        # token of `stored` is scattered over as many pages of memory as there are channels.
        # The block of the next token:
        self.present = self.stored.new_zeros(batch, base, 3, channels)
        # g and v of the first block, reversed in time, to be multiplied by v and g of the present:
        self.first_reversed = self.stored.new_zeros(batch, base, 2, channels)

    @property
    def unfinished(self) -> Tensor:
        """Sums of earlier blocks for the results of the present one, `[B, base, D]`."""
        return self.present[:, :, 2]

    def _flush(self, rows, held):
        block = self._stored_block(rows, held % self.period)
        block.copy_(self.present[rows])

    def _rebuild(self, rows, v, g):
        super()._rebuild(rows, v, g)
        n = v.shape[-1]
        # False at n = K already, where _add_block sees zeros beyond g_{K-1} either way.
        gate_grows = g.shape[-1] < self.period
        # No earlier period has added anything to the results of the first one.
        if gate_grows:
            self.stored[rows, 2] = 0
        if n == self.period:
            self._add_block(rows, n, gate_grows)
        else:
            # Full blocks alone; the next node of the Fenwick tree has one set bit less.
            end = n - n % self.base
            while end:
                self._add_block(rows, end, gate_grows)
                end &= end - 1
        first = self._stored_block(rows, 0)[:, :, :2]
        self.first_reversed[rows] = first.flip(1, 2)
        self.present[rows] = self._stored_block(rows, n % self.period)

    def _step_rows(self, rows, held, v, g):
        slot = held % self.period
        i = slot % self.base
        gate_grows = g is not None
        token = self.present[rows, i]
        token[:, 0] = v
        # Each v of the present block meets a gate of the first one.  While the gate grows, each g
        # also meets a v of the first block; inside that block both are the same products.
        n_products = 1  # v x first g
        if gate_grows:
            token[:, 1] = g
            if held < self.base:
                self.first_reversed[rows, -1 - held] = token[:, :2].flip(1)
            else:
                n_products = 2  # also g x first v
        present = self.present[rows, :i + 1, :n_products]
        pairs = present * self.first_reversed[rows, -1 - i:, :n_products]
        r = pairs.sum((1, 2)) + token[:, 2]
        n = slot + 1
        if n % self.base == 0 or n == self.period:
            # The block is full: write it back, compute what it adds, and load the next one.
            self._flush(rows, held)
            self._add_block(rows, n, gate_grows)
            self.present[rows] = self._stored_block(rows, n % self.period)
        return r

    def _stored_block(self, rows: slice, slot: int) -> Tensor:
        """Return a view of the block of `stored` that has a slot, in the layout of `present`."""
        start = slot - slot % self.base
        block = self.stored[rows, ..., start:start + self.base]
        return block.permute(0, 3, 1, 2)

    def _add_block(self, rows: slice, n: int, gate_grows: bool) -> None:
        """Add to later results what n tokens of a period allow (see the head of this module)."""
        m = n & -n  # the lowest set bit
        start = n
        if n == self.period:
            if not self.gate_is_cut:
                return  # the cache is full: no result is to come
            # The whole period is one block, and its results begin the next period.
            m = n
            start = 0
            self.stored[rows, 2] = 0
        points = 2 * m
        # With n = m both products are the same, that of the first m gates.
        gate_count = m if gate_grows and n == m else points
        channels = self.stored.shape[2]
        if self.stored.device.type == "cpu":
            channels = max(1, CPU_BLOCK // (2 * points))
        new = slice(n - m, n)
        for group in self.stored[rows].split(channels, dim=2):
            v, g, results = group.unbind(1)
            product = rfft(v[..., new], points) * rfft(g[..., :gate_count], points)
            if gate_grows and n > m:
                first_v = rfft(v[..., :points], points)
                product.addcmul_(rfft(g[..., new], points), first_v)
            # The period may end before all m results.
            results = results[..., start:start + m]
            end = m + results.shape[-1]
            sums = irfft(product, points)
            results += sums[..., m:end]  # a view: this adds to self.stored


class PartitionedConvolution(RelaxedConvolution):
    """Online causal convolution under a cut gate: O(log^2 K) per token on average.

    It takes any number of tokens, and holds 3 K numbers per channel.  The last token of a period
    of K pays for a block of K.

    Args:
        batch, channels: rows B and channels D.
        period: the gate length K; gates of later tokens are ignored.
        dtype, device, base: as `RelaxedConvolution`.

    Source: partitioned convolution (Gardner 1995), by the blocks of relaxed multiplication.  Not in
    the paper.
    """

    gate_is_cut = True


class FourierCache(_State):
    """State of a Multi-Head Fourier layer; gradients do not flow through it.

    For each token of the capacity, relaxed multiplication holds 3 D numbers, one and a half times
    as many as the keys and values of full attention.  The dot product holds 2 D.

    Args:
        convolution: empty online convolution, which stores v and g.
        conv_state: inputs of the short convolution before the first token, all zero,
            `[B, kernel_size - 1, D]`; None for a layer without it.
    """

    def __init__(self, convolution: DotProductConvolution, conv_state: Tensor | None):
        self.convolution = convolution
        self.conv_state = conv_state

    @property
    def held(self) -> list[int]:
        """Tokens held by each row."""
        return self.convolution.held

    @property
    def capacity(self) -> int | None:
        """Most tokens per row; None: any number."""
        return self.convolution.capacity

    @torch.no_grad()
    def convolve(self, v: Tensor, g: Tensor, lengths: Sequence[int] | None) -> Tensor:
        """Append L new tokens to the long convolution and return r there, `[B, D, L]`.

        Args:
            v, g: streams of the new tokens, `[B, D, L]`; g may end at gate_length.
            lengths: how many of them each row takes; None: all.
        """
        if is_one_token(v.shape[-1], lengths):
            # Past gate_length there is no g to pass.
            r = self.convolution.step(v[..., 0], *g.unbind(-1))
            return r.unsqueeze(-1)
        return self.convolution.prefill(v, g, lengths)

    @torch.no_grad()
    def advance_conv_state(self, x: Tensor, lengths: Sequence[int] | None) -> None:
        """Keep the last inputs of the short convolution; x holds the new ones, `[B, L, D]`."""
        if self.conv_state is None:
            return
        kept = self.conv_state.shape[1]
        inputs = torch.cat([self.conv_state, x], dim=1)
        ends = lengths or [x.shape[1]] * len(x)
        last = [row[end:end + kept] for row, end in zip(inputs, ends, strict=True)]
        self.conv_state = torch.stack(last)


class WindowCache(_State):
    """State of an attention layer: keys and values of the last tokens, the newest in the last slot.

    Gradients do not flow through it.

    Args:
        k, v: `[B, H, slots, d]`, all zero; as many slots as the window has tokens, or fewer for a
            shorter text.
        window: number of keys that a query sees, that of its own token included.
    """

    def __init__(self, k: Tensor, v: Tensor, window: int):
        self.k = k
        self.v = v
        self.window = window
        self.slots = k.shape[2]
        self.held = [0] * len(k)
        self.capacity = self.slots if self.slots < window else None

    @torch.no_grad()
    def step(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Append one token, `[B, H, 1, d]` each, and return its attention output, `[B, H, 1, d]`.

        Raises:
            ValueError: a cache smaller than the window is full.
        """
        self._advance(1)
        self.k = torch.cat([self.k[:, :, 1:], k], dim=2)
        self.v = torch.cat([self.v[:, :, 1:], v], dim=2)
        mask = None
        if min(self.held) < self.slots:
            # Hide the slots that are still empty.
            age = torch.arange(self.slots, 0, -1, device=k.device)
            held = torch.tensor(self.held, device=k.device)
            mask = age <= held.view(-1, 1, 1, 1)
        return F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask)

    @torch.no_grad()
    def prefill(self, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int] | None,
                backend: str) -> Tensor:
        """Append L tokens, `[B, H, L, d]` each, and return their attention outputs.

        Args:
            q, k, v: queries, keys and values of the new tokens.
            lengths: how many of them each row takes, 0 to L; outputs beyond are 0.  None: all.
            backend: as in `attention.sliding_window_attention`.

        Returns:
            `[B, H, L, d]`.

        Raises:
            ValueError: more tokens than fit a cache smaller than the window.
        """
        y = torch.zeros_like(q)
        for rows, held, new in self._advance(q.shape[2], lengths):
            old = min(held, self.slots)
            keys_and_values = []
            for stored, added in ((self.k, k), (self.v, v)):
                # Under autocast, new keys have another dtype than the stored ones.
                past = stored[rows].to(added.dtype)
                joined = torch.cat([past, added[rows, :, :new]], dim=2)
                stored[rows] = joined[:, :, -self.slots:]
                keys_and_values.append(joined[:, :, self.slots - old:])
            # Attention takes as many queries as keys, so zeros stand for the old queries.
            queries = q[rows, :, :new]
            queries = F.pad(queries, (0, 0, old, 0))
            outputs = sliding_window_attention(queries, *keys_and_values, self.window, backend)
            y[rows, :, :new] = outputs[:, :, old:]
        return y


Cache = FourierCache | WindowCache


def is_one_token(tokens: int, lengths: Sequence[int] | None) -> bool:
    """Whether each row takes the one token of an input of `tokens`, so that a step is enough."""
    return tokens == 1 and (lengths is None or all(n == 1 for n in lengths))
