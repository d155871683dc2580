"""Checkers for the exercises of chapter 11, how fast.

Expected values come from the definitions, tried one length or batch at a time.
"""

import math
from collections.abc import Callable

from . import checker, ensure, expect

__all__ = ["caches_outweigh", "cheaper_for_good", "product_intensity", "tokens_to_fill"]


@checker
def product_intensity(answer: Callable) -> str:
    """Check `product_intensity(d_in, d_out, tokens, bytes_each)`: operations per byte of a linear layer on a batch."""
    cases = [(d_in, d_out, tokens, size) for d_in, d_out in ((512, 512), (512, 1408), (64, 3))
             for tokens in (1, 7, 65536) for size in (2, 4)]
    for d_in, d_out, tokens, size in cases:
        operations, weights = 2 * tokens * d_in * d_out, d_in * d_out
        right = operations / (size * (tokens * (d_in + d_out) + weights))
        expect(f"product_intensity of {d_in} x {d_out} weights, {tokens} tokens, {size} bytes each",
               answer(d_in, d_out, tokens, size), right, {
            "the weights are read too, once for the batch": operations / (size * tokens * (d_in + d_out)),
            "two operations a weight and token, a multiplication and an addition": right / 2,
            "a number has `bytes_each` bytes, and every number that is read or written counts its bytes": right * size,
            "the results are written, and count like what is read": operations / (size * (tokens * d_in + weights)),
            "the weights are read once for the batch, not once for each token":
                operations / (size * tokens * (d_in + d_out + weights))})
    return f"{len(cases)} layers"


@checker
def tokens_to_fill(answer: Callable) -> str:
    """Check `tokens_to_fill(width, bytes_each, rate, bandwidth)`: from which batch on compute binds a product."""
    # Whole numbers, so that equality is exact: rate over bandwidth is the ridge, in operations per byte.
    cases = [(width, size, ridge) for width in (64, 512, 4096) for size in (2, 4) for ridge in (1, 8, 16, 153, 300)]
    for width, size, ridge in [*cases, (4096, 2, 2047)]:  # the last just below the intensity of a large batch
        def filled(each: int, size: int, moved: int, more: int = 0, width=width, ridge=ridge) -> int | None:
            """Return the first batch by so many operations a weight, and so many bytes of a token."""
            steeper = each * width**2 - size * moved * width * ridge
            return (size * width**2 * ridge - 1 + more) // steeper + 1 if steeper > 0 else None

        lines = "both counts are lines in the number of tokens: which is steeper?"
        given, right = answer(width, size, ridge * 1e12, 1e12), filled(2, size, 2)
        expect(f"tokens_to_fill of width {width}, {size} bytes each, ridge at {ridge}", given, right, {
            lines: given if None in (given, right) else math.nan,
            "your number fits a count without the tokens, which are read and written": filled(2, size, 0),
            "your number fits a count without the results": filled(2, size, 1),
            "your number fits a count of one operation a weight": filled(1, size, 2),
            "your number fits a count of one byte a number": filled(2, 1, 2),
            "where both take equally long, the product computes: the bound is not strict": filled(2, size, 2, 1)})
    return f"{len(cases) + 1} devices and widths"


@checker
def cheaper_for_good(answer: Callable) -> str:
    """Check `cheaper_for_good(width, heads)`: from which length on a Fourier mixer has fewer operations, and a proof.

    The second number is a length from which on the difference is positive and rises for ever.
    """
    cases = ((4, 1), (8, 1), (8, 8), (16, 2), (16, 16), (24, 4), (32, 8), (64, 8), (512, 8), (512, 1))
    for width, heads in cases:
        case, given = f"cheaper_for_good with width {width} and {heads} heads", answer(width, heads)
        ensure(isinstance(given, tuple | list) and len(given) == 2,
               f"{case}: expected two lengths, given {given!r}; return both, the length from which on it is cheaper, "
               "and the length from which on nothing can change")
        length, bound = given
        gains = [_gain(width, heads, length) for length in range(1, 1000)]  # from 11 on they rise, then are positive
        expect(case, length, max((n for n, gain in enumerate(gains, 1) if gain <= 0), default=0) + 1, {
            "the difference falls at first: cheaper once is not cheaper for good":
                next(n for n, gain in enumerate(gains, 1) if gain > 0)})
        ensure(15 * math.log1p(1 / bound) / math.log(2) < 2,
               f"{case}: from the second length, {bound}, to the next one the difference should be rising, and falls "
               "(compare 2 with 15 log2(1 + 1/L)); it may yet become negative")
        ensure(_gain(width, heads, min(bound, 10**18)) > 0,
               f"{case}: at the second length, {bound}, the difference should be positive, and is not")
    return f"{len(cases)} layers"


def _gain(width: int, heads: int, length: int) -> float:
    """Return the operations of an attention mixer less those of a Fourier mixer, per token."""
    attention = 8 * width**2 + 2 * width * (length + 1)
    return attention - (6 * width**2 + 2 * width**2 / heads + width * (15 * math.log2(2 * length) + 6))


@checker
def caches_outweigh(answer: Callable) -> str:
    """Check `caches_outweigh(weights, width, fourier, windows, full, window, texts)`: a context, in tokens."""
    cases = ((62_494_208, 512, 8, 4, 0, 256, 1), (62_494_208, 512, 8, 4, 0, 256, 64),
             (64_280_064, 512, 0, 0, 12, 256, 9), (61_000_000, 512, 0, 12, 0, 256, 1),
             (61_000_000, 512, 0, 12, 0, 256, 64), (10_000, 8, 1, 1, 1, 4, 1),
             (10_240, 8, 2, 3, 0, 64, 1), (50_000, 8, 0, 2, 1, 100, 2))
    for case in cases:
        weights, width, fourier, windows, full, window, texts = case
        pairs, growing = -(-weights // (2 * width)), fourier + full

        def first(layers: int, held: int, texts: int = texts, pairs=pairs) -> int | None:
            """Return when layers that grow, beside so many vectors, have enough; rounded up twice is rounded up."""
            return -(-(-(-pairs // texts) - held) // layers) if layers else None

        unfilled = first(growing + windows, 0)
        filled = first(growing, windows * window)
        right = unfilled if unfilled is not None and unfilled <= window else filled
        given = answer(*case)
        expect(f"caches_outweigh with {weights} weights, width {width}, {fourier} Fourier, {windows} window and {full} "
               f"full layers, window {window}, {texts} texts", given, right, {
            "a window stops growing, the other layers do not": given if None in (given, right) else math.nan,
            "a window holds no more than `window` tokens": unfilled,
            "a text shorter than a window does not fill it": filled,
            "a window layer too keeps keys and values, of up to `window` tokens": first(growing, 0),
            "each text has a cache of its own": first(growing, windows * window, 1),
            "a token has two vectors in each layer": first(growing, windows * window, texts, 2 * pairs)})
    return f"{len(cases)} models"
