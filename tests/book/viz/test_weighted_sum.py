"""The weighted-sum figure: its still, its words and its data."""

import re

import pytest
import torch
from figure_stills import still_of

from caracal_book import viz

WORDS = "the cat sat on the mat".split()
X = [0.6, 1.4, -1.1, -0.4, 0.6, 1.0]


def marks(figure):
    """The 36 squares of the matrix: (side, colour, whether hollow)."""
    squares = re.findall(r'width="([\d.]+)" height="\1" (fill="none" stroke|fill)="(#\w+)"', still_of(figure))
    return [(float(side), colour, "none" in paint) for side, paint, colour in squares][:36]


@pytest.mark.parametrize("mixer", ["average", "attention", "dft"])
@pytest.mark.parametrize("masked", [False, True])
def test_the_still_shows_the_weights(mixer, masked):
    figure = viz.weighted_sum(WORDS, X, mixer, masked=masked, row=3)
    x = torch.tensor(X, dtype=torch.float64)
    if mixer == "dft":
        weights = torch.fft.fft(torch.eye(6, dtype=torch.float64)).real
        weights = weights.tril() if masked else weights
    else:
        e = torch.outer(x, x).exp() if mixer == "attention" else torch.ones(6, 6, dtype=torch.float64)
        e = e.tril() if masked else e
        weights = e / e.sum(1, keepdim=True)
    sides = torch.tensor([side for side, *_ in marks(figure)], dtype=torch.float64)
    assert torch.allclose((sides / 27) ** 2, weights.flatten().abs(), atol=0.01)
    for k, (side, colour, hollow) in enumerate(marks(figure)):
        if side:
            assert (colour == viz.palette.wrapped) == (k % 6 > k // 6)
            assert hollow == (weights.flatten()[k] < 0)
    assert f"r at 3 is {weights[3] @ x:.2f}".replace("-", "−") in still_of(figure)
    assert f"{0 if masked else 15} of them on later tokens" in figure.alt and "the cat sat on the mat" in figure.alt
