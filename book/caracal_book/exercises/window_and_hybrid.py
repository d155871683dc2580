"""Checkers for the exercises of chapter 7, sliding-window attention and the hybrid.

Everything is float64 and drawn from a fixed seed.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from caracal_min.convolution import causal_conv_direct

from . import checker, expect_close, expect_equal

__all__ = ["ignores_order", "tiled_attention", "tokens_in_sight", "windows_needed"]

Module = Callable[[Tensor], Tensor]


@checker
def tokens_in_sight(answer: Callable[[str, int, int], int]) -> str:
    """Check `tokens_in_sight(pattern, window, t)`: how many tokens output t of a stack depends on."""
    patterns = ("", "A", "F", "AA", "AAA", "FA", "AF", "AAF", "AFA", "AAFAA", "FFAFFA", "AAAAAAAA", "A" * 40)
    for pattern in patterns:
        for window in (1, 2, 5, 256):
            for t in (0, 1, 4, 5, 30, 2000):
                seen = t + 1 if "F" in pattern else min(t, len(pattern) * (window - 1)) + 1
                _expect_number(f"tokens_in_sight(pattern={pattern!r}, window={window}, t={t})",
                               answer(pattern, window, t), seen)
    return f"{len(patterns)} stacks"


@checker
def windows_needed(answer: Callable[[int, int], int | None]) -> str:
    """Check `windows_needed(length, window)`: window modules until the last token sees the first; None for never."""
    cases = [(length, window) for length in (1, 2, 3, 10, 256, 257, 511, 512, 8192, 100_000)
             for window in (1, 2, 3, 256, 257, 10_000)]
    for length, window in cases:
        needed = 0 if length == 1 else None if window == 1 else -(-(length - 1) // (window - 1))
        given = answer(length, window)
        case = f"windows_needed(length={length}, window={window})"
        if needed is None:
            expect_equal(case, given, None)
        else:
            _expect_number(case, given, needed)
    return f"{len(cases)} pairs of length and window"


def _expect_number(case: str, given: object, expected: int) -> None:
    """Like expect_equal, for a whole number of any kind (int, a tensor of one entry, 3.0)."""
    if given is None or isinstance(given, bool):
        raise AssertionError(f"{case}: expected {expected}, given {given}")
    expect_equal(case, int(given) if given == expected else given, expected)


@checker
def ignores_order(answer: Callable[[Module, int], bool]) -> str:
    """Check `ignores_order(module, length)`: True where no order of the tokens before the last moves its output."""
    for modules, verdict in ((_BLIND, True), (_SEEING, False)):
        for name, module in modules.items():
            for length in (9, 24) if module is _ring else (4, 9, 24):
                torch.manual_seed(7)
                case, given = f"ignores_order({name}, length={length})", answer(module, length)
                if given is None:
                    raise AssertionError(f"{case}: expected {verdict}, given None; is a return missing?")
                expect_equal(case, bool(given), verdict)
    return f"{len(_BLIND)} modules that ignore order and {len(_SEEING)} that do not"


def _attention(x: Tensor, window: int | None = None) -> Tensor:
    """Return causal attention with the tokens themselves as queries, keys and values."""
    length = x.shape[1]
    back = torch.arange(length)[:, None] - torch.arange(length)
    hidden = (back < 0) | (back >= (window or length))
    return (x @ x.mT / math.sqrt(x.shape[-1])).masked_fill(hidden, -torch.inf).softmax(-1) @ x


def _convolved(x: Tensor) -> Tensor:
    return causal_conv_direct(x.mT, x.mT.tanh()).mT


def _ring(x: Tensor) -> Tensor:
    """Products of neighbours in a ring of the tokens before each: up to three tokens, all pairs are neighbours."""
    y = x.clone()
    for t in range(2, x.shape[1]):
        past = x[:, :t]
        y[:, t] += (past * past.roll(1, dims=1) * (past + past.roll(1, dims=1))).sum(1)
    return y


def _turning(x: Tensor) -> Tensor:
    """A ring with a direction: it notices every exchange of neighbours, but not a turn."""
    y = x.clone()
    for t in range(2, x.shape[1]):
        y[:, t] += (x[:, :t] ** 2 * x[:, :t].roll(1, dims=1)).sum(1)
    return y


def _told(token: int, weight: float) -> Module:
    """A mean of the tokens so far that gives one of them, counted from the start or the end, another weight."""
    def module(x: Tensor) -> Tensor:
        weights = torch.ones(x.shape[1], dtype=x.dtype)
        weights[token] += weight
        return (x * weights[:, None]).cumsum(1) / weights.cumsum(0)[:, None]
    return module


_BLIND: dict[str, Module] = {
    "causal attention": _attention,
    "the mean of the tokens so far": lambda x: x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None],
    "the largest number so far": lambda x: x.cummax(1)[0],
    "the token itself": lambda x: 2 * x,
    "a million times attention": lambda x: 1e6 * _attention(x),
    "attention to half the tokens, chosen by their first number": lambda x: _attention(x * (x[..., :1] > 0)),
}
_SEEING: dict[str, Module] = {
    "attention with a window of 3": lambda x: _attention(x, window=3),
    "attention that does not see token 0": lambda x: _attention(x, window=x.shape[1] - 1),
    "two modules of causal attention": lambda x: _attention(_attention(x)),
    "a causal convolution with itself": _convolved,
    "the token before": lambda x: x.roll(1, dims=1),
    "the differences of neighbours, summed": lambda x: (x - x.roll(1, dims=1)).abs().cumsum(1),
    "the tokens before in a ring, which turns one way": _turning,
    "the tokens before in a ring": _ring,
    "a mean with another weight for token 0": _told(0, 0.001),
    "a mean with another weight for the last but one": _told(-2, 0.001),
    "a mean with another weight for token 1": _told(1, 0.001),
    "a mean with another weight for the last but two": _told(-3, 0.001),
}


@checker
def tiled_attention(answer: Callable[[Tensor, Tensor, Tensor, int, int], Tensor]) -> str:
    """Check `tiled_attention(q, k, v, window, tile)`: exact, and each tile with its own keys and no others.

    Keys before the text may be filled up, so a tile of b queries is compared with b + window - 1 keys or fewer.
    """
    source = torch.Generator().manual_seed(7)
    cases = ((1, 1, 1), (7, 3, 2), (7, 3, 3), (7, 3, 5), (8, 4, 4), (12, 1, 4), (12, 5, 1), (13, 20, 4), (13, 4, 20),
             (31, 7, 8), (100, 16, 32))
    for length, window, tile in cases:
        channels = 4 if length < 13 else 9
        q, k, v = torch.randn(3, length, channels, dtype=torch.float64, generator=source).unbind()
        back = torch.arange(length)[:, None] - torch.arange(length)
        hidden = (back < 0) | (back >= window)
        exact = (q @ k.T / math.sqrt(channels)).masked_fill(hidden, -torch.inf).softmax(-1) @ v
        case = f"tiled_attention with {length} tokens of {channels} channels, window={window}, tile={tile}"
        expect_close(case, answer(q.clone(), k.clone(), v.clone(), window, tile), exact)
    large = ((1024, 16, 8), (960, 16, 24))
    for length, window, tile in large:
        q, k, v = torch.randn(3, length, 4, dtype=torch.float64, generator=source).unbind()
        with _Made() as made, FlopCounterMode(display=False) as operations:
            answer(q, k, v, window, tile)
        case = f"tiled_attention with {length} tokens, window={window}, tile={tile}"
        scores = operations.get_total_flops() // (4 * q.shape[1])  # two products, each d multiplications and additions
        most, keys = length * (tile + window - 1), tile + window - 1
        if made.entries >= length * length // 4:
            raise AssertionError(f"{case}: expected no tensor as large as a quarter of L x L, "
                                 f"given one of {made.entries} entries")
        if scores > most:
            raise AssertionError(f"{case}: expected at most {most} scores, given {scores}")
        if not any({tile, keys} <= set(shape) for shape in made.shapes):
            raise AssertionError(f"{case}: expected tiles of {tile} queries beside {keys} keys, "
                                 "given none of that size")
    return f"{len(cases) + len(large)} sizes"


class _Made(TorchDispatchMode):
    """Note the shapes of the tensors that are made inside the `with` block, and the entries of the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.entries, self.shapes = 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            if isinstance(x, Tensor):
                self.entries = max(self.entries, x.numel())
                self.shapes.add(tuple(x.shape))
        return made
