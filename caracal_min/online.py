"""What arrives a token at a time and is convolved: storage, the rows of a batch, and the checks.

`relaxed` and `partitioned` have the ways in which it is done.

What a step did is in `state`, a value that is replaced when all else is done.  Until then a step, or a prompt, writes
only where the state before it does not look, so that whoever puts this one back has undone it.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .convolution import causal_conv_fft

__all__ = ["OnlineConvolution", "State", "row_groups"]

# In which dimension the tensors of a convolution, and of its state, count the rows of the batch.
_ROWS = {"streams": 1, "prefixes": 2, "block": 2, "due": 1, "pending": 0, "v": 0, "g": 0}


class State(NamedTuple):
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


class OnlineConvolution:
    """What all share: storage of `[B, D, capacity]`, the lengths of the rows, and the checks.

    A subclass has `_append(state, rows, start, both)`, which stores v and g, `[2, rows, D, count]`, from token `start`
    on; `_read(rows, end)`, the first tokens of each, `[rows, D, end]`; and `_step(state, rows, t, both)`, which takes
    token t, `[2, rows, D]`, and returns r_t and the state after it.
    """

    endless = False
    """Whether it takes any number of tokens, the gate being cut."""

    def __init__(self, batch: int, channels: int, capacity: int, dtype: torch.dtype = torch.float32,
                 device: torch.device | str = "cpu"):
        if min(batch, channels, capacity) < 1:
            raise ValueError(f"batch={batch}, channels={channels}, capacity={capacity}; give whole numbers >= 1")
        self.capacity = capacity
        self.state = State([0] * batch)
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

    def reorder(self, rows: Sequence[int]) -> None:
        """Let row i of the batch be what row rows[i] was; there may be more rows than before, or fewer."""
        state, index = self._before_step(), torch.tensor(rows, device=self.streams.device)
        held = vars(self) | state._asdict()
        chosen = {name: held[name].index_select(dimension, index) for name, dimension in _ROWS.items()
                  if isinstance(held.get(name), Tensor)}
        chosen |= {name: [value[i] for i in rows] for name, value in held.items() if isinstance(value, list)}
        self.state = state._replace(**{name: chosen.pop(name) for name in state._fields if name in chosen})
        vars(self).update(chosen)

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
        if tokens > self.capacity and not self.endless:
            raise ValueError(f"{tokens} tokens do not fit a cache for {self.capacity}; make the cache longer")

    def _before_prompt(self) -> State:
        """Return the state, its tensors copied: `_append` writes into them."""
        return self.state

    _before_step = _before_prompt


def row_groups(lengths: Sequence[int], counts: Sequence[int]) -> Iterator[tuple[int, int, slice]]:
    """Group neighbouring rows of a batch that hold equally many tokens and take equally many more.

    Yields (tokens held, tokens taken, rows): a single group, of all rows, where no prompt differs in length.
    """
    end = 0
    for (held, taken), rows in itertools.groupby(zip(lengths, counts, strict=True)):
        start, end = end, end + len(list(rows))
        yield held, taken, slice(start, end)
