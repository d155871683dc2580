"""Checkers for the exercises of chapter 4, causal convolution by FFT."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from caracal_min.convolution import (
    causal_conv_direct,
    causal_conv_fft,
    causal_conv_right_angle,
    circular_conv,
    linear_conv,
)

from . import checker, drawer, expect, expect_verdicts
from .counting import Watch

__all__ = ["conv_by_squaring", "continue_sum", "is_causal", "next_block"]


@checker
def next_block(answer: Callable) -> str:
    """Check `next_block(block, g, carry)`: the outputs of a block of contents, and what it leaves for later ones."""
    cases = ((1, (1, 3)), (2, (1, 1, 1)), (3, (4, 4, 4)), (5, (2, 1, 3, 9)), (16, (3, 20, 1, 7)), (64, (50, 64, 1)))
    draw = drawer(4)
    for taps, sizes in cases:
        g, text, carry = draw(taps), draw(sum(sizes)), torch.zeros(taps - 1, dtype=torch.float64)
        for number, block in enumerate(text.split(sizes)):
            m, end = len(block), sum(sizes[:number + 1])
            product, alone = linear_conv(text[:end], g), linear_conv(block, g)  # of all blocks so far, of this one
            right = product[end - m:end], product[end:]
            expect(f"next_block with a gate of {taps} and blocks of {sizes}, block {number}",
                   answer(block.clone(), g.clone(), carry.clone()), dict(zip(("outputs", "carry"), right, strict=True)),
                   {"add the carry of the block before": (alone[:m], alone[m:]),
                    "the new carry is what this block leaves, and not the one before": (right[0], carry),
                    "a carry that is longer than the block reaches into the next one, too": (right[0], alone[m:])})
            carry = right[1]
    return f"{len(cases)} texts"


@checker
def is_causal(answer: Callable) -> str:
    """Check `is_causal(f, length)`: True for every causal mixer, rounding included, False for every leak."""
    return expect_verdicts(answer, "is_causal", _MIXERS, ((4,), (11,), (32,)))


def _peek(x: Tensor, output: int) -> Tensor:
    """Return a leak into one output: 1e-5 times the next entry of x there, zero elsewhere."""
    return 1e-5 * pad(x, (-1, 1)) * (torch.arange(len(x)) == output)


_ROUNDING = "an FFT rounds, so what should be zero is about 1e-16 of the output"
_SCALE = "compare with the size of the outputs, and not with a fixed number"
_ONE_PLACE = "a leak may stand at a single position, and may come through v or through g alone"
_MIXERS = {
    "the direct sum": (causal_conv_direct, True, "no later v or g has any effect on an output"),
    "the padded FFT": (causal_conv_fft, True, _ROUNDING),
    "the right-angle route": (causal_conv_right_angle, True, _ROUNDING),
    "a million times the padded FFT": (lambda v, g: 1e6 * causal_conv_fft(v, g), True, _SCALE),
    "the circular convolution": (circular_conv, False, "later tokens wrap around"),
    "a tiny circular convolution": (lambda v, g: 1e-12 * circular_conv(v, g), False, _SCALE),
    "the gate reversed": (lambda v, g: v + g.flip(-1), False, _ONE_PLACE),
    "the sum over the mean square of v": (lambda v, g: causal_conv_direct(v, g) / v.pow(2).mean(), False,
                                          "the last token changes all outputs"),
    "the sum, output 0 with a faint look at v[1]": (lambda v, g: causal_conv_direct(v, g) + _peek(v, 0), False,
                                                    _ONE_PLACE),
    "the sum, output 2 with a faint look at g[3]": (lambda v, g: causal_conv_direct(v, g) + _peek(g, 2), False,
                                                    _ONE_PLACE),
}


@checker
def conv_by_squaring(answer: Callable) -> str:
    """Check `conv_by_squaring(v, g)`: the causal convolution, `[..., L]`, one forward transform a pair."""
    lengths, draw = (1, 2, 3, 5, 8, 31, 64, 100), drawer(4)
    for length in lengths:
        v, g = draw(2, 3, length)
        case, right = f"conv_by_squaring with v and g of shape (3, {length})", causal_conv_direct(v, g)
        with Watch() as seen:
            given = answer(v, g)
        expect(case, given, right, {"the imaginary part of a square is 2vg: halve it": 2 * right,
                                    "without padding the end wraps around to the start": circular_conv(v, g)})
        forward = [math.prod(call.made[0][:-1]) for call in seen.transforms if call.name in ("fft_fft", "fft_rfft")]
        expect(f"{case}, sequences transformed", sum(forward), 3, {"transform v + ig, and not each by itself": 6})
    return f"{len(lengths)} lengths"


@checker
def continue_sum(answer: Callable) -> str:
    """Check `continue_sum(tail, v, g, new_v, new_g)`: the outputs of m <= L new tokens after a prompt of L.

    A second run adds random numbers to the tail and expects them in the outputs: an answer that computes
    the products of two prompt tokens again does not return them.
    """
    cases, draw = ((1, 1), (2, 1), (2, 2), (5, 3), (16, 5), (31, 30), (64, 64)), drawer(4)
    for length, new in cases:
        v, g = draw(2, length + new)
        old, late = (v[:length], g[:length]), (v[length:], g[length:])
        tail, right = linear_conv(*old)[length:], causal_conv_direct(v, g)[length:]
        case = f"continue_sum after a prompt of {length}, with {new} new"
        for name, extra in ((case, 0 * tail), (f"{case} and numbers added to the tail", draw(length - 1))):
            kept, added = (pad(x, (0, new))[:new] for x in (tail + extra, extra))
            expect(name, answer(tail + extra, *old, *late), right + added, {
                "the products of two prompt tokens are in the tail, and have to be added": right + added - kept,
                "do not compute the tail again, use the one given": right,
                "a new token meets the first gates and contents of the prompt, and not the last": kept + (
                    causal_conv_direct(old[0][:new], late[1]) + causal_conv_direct(late[0], old[1][-new:]))})
    return f"{len(cases)} prompts"
