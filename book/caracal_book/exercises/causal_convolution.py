"""Checkers for the exercises of chapter 4, causal convolution by FFT.

Sequences are float64 and drawn from a fixed seed: a right answer by FFT agrees with the slow sum to about
1e-14, a wrong one does not.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from caracal_min.convolution import (
    causal_conv_direct,
    causal_conv_fft,
    causal_conv_right_angle,
    circular_conv,
    linear_conv,
)

from . import checker, expect_close, expect_equal

__all__ = ["conv_by_squaring", "continue_sum", "is_causal", "next_block"]


@checker
def next_block(answer: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> str:
    """Check `next_block(block, g, carry)`: the outputs of a block of contents, and what it leaves for later ones."""
    cases = ((1, (1, 3)), (2, (1, 1, 1)), (3, (4, 4, 4)), (4, (1, 1, 1, 1, 1)), (5, (2, 1, 3, 9)), (8, (8, 8)),
             (16, (3, 20, 1, 7)), (64, (50, 64, 1)))
    source = torch.Generator().manual_seed(4)
    for taps, sizes in cases:
        g = torch.randn(taps, dtype=torch.float64, generator=source)
        text = torch.randn(sum(sizes), dtype=torch.float64, generator=source)
        carry = torch.zeros(taps - 1, dtype=torch.float64)
        for number, block in enumerate(text.split(sizes)):
            end = sum(sizes[:number + 1])
            product = linear_conv(text[:end], g)  # of all blocks so far: the newest outputs, then the carry
            case = f"next_block with a gate of {taps} and blocks of {sizes}, block {number}"
            given = answer(block.clone(), g.clone(), carry.clone())
            if not isinstance(given, tuple | list) or len(given) != 2:
                raise AssertionError(f"{case}: expected two tensors, outputs and carry, given {type(given).__name__}")
            expect_close(f"{case}: outputs", given[0], product[end - len(block):end])
            expect_close(f"{case}: carry", given[1], product[end:])
            carry = given[1]
    return f"{len(cases)} texts"


@checker
def is_causal(answer: Callable[[Callable[[Tensor, Tensor], Tensor], int], bool]) -> str:
    """Check `is_causal(f, length)`: True for every causal mixer, rounding included, False for every leak."""
    for mixers, verdict in ((_CAUSAL, True), (_LEAKY, False)):
        for name, f in mixers.items():
            for length in (4, 11, 32):
                case, given = f"is_causal({name}, length={length})", answer(f, length)
                if given is None:
                    raise AssertionError(f"{case}: expected {verdict}, given None; is a return missing?")
                expect_equal(case, bool(given), verdict)
    return f"{len(_CAUSAL)} causal and {len(_LEAKY)} leaky mixers"


_CAUSAL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "the direct sum": causal_conv_direct,
    "the padded FFT": causal_conv_fft,
    "the right-angle route": causal_conv_right_angle,
    "the direct sum, delayed by one token": lambda v, g: _shift(causal_conv_direct(v, g), 1),
    "the content itself": lambda v, g: v.clone(),
    "a million times the padded FFT": lambda v, g: 1e6 * causal_conv_fft(v, g),
}
_LEAKY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "the circular convolution": circular_conv,
    "a tiny circular convolution": lambda v, g: 1e-12 * circular_conv(v, g),
    "2L - 2 FFT points": lambda v, g: circular_conv(v, g, 2 * len(v) - 2)[:len(v)],
    "the sum, one token early": lambda v, g: linear_conv(v, g)[1:len(v) + 1],
    "the content reversed": lambda v, g: v.flip(-1) + g,
    "the gate reversed": lambda v, g: v + g.flip(-1),
    "the sum over the mean square of v": lambda v, g: causal_conv_direct(v, g) / v.pow(2).mean(),
    "the sum and a faint look ahead": lambda v, g: causal_conv_direct(v, g) + 1e-5 * _shift(v, -1),
    "the sum, output 0 with a faint look at v[1]": lambda v, g: causal_conv_direct(v, g) + _peek(v, 0),
    "the sum, output 0 with a faint look at g[1]": lambda v, g: causal_conv_direct(v, g) + _peek(g, 0),
    "the sum, output 2 with a faint look at v[3]": lambda v, g: causal_conv_direct(v, g) + _peek(v, 2),
    "the sum, output 2 with a faint look at g[3]": lambda v, g: causal_conv_direct(v, g) + _peek(g, 2),
}


def _shift(x: Tensor, by: int) -> Tensor:
    """Move x later (by > 0) or earlier (by < 0) in time, with zeros where nothing comes from."""
    return torch.nn.functional.pad(x, (by, -by))


def _peek(x: Tensor, output: int) -> Tensor:
    """Return a leak into one output: 1e-5 times the next entry of x there, zero elsewhere."""
    return 1e-5 * _shift(x, -1) * (torch.arange(len(x)) == output)


@checker
def conv_by_squaring(answer: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Check `conv_by_squaring(v, g)`: the causal convolution, `[..., L]`, one forward transform a pair."""
    lengths = (1, 2, 3, 4, 5, 7, 8, 16, 31, 64, 97, 100)
    source = torch.Generator().manual_seed(4)
    for length in lengths:
        v, g = torch.randn(2, 3, length, dtype=torch.float64, generator=source)
        case = f"conv_by_squaring with v and g of shape (3, {length})"
        with _CountTransforms() as counted:
            given = answer(v, g)
        expect_close(case, given, causal_conv_direct(v, g))
        if counted.forward != len(v):
            raise AssertionError(f"{case}: torch.fft.fft and torch.fft.rfft transformed {counted.forward} sequences, "
                                 f"expected {len(v)}, one for each pair")
    return f"{len(lengths)} lengths"


class _CountTransforms(TorchFunctionMode):
    """Count the sequences that torch.fft.fft and torch.fft.rfft transform inside the `with` block."""

    def __init__(self) -> None:
        super().__init__()
        self.forward = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in (torch.fft.fft, torch.fft.rfft):
            self.forward += result[..., 0].numel()
        return result


@checker
def continue_sum(answer: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]) -> str:
    """Check `continue_sum(tail, v, g, new_v, new_g)`: the outputs of m <= L new tokens after a prompt of L.

    A second run adds random numbers to the tail and expects them in the outputs: an answer that computes
    the products of two prompt tokens again does not return them.
    """
    cases = ((1, 1), (2, 1), (2, 2), (5, 3), (8, 8), (16, 5), (31, 30), (64, 64))
    source = torch.Generator().manual_seed(4)
    for length, new in cases:
        v, g = torch.randn(2, length + new, dtype=torch.float64, generator=source)
        tail = linear_conv(v[:length], g[:length])[length:]
        added = torch.randn(length - 1, dtype=torch.float64, generator=source)
        outputs = causal_conv_direct(v, g)[length:]
        case = f"continue_sum after a prompt of {length}, with {new} new"
        for name, extra in ((case, 0 * added), (f"{case} and random numbers added to the tail", added)):
            given = answer(tail + extra, v[:length], g[:length], v[length:], g[length:])
            expect_close(name, given, outputs + torch.nn.functional.pad(extra, (0, new))[:new])
    return f"{len(cases)} prompts"
