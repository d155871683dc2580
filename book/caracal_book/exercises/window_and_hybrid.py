"""Checkers for the exercises of chapter 7, sliding-window attention and the hybrid."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from caracal_min.convolution import causal_conv_direct

from . import checker, drawer, ensure, expect, expect_verdicts

__all__ = ["ignores_order", "tiled_attention", "tokens_in_sight", "windows_needed"]

Module = Callable[[Tensor], Tensor]


@checker
def tokens_in_sight(answer: Callable) -> str:
    """Check `tokens_in_sight(pattern, window, t)`: how many tokens output t of a stack depends on."""
    patterns = ("", "A", "F", "AA", "AF", "AAFAA", "FFAFFA", "AAAAAAAA", "A" * 40)
    for pattern in patterns:
        for window in (1, 2, 5, 256):
            for t in (0, 1, 5, 30, 2000):
                def seen(reach: int, pattern: str = pattern, t: int = t) -> int:
                    return t + 1 if "F" in pattern else min(t, len(pattern) * reach) + 1

                expect(f"tokens_in_sight(pattern={pattern!r}, window={window}, t={t})", answer(pattern, window, t),
                       seen(window - 1), {
                    "a window counts the token itself, so each reaches window - 1 back": seen(window),
                    "a Fourier module sees the whole past": seen(window - 1, "A" * len(pattern)),
                    "the token itself counts, too": seen(window - 1) - 1})
    return f"{len(patterns)} stacks"


@checker
def windows_needed(answer: Callable) -> str:
    """Check `windows_needed(length, window)`: window modules until the last token sees the first; None for never."""
    cases = [(length, window) for length in (1, 2, 3, 10, 256, 257, 511, 8192) for window in (1, 2, 3, 256, 10_000)]
    for length, window in cases:
        back = length - 1
        expect(f"windows_needed(length={length}, window={window})", answer(length, window),
               0 if length == 1 else None if window == 1 else -(-back // (window - 1)), {
            "a window counts the token itself, so each reaches window - 1 back": -(-length // window),
            "round up: what is left over takes one more": back // max(1, window - 1),
            "the first of `length` tokens is length - 1 back": -(-length // max(1, window - 1))})
    return f"{len(cases)} pairs of length and window"


@checker
def ignores_order(answer: Callable) -> str:
    """Check `ignores_order(module, length)`: True where no order of the tokens before the last moves its output."""
    torch.manual_seed(7)
    return expect_verdicts(answer, "ignores_order", _MODULES, ((9,), (24,)))


def _attention(x: Tensor, window: int | None = None) -> Tensor:
    """Return causal attention with the tokens themselves as queries, keys and values."""
    back = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
    hidden = (back < 0) | (back >= (window or x.shape[1]))
    return (x @ x.mT / math.sqrt(x.shape[-1])).masked_fill(hidden, -torch.inf).softmax(-1) @ x


def _told(token: int) -> Module:
    """A mean of the tokens so far that gives one of them, counted from the start or the end, another weight."""
    def module(x: Tensor) -> Tensor:
        weights = torch.ones(x.shape[1], dtype=x.dtype)
        weights[token] += 0.001
        return (x * weights[:, None]).cumsum(1) / weights.cumsum(0)[:, None]
    return module


_ROUNDING = "another order of a sum rounds otherwise: compare with the size of the output"
_PLACES = "an exchange of two neighbours may show at one place only, so try each"
_MODULES: dict[str, tuple[Module, bool, str]] = {
    "causal attention": (_attention, True, _ROUNDING),
    "the largest number so far": (lambda x: x.cummax(1)[0], True, "a maximum does not know the order"),
    "a million times attention": (lambda x: 1e6 * _attention(x), True, _ROUNDING),
    "attention with a window of 3": (lambda x: _attention(x, window=3), False, _PLACES),
    "two modules of causal attention": (lambda x: _attention(_attention(x)), False,
                                        "the second reads what the first made of each prefix"),
    "a causal convolution with itself": (lambda x: causal_conv_direct(x.mT, x.mT.tanh()).mT, False, _PLACES),
    "the sum of the products of neighbours": (lambda x: x + (x * x.roll(1, dims=1)).cumsum(1), False,
                                              "a reversal leaves the output as it is: exchange neighbours instead"),
    "a mean with another weight for token 0": (_told(0), False, _PLACES),
    "a mean with another weight for token 1": (_told(1), False, _PLACES),
    "a mean with another weight for the last but one": (_told(-2), False, _PLACES),
}


@checker
def tiled_attention(answer: Callable) -> str:
    """Check `tiled_attention(q, k, v, window, tile)`: exact, and each tile with its own keys and no others.

    Keys before the text may be filled up, so a tile of b queries is compared with b + window - 1 keys or fewer.
    """
    draw = drawer(7)
    cases = ((1, 1, 1), (7, 3, 2), (7, 3, 5), (12, 1, 4), (13, 20, 4), (13, 4, 20), (31, 7, 8), (100, 16, 32))
    for length, window, tile in cases:
        q, k, v = draw(3, length, 9)
        at = torch.arange(length)
        back = at[:, None] - at
        scores, before = q @ k.T / 3, back < 0

        def attended(hidden: Tensor, scores=scores, v=v) -> Tensor:
            return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v

        expect(f"tiled_attention with {length} tokens of 9 channels, window={window}, tile={tile}",
               answer(q.clone(), k.clone(), v.clone(), window, tile), attended(before | (back >= window)), {
            "a tile sees keys before its first query, too: window - 1 of them":
                attended(before | (back >= window) | (at[:, None] // tile != at // tile)),
            "a window counts the token itself, so its oldest key is window - 1 back":
                attended(before | (back > window))})
    large = ((1024, 16, 8), (960, 16, 24))
    for length, window, tile in large:
        with _Made() as made, FlopCounterMode(display=False) as operations:
            answer(*draw(3, length, 4), window, tile)
        case, keys = f"tiled_attention with {length} tokens, window={window}, tile={tile}", tile + window - 1
        scores, most = operations.get_total_flops() // 16, length * keys  # two products of 4 multiplications, additions
        ensure(made.entries < length**2 // 4, f"{case}: a tensor of {made.entries} entries was made, more than a "
               "quarter of L x L; make the mask and the scores tile by tile")
        ensure(scores <= most, f"{case}: expected at most {most} scores, given {scores}; a tile has {keys} keys, its "
                               "own and window - 1 before them")
        ensure(any({tile, keys} <= set(shape) for shape in made.shapes),
               f"{case}: expected tiles of {tile} queries beside {keys} keys, given none of that size")
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
