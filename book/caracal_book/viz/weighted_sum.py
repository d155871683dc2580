"""The figures of chapter 1: a mixer as a matrix of weights, one row of it, and what the row makes of the tokens."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from . import svg
from .figure import Figure
from .style import palette

__all__ = ["weighted_sum"]

_MIXERS = {"average": "average", "attention": "attention", "dft": "DFT, real part"}
_WIDTH, _LEFT, _RIGHT, _CELL = 420, 58, 8, 32  # of the still, in its own units
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
    still = _still(words, numbers, weights, name, row, matrix)
    alt = _alt(words, name, row, future) if matrix else _alt_of_terms(words, name, row, weights)
    return Figure("weighted_sum", model, still, alt, state=("x", "before", "mixer", "masked", "row", "token"))


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


def _still(words: Sequence[str], x: Tensor, weights: Tensor, name: str, row: int, matrix: bool) -> str:
    """Draw the first frame as SVG: the matrix and its row, unless they are left out, the tokens, the outputs."""
    length = len(x)
    pitch = (_WIDTH - _LEFT - _RIGHT) / length
    past, total = (weights.tril() @ x), weights @ x
    parts, rows, top = [], [], 0.0
    zero = torch.zeros(length)
    shade = [_shade(j > row, palette.ink) for j in range(length)]
    share = [_shade(j > row, palette.content) for j in range(length)]
    if matrix:
        parts = [svg.text(12, 20, f"the matrix A of weights: {name}", weight=600),
                 svg.rect(6, 30 + _CELL * row, _WIDTH - 12, _CELL, rx=3, fill=palette.shade, stroke=palette.ink)]
        for t in range(length):
            middle = 30 + _CELL * (t + 0.5)
            parts.append(svg.text(_LEFT - 8, middle + 4, words[t], "end"))
            parts += [_mark(_LEFT + pitch * (j + 0.5), middle, float(weights[t, j]), _shade(j > t, palette.ink))
                      for j in range(length)]
        top = 30 + _CELL * length
        numbers = [svg.said(w) for w in weights[row].tolist()]
        rows = [(f"row {row} of A: the weights", numbers, [(None, zero, weights[row], 0.6, shade)])]
    rows += [(f"inputs (outline), terms of r at {row} (solid)", words,
              [(palette.content, zero, x, 0.6, ["none"] * length), (None, zero, weights[row] * x, 0.6, share)]),
             (f"outputs: r at {row} is {svg.said(float(total[row]))}", words,
              [(None, zero, past, 0.6, [palette.result] * length),
               (None, past, total, 0.3, [palette.wrapped] * length)])]
    for title, labels, layers in rows:
        parts += _bars(top, title, labels, layers, pitch)
        top += 126
    parts.append(svg.key(12, top + 18, svg.entry("from the future", fill=palette.wrapped)))
    return svg.frame(_WIDTH, top + 28, *parts)


def _shade(future: bool, otherwise: str) -> str:
    return palette.wrapped if future else otherwise


def _mark(x: float, y: float, weight: float, colour: str) -> str:
    """Draw a square whose area is the size of the weight, hollow where it is negative."""
    side = (_CELL - 5) * math.sqrt(abs(weight))
    look = {"fill": colour} if weight >= 0 else {"fill": "none", "stroke": colour, "stroke_width": 1.6}
    return svg.rect(x - side / 2, y - side / 2, side, side, **look)


def _bars(top: float, title: str, labels: Sequence[str], layers: list, pitch: float) -> list[str]:
    """Draw a titled row of bars; a layer is (stroke, from, to, share of the column, fills)."""
    height = 70
    ends = torch.cat([end for _, start, stop, *_ in layers for end in (start, stop)])
    low, high = min(0.0, float(ends.min())), max(1e-9, float(ends.max()))

    def y(value: float) -> float:
        return top + 34 + height * (high - value) / (high - low)

    parts = [svg.text(12, top + 24, title, weight=600),
             svg.path("M", _LEFT, y(0), "H", _WIDTH - _RIGHT, stroke=palette.muted)]
    for stroke, start, stop, share, fills in layers:
        parts += [svg.bar(_LEFT + pitch * (j + 0.5 - share / 2), pitch * share, y(a), y(b), fill=fill, stroke=stroke)
                  for j, (a, b, fill) in enumerate(zip(start.tolist(), stop.tolist(), fills, strict=True))]
    return parts + [svg.text(_LEFT + pitch * (j + 0.5), top + 34 + height + 16, label, "middle")
                    for j, label in enumerate(labels)]
