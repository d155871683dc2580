"""The figures of chapter 1: a mixer as a matrix of weights, one row of it, and what the row makes of the tokens."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .figure import Figure

__all__ = ["weighted_sum"]

_MIXERS = {"average": "average", "attention": "attention", "dft": "DFT, real part"}
_LIMIT = 2.0  # of a token's number


def weighted_sum(words: Sequence[str], x: Sequence[float], mixer: str = "attention", *, masked: bool = False,
                 row: int = 0, matrix: bool = True) -> Figure:
    """Show the weights of a mixer as a matrix, one row of them at the tokens, and all outputs.

    Each token carries one number, which serves as its query, key and content.  The reader picks the mixer and
    the row, switches the causal mask, and drags the tokens' numbers.  Weights on later tokens, and what they
    bring in, are drawn in vermilion.

    Args:
        words: the tokens, 3 to 8 of them to stay legible.
        x: one number for each, between -2 and 2.
        mixer: "average", "attention" or "dft" (the real part of the discrete Fourier transform).
        masked: whether the start shows the mixer with its causal mask, which for attention acts before the
            softmax and for the average leaves the mean of what was read so far.
        row: the output chosen at the start.
        matrix: whether to show the matrix, its row and the choice of a mixer; without them the figure has the
            tokens' numbers, the terms of one output, and all outputs.

    Raises:
        ValueError: numbers and words do not match, too few or too many, a number too large, an unknown mixer,
            a row that is not there.

    Source: Caracal, Section 4.1, attention and the Fourier transform as weighted sums.
    """
    numbers = torch.round(torch.as_tensor(x, dtype=torch.float64), decimals=3)
    if numbers.shape != (len(words),) or not 3 <= len(words) <= 8:
        raise ValueError(f"{len(words)} words and x of shape {tuple(numbers.shape)}; "
                         "give one number for each of 3 to 8 words")
    if not numbers.abs().max() <= _LIMIT:
        raise ValueError(f"the largest number is {float(numbers.abs().max())}; give numbers between -2 and 2")
    if mixer not in _MIXERS:
        raise ValueError(f"unknown mixer {mixer!r}; accepted: {', '.join(_MIXERS)}")
    if not 0 <= row < len(words):
        raise ValueError(f"row={row}; for {len(words)} words give 0 to {len(words) - 1}")
    model = {"words": list(words), "x": numbers.tolist(), "before": numbers.tolist(), "mixer": mixer,
             "masked": bool(masked), "row": row, "token": len(words) - 1, "matrix": bool(matrix)}
    weights = _weights(mixer, masked, numbers)
    future = int((weights.triu(1).abs() > 1e-9).sum())
    name = f"{_MIXERS[mixer]}, {'masked' if masked else 'no mask'}"
    alt = _alt(words, name, row, future) if matrix else _alt_of_terms(words, name, row, weights)
    return Figure("weighted_sum", model, None, alt, state=("x", "before", "mixer", "masked", "row", "token"))


def _weights(mixer: str, masked: bool, x: Tensor) -> Tensor:
    """Return the matrix of weights, `[L, L]`, rows of outputs."""
    t = torch.arange(len(x))
    if mixer == "dft":
        weights = torch.cos(2 * math.pi * (t[:, None] * t % len(x)).to(x.dtype) / len(x))
        return weights.tril() if masked else weights
    scores = x[:, None] * x if mixer == "attention" else torch.zeros(len(x), len(x), dtype=x.dtype)
    future = torch.ones_like(scores).triu(1).bool()
    return (scores.masked_fill(future, -math.inf) if masked else scores).softmax(-1)


def _alt(words: Sequence[str], name: str, row: int, future: int) -> str:
    return (f"A square of {len(words)} by {len(words)} weights of a mixer ({name}), {future} of them on later tokens, "
            f"for the words {' '.join(words)}. Below it row {row} as bars, the number of each word and how much of "
            f"it the row takes, and all outputs. Choose the mixer, the row and the mask, and change the numbers, "
            f"by pointer or by keyboard.")


def _alt_of_terms(words: Sequence[str], name: str, row: int, weights: Tensor) -> str:
    later = [word for word, weight in zip(words[row + 1:], weights[row, row + 1:].tolist(), strict=True)
             if abs(weight) > 1e-9]
    return (f"Two rows of bars for the words {' '.join(words)}: above the input of each word and, inside it, the term "
            f"that it adds to output {row} ({name}); below all outputs. {len(later)} of the terms come from words "
            f"after {words[row]} and are vermilion. Choose the output and change the inputs, by pointer or keyboard.")
