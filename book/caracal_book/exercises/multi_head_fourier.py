"""Checkers for the exercises of chapter 6, The Fourier module.

Tensors are float64 and drawn from a fixed seed.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from caracal_min.convolution import causal_conv_direct

from . import checker, expect_close, expect_numbers
from .counting import PRODUCTS

__all__ = ["depthwise_conv", "growth_of", "head_mix", "step"]


@checker
def depthwise_conv(answer: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Check `depthwise_conv(x, weight)`: a depthwise causal convolution, `[B, L, D]` and `[D, K]`, without Conv1d."""
    source = _source()
    cases = [(batch, length, width, count) for batch, width in ((1, 1), (2, 3)) for length in (1, 2, 7)
             for count in (1, 2, 3, 9)]
    for batch, length, width, count in cases:
        x, weight = _random(source, batch, width, length).mT, _random(source, width, count)
        y = torch.stack([sum(x[:, t - k] * weight[:, -1 - k] for k in range(min(t + 1, count)))
                         for t in range(length)], 1)
        case = f"depthwise_conv with x of shape {(batch, length, width)} and {count} weights a channel"
        with _Seen() as seen:
            given = answer(x, weight)
        expect_close(case, given, y)
        if seen.forbidden:
            raise AssertionError(f"{case}: expected sums of shifted texts, given {seen.forbidden}")
    return f"{len(cases)} cases"


@checker
def head_mix(answer: Callable[[Tensor, Tensor, Tensor, int], Tensor]) -> str:
    """Check `head_mix(h, weight, bias, n_heads)`: the gate's second stage, without Conv1d and without zeros."""
    source = _source()
    cases = [(1, 1, 1, 1), (1, 6, 4, 2), (2, 5, 6, 2), (2, 5, 6, 3), (3, 4, 5, 1), (2, 3, 5, 5)]
    for batch, length, width, heads in cases:
        h, weight = _random(source, batch, length, width), _random(source, width, width // heads, 1)
        bias = _random(source, width)
        case = f"head_mix with h of shape {(batch, length, width)} and {heads} heads"
        with _Seen(width if heads > 1 else None) as seen:
            given = answer(h, weight, bias, heads)
        expect_close(case, given, F.linear(h, _block_diagonal(weight, heads), bias))
        if seen.forbidden:
            raise AssertionError(f"{case}: expected a product head by head, given {seen.forbidden}")
    return f"{len(cases)} cases"


@checker
def growth_of(answer: Callable[[nn.Module, Tensor, int, int], float]) -> str:
    """Check `growth_of(mixer, x, early, late)`: by what factor the root mean square of r_t is larger at late."""
    source = _source()
    cases = [(1, 2, 4, 0, 1), (1, 9, 4, 2, 8), (3, 40, 6, 4, 32), (2, 40, 6, 0, 39)]
    for batch, length, width, early, late in cases:
        mixer, x = _Fourier(width, 1, source), _random(source, batch, length, width)
        size = causal_conv_direct(*mixer.streams(x)).square().mean((0, 1)).sqrt()
        case = f"growth_of with x of shape {(batch, length, width)}, early={early}, late={late}"
        growth = float(size[late] / size[early])
        given = expect_numbers(case, [answer(mixer, x, early, late)], ("growth",))["growth"]
        if not abs(given - growth) <= 1e-9 * growth:
            raise AssertionError(f"{case}: expected {growth:.6g}, given {given:.6g}")
    return f"{len(cases)} modules"


@checker
def step(answer: Callable[[nn.Module, Tensor, Any], tuple[Tensor, Any]]) -> str:
    """Check `step(layer, x, state)`: the layer, one token at a time.

    Every linear map is applied to new tokens only, and what is kept is two inputs, and the contents and gates so far.
    """
    source = _source()
    cases = [(1, 1, 4, 2), (1, 7, 4, 2), (3, 9, 6, 3), (2, 40, 4, 2)]
    for batch, length, width, heads in cases:
        layer = _Fourier(width, heads, source)
        texts = [_random(source, batch, length, width) for _ in range(2)]
        states = [None, None]
        for t in range(length):
            for k, x in enumerate(texts):  # in turns: what is kept belongs to its own text
                case = f"step at token {t} of {'one' if k == 0 else 'another'} text, x of shape {(batch, width)}"
                with _Applied(width) as seen:
                    given = answer(layer, x[:, t].clone(), states[k])
                if not isinstance(given, tuple | list) or len(given) != 2:
                    raise AssertionError(f"{case}: expected an output and a state, given a {type(given).__name__}")
                if seen.tokens > batch:
                    raise AssertionError(f"{case}: expected the linear maps to see the new token only, "
                                         f"given {seen.tokens // batch} tokens")
                y, states[k] = given
                expect_close(case, y, layer.whole(x[:, :t + 1])[:, -1])
                kept, needed = _numbers(states[k]) // (batch * width), 2 + 2 * (t + 1)
                if kept > needed:
                    raise AssertionError(f"{case}: expected at most {needed} vectors to be kept, given {kept}: "
                                         "the contents and the gates so far, and two inputs, are enough")
    return f"{2 * len(cases)} texts"


def _source() -> torch.Generator:
    return torch.Generator().manual_seed(6)


def _random(source: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=source)


def _block_diagonal(weight: Tensor, heads: int) -> Tensor:
    """Return the D by D matrix of a grouped convolution's weight, `[D, D / H, 1]`."""
    return torch.block_diag(*weight[..., 0].unflatten(0, (heads, -1)))


def _numbers(state: Any) -> int:
    """Count the numbers in the tensors of a state, in whatever it holds them."""
    if isinstance(state, Tensor):
        return state.numel()
    if isinstance(state, dict | list | tuple):
        return sum(map(_numbers, state.values() if isinstance(state, dict) else state))
    return sum(map(_numbers, getattr(state, "__dict__", {}).values()))


class _Fourier(nn.Module):
    """The layer of the chapter, PlainFourier, with random weights, its norm's too."""

    def __init__(self, width: int, heads: int, source: torch.Generator):
        super().__init__()
        self.n_heads = heads
        self.pre_conv = nn.Conv1d(width, width, 3, groups=width, bias=False)
        self.norm = nn.LayerNorm(width)
        self.to_value = nn.Linear(width, width)
        self.to_gate = nn.Linear(width, width)
        self.gate_mix = nn.Conv1d(width, width, 1, groups=heads)
        self.to_out = nn.Linear(width, width)
        self.double().requires_grad_(False)
        for weight in self.parameters():
            weight.copy_(_random(source, *weight.shape))

    def streams(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return contents and gates of a text, `[B, D, L]` each."""
        x = self.norm(self.pre_conv(F.pad(x.mT, (2, 0))).mT)
        return self.to_value(x).mT, self.gate_mix(F.silu(self.to_gate(x)).mT)

    def whole(self, x: Tensor) -> Tensor:
        """Apply the layer to a whole text, `[B, L, D]`."""
        return self.to_out(causal_conv_direct(*self.streams(x)).mT)


class _Applied(TorchFunctionMode):
    """Count the most vectors of `width` numbers that a product of matrices returns inside the `with` block.

    A convolution with one weight for each pair of channels is such a product.
    """

    def __init__(self, width: int):
        super().__init__()
        self.width, self.tokens = width, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        weight = args[1] if len(args) > 1 else (kwargs or {}).get("weight")
        if name in PRODUCTS or name == "conv1d" and weight.shape[-1] == 1:
            self.tokens = max(self.tokens, result.numel() // self.width)
        return result


class _Seen(TorchFunctionMode):
    """Note a call of a convolution or of block_diag, and a `width` by `width` matrix, inside the `with` block."""

    def __init__(self, width: int | None = None):
        super().__init__()
        self.width, self.forbidden = width, ""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name.startswith("conv") or name == "block_diag":
            self.forbidden = f"a call of {name}"
        elif self.width and isinstance(result, Tensor) and result.shape == (self.width, self.width):
            self.forbidden = self.forbidden or f"a matrix of {self.width} by {self.width}"
        return result
