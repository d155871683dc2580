"""Checkers for the exercises of chapter 1, mixing tokens."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from . import checker, drawer, ensure, expect, expect_verdicts
from .counting import Watch

__all__ = ["causal_average", "depends_on_data", "how_far", "strict_attention"]


@checker
def causal_average(answer: Callable) -> str:
    """Check `causal_average(x)`: the averages of x[0..t], `[L, D]`, from a number of values that grows like L."""
    draw, shapes = drawer(1), ((1, 1), (1, 3), (2, 3), (7, 1), (400, 3))
    for shape in shapes:
        x = draw(*shape)
        case, kept, read = f"causal_average with x of shape {shape}", x.clone(), torch.arange(1, len(x) + 1)[:, None]
        sums = torch.stack([x[:t + 1].sum(0) for t in range(len(x))])
        with Watch() as seen:
            given = answer(x)
        expect(case, given, sums / read, {"divide each sum by the number of tokens read": sums,
                                          "divide by the tokens read so far, and not by L": sums / len(x)})
        ensure(torch.equal(x, kept), f"{case}: x itself was changed; work on a copy, not in place")
        seen.require_torch(case)
        seen.forbid(case, ("conv", "avg_pool"), "a window as long as the text adds up all of it again for each token")
        ensure(len(x) < 50 or seen.numbers <= 30 * x.numel(),
               f"{case}: {seen.numbers} numbers were computed, expected at most {30 * x.numel()}; a matrix of all "
               "weights, or a sum from the start for each token, is too much")
    return f"{len(shapes)} shapes"


@checker
def how_far(answer: Callable) -> str:
    """Check `how_far(model, ids, place, token)`: half the change of all probabilities, `[L]`, by small models."""
    source, cases = torch.Generator().manual_seed(5), [(1, 2, 0), (3, 5, 1), (6, 11, 0), (6, 11, 5)]
    for length, vocabulary, place in cases:
        model = _SumOfRows(torch.randn(vocabulary, vocabulary, dtype=torch.float64, generator=source))
        ids = torch.randint(vocabulary, (length,), generator=source)
        kept, changed, token = ids.clone(), ids.clone(), int(ids[place] + 1) % vocabulary
        changed[place] = token
        case, (old, new) = f"how_far in {length} tokens, place {place}", model.logits(torch.stack([ids, changed]))
        change = (new.softmax(-1) - old.softmax(-1)).abs().sum(-1)
        given = answer(model, ids, place, token)
        expect(case, given, change / 2, {
            "compare probabilities, and not logits": (new - old).abs().sum(-1) / 2,
            "half the sum was asked for, which is 1 where the two have nothing in common": change,
            "both texts are the same: change a copy of ids": 0 * change,
            "add up the changes over the vocabulary": (new.softmax(-1) - old.softmax(-1)).abs().amax(-1)})
        ensure(torch.equal(ids, kept), f"{case}: ids themselves were changed; change a copy")
    return f"{len(cases)} changes"


class _SumOfRows:
    """A causal model: its logits after a token are the sum of the rows of a table up to it."""

    def __init__(self, table: Tensor):
        self.table = table

    def logits(self, ids: Tensor) -> Tensor:
        return self.table[ids].cumsum(1)


@checker
def strict_attention(answer: Callable) -> str:
    """Check `strict_attention(q, k, v)`: attention over earlier tokens only; values, gradients and large scores."""
    draw, cases = drawer(2), [(1, 2, 1.0), (3, 4, 1.0), (33, 5, 1.0), (40, 3, 1000.0), (40, 3, -1000.0)]
    for length, width, scale in cases:
        q, k, v, weight = draw(4, length, width)
        leaves = [part.requires_grad_() for part in (scale * q, k.clone(), v.clone())]
        case = f"strict_attention of {length} tokens, {width} channels, scores of size {abs(scale):.0f}"
        right = _attend(*leaves)
        given = answer(*leaves)
        expect(case, given, right, {
            "row 0 has no token to attend to, so its softmax is 0/0 and not zero": _attend(*leaves, -math.inf),
            "a mask of -100 hides nothing from scores of size 1000": _attend(*leaves, -100.0),
            "a token attends to those before it, and not to itself": _attend(*leaves, diagonal=0),
            "divide the scores by the root of the width": _attend(width**0.5 * leaves[0], *leaves[1:])})
        if length > 1:  # the output of one token is a constant
            ensure(given.requires_grad, f"{case}: the output was cut off from q, k and v; it has no gradient")
            pairs = zip("qkv", *(torch.autograd.grad(y, leaves, weight, materialize_grads=True)
                                 for y in (given, right)), strict=True)
            for name, found, wanted in pairs:
                ensure(found.isfinite().all(), f"{case}, gradient of {name}: NaN; replacing it in the output leaves it "
                                               "here, so no row may be all minus infinity before its softmax")
                expect(f"{case}, gradient of {name}", found, wanted)
    return f"{len(cases)} cases with their gradients"


def _attend(q: Tensor, k: Tensor, v: Tensor, lowest: float = torch.finfo(torch.float64).min,
            diagonal: int = -1) -> Tensor:
    past = torch.ones(len(q), len(q)).tril(diagonal).bool()
    scores = q @ k.T / math.sqrt(q.shape[1])
    return (scores.masked_fill(~past, lowest).softmax(-1) * past) @ v


@checker
def depends_on_data(answer: Callable) -> str:
    """Check `depends_on_data(f, length, channels)`: True where the weights of f follow its input."""
    mixers = {name: (lambda x, weights=weights: weights(x) @ x, verdict, hint)
              for name, (weights, verdict, hint) in _WEIGHTS.items()}
    return expect_verdicts(answer, "depends_on_data", mixers, ((3, 2), (8, 1), (12, 4)))


def _average(x: Tensor) -> Tensor:
    """The weights of the causal average."""
    ones = torch.ones(len(x), len(x), dtype=x.dtype).tril()
    return ones / ones.sum(1, keepdim=True)


def _attention(x: Tensor) -> Tensor:
    return (x @ x.T).masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -math.inf).softmax(-1)


_FIXED = "the weights are fixed, so f(x + y) is f(x) + f(y) but for rounding"
_WEIGHTS = {
    "the causal average": (_average, False, _FIXED),
    "a trillion times the average": (lambda x: 1e12 * _average(x), False,
                                     "rounding grows with the outputs, so compare with their size"),
    "the tokens in reverse order": (lambda x: torch.eye(len(x), dtype=x.dtype).flip(0), False, _FIXED),
    "masked attention": (_attention, True, "the output of a sum of two texts is not the sum of their outputs"),
    "attention by the directions of the tokens": (
        lambda x: _attention(x / x.norm(dim=1, keepdim=True)), True,
        "twice the text gives twice the output here: add two different texts instead"),
    "the average, a trifle louder if the text is": (
        lambda x: _average(x) * (1 + 1e-5 * x.pow(2).mean()), True,
        "the weights move by 1e-5, far more than rounding does: the tolerance is too wide"),
    "the average, in which the first token decides the sign": (
        lambda x: _average(x) * x[0, 0].sign(), True, "it shows for certain pairs of texts only: try many"),
}
