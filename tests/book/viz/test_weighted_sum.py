"""The weighted-sum figure: its still, its words and its data, and what it refuses."""

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


def test_without_its_matrix_the_still_shows_the_terms_of_one_output():
    """The real part of the DFT of six words; row 1 is 1, 0.5, -0.5, -1, -0.5, 0.5."""
    figure = viz.weighted_sum(WORDS, X, "dft", row=1, matrix=False)
    text = still_of(figure)
    assert "the matrix A" not in text and "row 1 of A" not in text
    assert "terms of r at 1" in text and "r at 1 is 2.45" in text
    solid = re.findall(r'fill="(#[0-9A-F]{6})"', text[:text.index("outputs: r")])
    assert solid.count(viz.palette.wrapped) == 4 and solid.count(viz.palette.content) == 2
    assert "4 of the terms come from words after cat" in figure.alt and "matrix" not in figure.alt


def test_words_are_escaped_in_the_still():
    text = still_of(viz.weighted_sum(["<b>", "&", '"q"'], [1, 0, -1]))
    assert "<b>" not in text and "&lt;b&gt;" in text and "&amp;" in text


def test_numbers_may_come_as_a_tensor_and_are_rounded():
    figure = viz.weighted_sum(WORDS, torch.tensor(X) + 1e-5)
    assert figure.model["x"] == X and figure.to_html() == viz.weighted_sum(WORDS, X).to_html()


@pytest.mark.parametrize("arguments, options, message", [
    ((WORDS, X[:5]), {}, r"6 words and x of shape \(5,\)"),
    ((WORDS[:2], X[:2]), {}, "3 to 8 words"),
    ((WORDS * 2, X * 2), {}, "3 to 8 words"),
    ((WORDS, [3.0, *X[1:]]), {}, "the largest number is 3.0; give numbers between -2 and 2"),
    ((WORDS, [float("nan"), *X[1:]]), {}, "give numbers between -2 and 2"),
    ((WORDS, X, "fnet"), {}, "unknown mixer 'fnet'; accepted: average, attention, dft"),
    ((WORDS, X), {"row": 6}, "row=6; for 6 words give 0 to 5"),
    ((WORDS, X), {"row": -1}, "row=-1"),
])
def test_bad_arguments_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        viz.weighted_sum(*arguments, **options)
