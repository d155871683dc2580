"""Checkers for the exercises of chapter 11, how fast.

Expected values come from the definitions, tried one length or batch at a time.
"""

import math
from collections.abc import Callable
from functools import partial
from numbers import Real

from . import checker

__all__ = ["caches_outweigh", "cheaper_for_good", "product_intensity", "tokens_to_fill"]

_FAR = 10**18  # lengths beyond are refused: their costs are no floats


@checker
def product_intensity(answer: Callable[[int, int, int, int], float]) -> str:
    """Check `product_intensity(d_in, d_out, tokens, bytes_each)`: operations per byte of a linear layer on a batch."""
    cases = [(d_in, d_out, tokens, size) for d_in, d_out in ((512, 512), (512, 1408), (64, 3))
             for tokens in (1, 7, 65536) for size in (2, 4)]
    for d_in, d_out, tokens, size in cases:
        numbers = tokens * d_in + tokens * d_out + d_in * d_out
        given = answer(d_in, d_out, tokens, size)
        given = given.item() if hasattr(given, "item") else given  # a scalar of NumPy or PyTorch
        expected = 2 * tokens * d_in * d_out / (size * numbers)
        case = f"product_intensity of {d_in} x {d_out} weights, {tokens} tokens, {size} bytes each"
        if isinstance(given, bool) or not isinstance(given, Real) or not math.isclose(given, expected, rel_tol=1e-6):
            found = {"two operations a weight and token, a multiplication and an addition": expected / 2,
                     "a number has `bytes_each` bytes, and every number that is read or written counts its bytes":
                         expected * size,
                     "the weights are read too, once for the batch":
                         2 * tokens * d_in * d_out / (size * tokens * (d_in + d_out)),
                     "the results are written, and count like what is read":
                         2 * tokens * d_in * d_out / (size * (numbers - tokens * d_out)),
                     "the weights are read once for the batch, not once for each token":
                         2 * d_in * d_out / (size * (d_in + d_out + d_in * d_out)),
                     "the intensity is operations divided by bytes, not the other way round": 1 / expected}
            hints = [hint for hint, wrong in found.items()
                     if isinstance(given, Real) and math.isclose(given, wrong, rel_tol=1e-6)]
            hint = (*hints, "two operations a weight and token, and every number that is read or written counts its "
                            "bytes")[0]
            raise AssertionError(f"{case}: expected {expected:.6g}, given {given!r}; {hint}")
    return f"{len(cases)} layers"


@checker
def tokens_to_fill(answer: Callable[[int, int, float, float], int | None]) -> str:
    """Check `tokens_to_fill(width, bytes_each, rate, bandwidth)`: from which batch on compute binds a product."""
    # Whole numbers, so that equality is exact: rate over bandwidth is the ridge, in operations per byte.
    ridges = (1, 8, 16, 153, 300)
    cases = [(width, size, ridge) for width in (64, 512, 1024, 4096) for size in (2, 4) for ridge in ridges]
    cases.append((4096, 2, 2047))  # just below the intensity of a large batch: millions of tokens
    for number, (width, size, ridge) in enumerate(cases):
        bandwidth = (1e12, 2e12, 5e11)[number % 3]

        def filled(tokens, width=width, size=size, ridge=ridge):
            return 2 * tokens * width**2 >= size * (2 * tokens * width + width**2) * ridge

        never = width <= size * ridge  # the slopes in the number of tokens
        given, expected = answer(width, size, ridge * bandwidth, bandwidth), None if never else _first(filled)
        level = expected is not None and given == expected + 1 and (
            2 * expected * width**2 == size * (2 * expected * width + width**2) * ridge)
        wrong = {"without the tokens": (2, size, 0), "without the results": (2, size, 1),  # steps and start of a line
                 "of one operation a weight": (1, size, 2), "of one byte a number": (2, 1, 2)}
        fits = [f"; your number fits a count {of}" for of, (each, b, moved) in wrong.items()
                if each * width > b * moved * ridge
                and given == _first(lambda n, w=width, r=ridge, each=each, b=b, moved=moved:
                                    each * n * w >= b * (moved * n + w) * r)]
        if isinstance(given, Real) and given % 1 != 0:
            fits = ["; return a whole number, the first batch that computes"]
        _expect(f"tokens_to_fill of width {width}, {size} bytes each, ridge at {ridge}", given, expected,
                "both counts are lines in the number of tokens: which is steeper?",
                "where both take equally long, the product computes: the bound is not strict" if level else
                "a token is read and written, the weights are read once" + "".join(fits[:1]))
    return f"{len(cases)} devices and widths"


@checker
def cheaper_for_good(answer: Callable[[int, int], tuple[int, int]]) -> str:
    """Check `cheaper_for_good(width, heads)`: from which length on a Fourier mixer has fewer operations, and a proof.

    The second number is a length from which on the difference is positive and rises for ever.
    """
    cases = ((4, 1), (8, 1), (8, 8), (16, 2), (16, 16), (24, 4), (32, 2), (32, 8), (64, 8), (512, 8), (512, 1))
    for width, heads in cases:
        case, given = f"cheaper_for_good with width {width} and {heads} heads", answer(width, heads)
        pair = isinstance(given, tuple | list) and len(given) == 2
        if not pair or not all(isinstance(x, Real) and not isinstance(x, bool) and 1 <= x < math.inf for x in given):
            raise AssertionError(f"{case}: expected two lengths, given {given!r}; return both, the length from which "
                                 "on it is cheaper, and the length from which on nothing can change")
        length, bound = given
        if bound > _FAR:
            raise AssertionError(f"{case}: the second length should be at most 10^18, and has about "
                                 f"{math.log10(bound):.0f} digits")
        lengths = range(1, 1000)  # from 11 on the difference rises, at 1,000 it is positive for every width
        dearer = [length for length in lengths if _gain(width, heads, length) <= 0]
        _expect(case, length, max(dearer, default=0) + 1, "",
                "the difference falls at first: cheaper once is not cheaper for good")
        if 15 * math.log1p(1 / bound) / math.log(2) >= 2:
            raise AssertionError(f"{case}: from the second length, {bound}, to the next one the difference should be "
                                 "rising, and falls (compare 2 with 15 log2(1 + 1/L)); it may yet become negative")
        if _gain(width, heads, bound) <= 0:
            raise AssertionError(f"{case}: at the second length, {bound}, the difference should be positive, "
                                 "and is not")
    return f"{len(cases)} layers"


@checker
def caches_outweigh(answer: Callable[..., int | None]) -> str:
    """Check `caches_outweigh(weights, width, fourier, windows, full, window, texts)`: a context, in tokens."""
    cases = ((62_494_208, 512, 8, 4, 0, 256, 1), (62_494_208, 512, 8, 4, 0, 256, 64),
             (64_280_064, 512, 0, 0, 12, 256, 1), (64_280_064, 512, 0, 0, 12, 256, 16),
             (61_000_000, 512, 0, 12, 0, 256, 1), (61_000_000, 512, 0, 12, 0, 256, 64), (10_000, 8, 1, 1, 1, 4, 1),
             (10_000, 8, 1, 0, 0, 1, 1000), (10_240, 8, 2, 3, 0, 64, 1), (50_000, 8, 0, 2, 1, 100, 2),
             (300_000_000_000, 8192, 8, 8, 0, 1024, 1))
    for weights, width, fourier, windows, full, window, texts in cases:
        def heavy(context, in_windows=min, case=(weights, width, fourier, windows, full, window, texts)):
            weights, width, fourier, windows, full, window, texts = case
            vectors = (fourier + full) * context + windows * in_windows(window, context)
            return texts * 2 * width * vectors >= weights

        never = not fourier + full and not heavy(window)
        expected = None if never else _first(heavy)
        given = answer(weights, width, fourier, windows, full, window, texts)
        wrong = {"a window layer too keeps keys and values, of up to `window` tokens": lambda window, context: 0,
                 "a window holds no more than `window` tokens": lambda window, context: context,
                 "a text shorter than a window does not fill it": lambda window, context: window}
        hints = [hint for hint, in_windows in wrong.items() if given is not None and fourier + full
                 and given == _first(partial(heavy, in_windows=in_windows))]
        _expect(f"caches_outweigh with {weights} weights, width {width}, {fourier} Fourier, {windows} window and "
                f"{full} full layers, window {window}, {texts} texts", given, expected,
                "a window stops growing, the other layers do not",
                (*hints, "two numbers a channel, token and text; a window holds no more than `window` tokens")[0])
    return f"{len(cases)} models"


def _gain(width: int, heads: int, length: int) -> float:
    """Return the operations of an attention mixer less those of a Fourier mixer, per token."""
    attention = 8 * width**2 + 2 * width * (length + 1)
    return attention - (6 * width**2 + 2 * width**2 / heads + width * (15 * math.log2(2 * length) + 6))


def _first(holds: Callable[[int], bool]) -> int:
    """Return the smallest whole number >= 1 for which a condition holds that goes on to hold."""
    high = 1
    while not holds(high):
        high *= 2
    low = high // 2  # too small, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _expect(case: str, given: object, expected: int | None, if_none: str, if_wrong: str) -> None:
    """Compare whole numbers, whatever holds them, or None; give a hint where one of the two is None, or another."""
    same = given is None if expected is None else (isinstance(given, Real) and not isinstance(given, bool)
                                                   and given == expected)
    if not same:
        hint = if_none if None in (given, expected) and if_none else if_wrong
        raise AssertionError(f"{case}: expected {expected}, given {given!r}; {hint}")
