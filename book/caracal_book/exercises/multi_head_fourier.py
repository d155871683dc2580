"""Checkers for the exercises of chapter 6, The Fourier module."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from caracal_min.convolution import causal_conv_direct
from caracal_min.layers import MultiHeadFourier

from . import checker, drawer, ensure, expect
from .counting import PRODUCTS, Watch, numbers_kept

__all__ = ["depthwise_conv", "growth_of", "head_mix", "step"]


@checker
def depthwise_conv(answer: Callable) -> str:
    """Check `depthwise_conv(x, weight)`: a causal convolution, `[B, L, D]` and `[D, size]`, without Conv1d."""
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
def growth_of(answer: Callable) -> str:
    """Check `growth_of(mixer, x, early, late)`: by what factor the root mean square of r_t is larger at late."""
    draw, cases = drawer(6), [(1, 9, 2, 8), (3, 40, 4, 32), (2, 40, 0, 39)]
    for batch, length, early, late in cases:
        mixer, x = MultiHeadFourier(6, 2).double().requires_grad_(False), draw(batch, length, 6)
        r = causal_conv_direct(*mixer.streams(x))
        mean_square, mean = r.square().mean((0, 1)), r.mean((0, 1))
        right = float((mean_square[late] / mean_square[early]).sqrt())
        expect(f"growth_of with x of shape {tuple(x.shape)}, early={early}, late={late}", answer(mixer, x, early, late),
               right, {"that is the mean square: take its root": right**2, "late comes first, early divides": 1 / right,
                       "signs cancel in a mean: square first": float(mean[late] / mean[early])})
    return f"{len(cases)} modules"


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
                    "g_k weighs the content k back, so the newest content meets the first gate":
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
