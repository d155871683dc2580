"""Checkers for the exercises of chapter 6, The Fourier module."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from caracal_min.layers import MultiHeadFourier

from . import checker, drawer, ensure, expect
from .counting import PRODUCTS, Watch, numbers_kept

__all__ = ["depthwise_conv", "fold_gate", "head_mix", "size_of_mix", "step"]


@checker
def depthwise_conv(answer: Callable) -> str:
    """Check `depthwise_conv(x, weight)`: a depthwise causal convolution, `[B, L, D]` and `[D, K]`, without Conv1d."""
    draw, cases = drawer(6), [(length, count) for length in (1, 2, 7) for count in (1, 2, 3, 9)]
    for length, count in cases:
        x, weight = draw(2, length, 3), draw(3, count)

        def summed(weight: Tensor, ahead: int = 0, x=x, count=count, length=length) -> Tensor:
            padded = F.pad(x.mT, (count - 1 - ahead, ahead))
            return F.conv1d(padded, weight[:, None], groups=3).mT[:, :length]

        case = f"depthwise_conv with x of shape {tuple(x.shape)} and {count} weights a channel"
        with Watch() as seen:
            given = answer(x, weight)
        expect(case, given, summed(weight), {
            "the last weight is that of the token itself, and the first that of the oldest": summed(weight.flip(1)),
            "centred, as padding=1 has it: a token would read the next one":
                summed(weight, 1)})
        seen.forbid(case, ("conv",), "add up shifted texts instead")
    return f"{len(cases)} cases"


@checker
def head_mix(answer: Callable) -> str:
    """Check `head_mix(h, weight, bias, n_heads)`: the gate's second stage, without Conv1d and without zeros."""
    draw, cases = drawer(6), [(1, 1, 1, 1), (1, 6, 4, 2), (2, 5, 6, 3), (3, 4, 5, 1), (2, 3, 5, 5)]
    for batch, length, width, heads in cases:
        h, weight, bias = draw(batch, length, width), draw(width, width // heads, 1), draw(width)
        case, blocks = f"head_mix with h of shape {tuple(h.shape)} and {heads} heads", _blocks(weight, heads)
        with Watch() as seen:
            given = answer(h, weight, bias, heads)
        expect(case, given, F.linear(h, blocks, bias), {
            "the weights are [D out, D in of the head]; here each head's matrix is transposed": h @ blocks + bias,
            "add the bias": h @ blocks.T})
        seen.forbid(case, ("conv", "block_diag"), "multiply head by head, with one einsum")
    return f"{len(cases)} cases"


@checker
def fold_gate(answer: Callable) -> str:
    """Check `fold_gate(W_1, b_1, W_2, b_2, n_heads)`: the matrix and the bias of both stages without SiLU."""
    draw, cases = drawer(6), [(1, 1), (4, 2), (6, 3), (5, 1), (5, 5)]
    for width, heads in cases:
        W_1, b_1, b_2, W_2 = draw(width, width), draw(width), draw(width), draw(width, width // heads, 1)
        blocks = _blocks(W_2, heads)
        bias = blocks @ b_1 + b_2
        expect(f"fold_gate with {width} channels and {heads} heads", answer(W_1, b_1, W_2, b_2, heads),
               {"the matrix": blocks @ W_1, "the bias": bias}, {
            "the first bias passes the second stage, too": (blocks @ W_1, b_2),
            "the first stage acts first, so its matrix stands on the right": (W_1 @ blocks, bias)})
    return f"{len(cases)} gates"


@checker
def size_of_mix(answer: Callable) -> str:
    """Check `size_of_mix(mean_v, std_v, mean_g, std_g, t)`: the root mean square of r_t, independent streams."""
    cases = [(0.1, 1.0, 0.1, 1.0, 9999), (0.0, 1.0, 0.0, 1.0, 0), (0.0, 2.0, 0.0, 0.3, 4095), (2.0, 0.0, -3.0, 0.0, 9),
             (0.5, 0.2, 0.0, 1.5, 63), (-0.3, 0.8, 0.4, 2.0, 255)]
    for case in cases:
        mean_v, std_v, mean_g, std_g, t = case
        means = (mean_v * mean_g) ** 2
        rest = (mean_v**2 + std_v**2) * (mean_g**2 + std_g**2) - means
        expect(f"size_of_mix{case}", answer(*case), math.sqrt((t + 1) ** 2 * means + (t + 1) * rest), {
            "that is the random walk alone: products of means add up in one direction": math.sqrt((t + 1) * rest),
            "r_t is a sum of t + 1 products": math.sqrt(t**2 * means + t * rest),
            "the random part, too, is a sum of t + 1 products":
                math.sqrt((t + 1) ** 2 * means + t * rest),
            "that is the mean square: return its root": (t + 1) ** 2 * means + (t + 1) * rest})
    return f"{len(cases)} pairs of streams"


@checker
def step(answer: Callable) -> str:
    """Check `step(layer, x, state)`: the layer, one token at a time.

    Every linear map is applied to new tokens only, and what is kept is two inputs, and the contents and gates so far.
    """
    draw, cases = drawer(6), [(1, 7, 4, 2), (3, 9, 6, 3), (2, 40, 4, 2)]
    for batch, length, width, heads in cases:
        layer = MultiHeadFourier(width, heads).double().requires_grad_(False)
        for weight in layer.parameters():
            weight.copy_(draw(*weight.shape))
        texts, states = draw(2, batch, length, width), [None, None]
        whole = [layer(text) for text in texts]
        for t in range(length):
            for k, x in enumerate(texts):  # in turns: what is kept belongs to its own text
                case = f"step at token {t} of {'one' if k == 0 else 'another'} text, x of shape {(batch, width)}"
                with Watch() as seen:
                    given = answer(layer, x[:, t].clone(), states[k])
                ensure(isinstance(given, tuple | list) and len(given) == 2,
                       f"{case}: expected an output and a state, given a {type(given).__name__}")
                tokens = max((shape.numel() // (batch * width) for call in seen.calls for shape in call.made
                              if call.name.startswith(PRODUCTS) or call.name == "conv1d"), default=0)
                ensure(tokens <= 1, f"{case}: the linear maps should see the new token only, and saw {tokens}; keep "
                                    "what they made of the others")
                y, states[k] = given
                expect(case, y, whole[k][:, t], {
                    "g_i weighs the content i back, so the newest content meets the first gate":
                        partial(_not_reversed, layer, x[:, :t + 1])})
                kept = numbers_kept(states[k]) // (batch * width)
                ensure(kept <= 2 * t + 4, f"{case}: expected at most {2 * t + 4} vectors to be kept, given {kept}; the "
                       "contents and the gates so far, and two inputs, are enough")
    return f"{2 * len(cases)} texts"


def _not_reversed(layer: MultiHeadFourier, x: Tensor) -> Tensor:
    v, g = layer.streams(x)
    return layer.to_out((v * g).sum(-1))


def _blocks(weight: Tensor, heads: int) -> Tensor:
    """Return the D by D matrix of a grouped convolution's weight, `[D, D / H, 1]`."""
    return torch.block_diag(*weight[..., 0].unflatten(0, (heads, -1)))
