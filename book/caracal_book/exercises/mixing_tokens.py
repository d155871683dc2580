"""Checkers for the exercises of chapter 1, mixing tokens.

Sequences are float64 and drawn from fixed seeds.  Where an exercise asks for a cost, the checker counts the
numbers that torch's functions return, and looks at which functions are called.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import checker, expect_close, expect_equal
from .counting import CountWork

__all__ = ["causal_average", "depends_on_data", "how_far", "strict_attention"]


@checker
def causal_average(answer: Callable[[Tensor], Tensor]) -> str:
    """Check `causal_average(x)`: the averages of x[0..t], `[L, D]`, from a number of values that grows like L."""
    shapes = ((1, 1), (1, 3), (2, 3), (7, 1), (50, 4), (400, 3))
    source = torch.Generator().manual_seed(1)
    for shape in shapes:
        x = torch.randn(shape, dtype=torch.float64, generator=source)
        expected = torch.stack([x[:t + 1].mean(0) for t in range(len(x))])
        case = f"causal_average with x of shape {shape}"
        kept = x.clone()
        with CountWork() as counted:
            given = answer(x)
        expect_close(case, given, expected)
        expect_close(f"{case}, x itself afterwards", x, kept, 0.0)
        counted.expect_within_torch(case)
        windows = sorted(name for name in counted.names if "conv" in name or "pool" in name)
        if windows:
            raise AssertionError(f"{case}: {windows[0]} was called, expected sums that use the sums before them")
        if len(x) > 50 and counted.numbers > 30 * x.numel():
            raise AssertionError(f"{case}: {counted.numbers} numbers were computed, expected at most {30 * x.numel()}; "
                                 "a matrix of all weights, or a sum from the start for each token, is too much")
    return f"{len(shapes)} shapes"


@checker
def how_far(answer: Callable[[Any, Tensor, int, int], Tensor]) -> str:
    """Check `how_far(model, ids, place, token)`: half the change of all probabilities, `[L]`, by small models."""
    source, cases = torch.Generator().manual_seed(5), 0
    for length, vocabulary in ((1, 2), (3, 5), (6, 11)):
        table = torch.randn(vocabulary, vocabulary, dtype=torch.float64, generator=source)
        model = _SumOfRows(table)
        for place in range(length):
            ids = torch.randint(vocabulary, (length,), generator=source)
            token, kept = int(ids[place] + 1) % vocabulary, ids.clone()
            changed = torch.cat([ids[:place], torch.tensor([token]), ids[place + 1:]])
            p, new = (model.logits(one[None])[0].softmax(-1) for one in (ids, changed))
            case = f"how_far in {length} tokens, place {place}"
            expect_close(case, answer(model, ids, place, token), (new - p).abs().sum(-1) / 2)
            expect_equal(f"{case}, ids afterwards", ids.tolist(), kept.tolist())
            cases += 1
    return f"{cases} changes"


class _SumOfRows:
    """A causal model: its logits after a token are the sum of the rows of a table up to it."""

    def __init__(self, table: Tensor):
        self.table = table

    def logits(self, ids: Tensor) -> Tensor:
        return self.table[ids].cumsum(1)


@checker
def strict_attention(answer: Callable[[Tensor, Tensor, Tensor], Tensor]) -> str:
    """Check `strict_attention(q, k, v)`: attention over earlier tokens only; values, gradients and large scores."""
    cases = [(1, 2, 1.0), (2, 1, 1.0), (3, 4, 1.0), (8, 3, 1.0), (33, 5, 1.0), (8, 3, 1000.0), (2, 3, -1000.0)]
    source = torch.Generator().manual_seed(2)
    for length, width, scale in cases:
        q, k, v, weight = torch.randn(4, length, width, dtype=torch.float64, generator=source)
        q = scale * q
        case = f"strict_attention of {length} tokens, {width} channels, scores of size {abs(scale):.0f}"
        leaves = [part.clone().requires_grad_() for part in (q, k, v)]
        expected = _attend_to_earlier(*leaves)
        given = answer(q.clone(), k.clone(), v.clone())
        expect_close(case, given, expected.detach())
        if length == 1:
            continue  # the output is a constant
        wanted = torch.autograd.grad(expected, leaves, weight, allow_unused=True)
        returned = answer(*leaves)
        if not returned.requires_grad:
            raise AssertionError(f"{case}: expected an output with gradients, given one cut off from q, k and v")
        found = torch.autograd.grad(returned, leaves, weight, allow_unused=True)
        for name, *pair in zip("qkv", found, wanted, strict=True):
            one, two = (torch.zeros_like(q) if gradient is None else gradient for gradient in pair)
            expect_close(f"{case}, gradient of {name}", one, two)
    return f"{len(cases)} cases with their gradients"


def _attend_to_earlier(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Sum row by row; row 0 is zero."""
    rows = [torch.zeros_like(v[0])]
    for t in range(1, len(q)):
        rows.append((k[:t] @ q[t] / math.sqrt(q.shape[1])).softmax(0) @ v[:t])
    return torch.stack(rows)


@checker
def depends_on_data(answer: Callable[[Callable[[Tensor], Tensor], int, int], bool]) -> str:
    """Check `depends_on_data(f, length, channels)`: True where the weights of f follow its input."""
    for mixers, verdict in ((_FIXED, False), (_FROM_DATA, True)):
        for name, weights in mixers.items():
            for length, channels in ((3, 2), (8, 1), (12, 4)):
                case = f"depends_on_data({name}, {length}, {channels})"
                given = answer(_mixer(weights), length, channels)
                if given is None:
                    raise AssertionError(f"{case}: expected {verdict}, given None; is a return missing?")
                expect_equal(case, bool(given), verdict)
    return f"{len(_FIXED)} mixers with fixed weights and {len(_FROM_DATA)} with weights from the data"


def _mixer(weights: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: weights(x) @ x


def _average(x: Tensor) -> Tensor:
    """The weights of the causal average."""
    ones = torch.ones(len(x), len(x), dtype=x.dtype).tril()
    return ones / ones.sum(1, keepdim=True)


def _waves(x: Tensor) -> Tensor:
    """The real part of the DFT's weights."""
    t = torch.arange(len(x))
    return torch.cos(2 * math.pi * (t[:, None] * t % len(x)).to(x.dtype) / len(x))


def _attention(x: Tensor, masked: bool = False) -> Tensor:
    future = torch.ones(len(x), len(x)).triu(1).bool() & masked
    return (x @ x.T).masked_fill(future, -math.inf).softmax(-1)


def _noise(x: Tensor) -> Tensor:
    return torch.randn(len(x), len(x), dtype=x.dtype, generator=torch.Generator().manual_seed(3))


def _by_distance(x: Tensor) -> Tensor:
    """Weights g_{t-j} with g read off the tokens, as in Caracal."""
    t, g = torch.arange(len(x)), x.mean(1)
    return torch.where(t[:, None] >= t, g[(t[:, None] - t).clamp(min=0)], 0.0)


_FIXED: dict[str, Callable[[Tensor], Tensor]] = {
    "the causal average": _average,
    "the DFT, real part": _waves,
    "the masked DFT, real part": lambda x: _waves(x).tril(),
    "a fixed matrix of random numbers": _noise,
    "a trillion times the average": lambda x: 1e12 * _average(x),
    "the tokens in reverse order": lambda x: torch.eye(len(x), dtype=x.dtype).flip(0),
    "the tokens as they are": lambda x: torch.eye(len(x), dtype=x.dtype),
}
_FROM_DATA: dict[str, Callable[[Tensor], Tensor]] = {
    "attention": _attention,
    "masked attention": lambda x: _attention(x, masked=True),
    "attention by the directions of the tokens": lambda x: _attention(x / x.norm(dim=1, keepdim=True)),
    "attention by the ratios of the tokens": lambda x: _attention(x / x.norm()),
    "weights by distance, read off the tokens": _by_distance,
    "the average, a trifle louder if the text is": lambda x: _average(x) * (1 + 1e-5 * x.pow(2).mean()),
    "the reverse order, if the tokens sum to more than zero": lambda x: (
        torch.eye(len(x), dtype=x.dtype).flip(0) if x.sum() > 0 else torch.eye(len(x), dtype=x.dtype)),
    "the average, in which the first token decides the sign": lambda x: _average(x) * x[0, 0].sign(),
}
