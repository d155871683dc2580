"""The figures of chapter 2, before any browser: their words."""

import math

import pytest
import torch

from caracal_book import viz
from caracal_min.convolution import linear_conv

V, G = torch.tensor([2, -1, 3]), torch.tensor([1.0, 2.0, -2.0])


@pytest.mark.parametrize("t", [0, 2, 4])
def test_antidiagonals_tells_the_product(t):
    figure = viz.antidiagonals(V, G, t)
    product = linear_conv(V.double(), G.double()).round().int().tolist()
    assert f"which are {product}" in figure.alt and f"its sum is {product[t]}" in figure.alt
    assert ("beyond the text" in figure.alt) == (t >= 3)


@pytest.mark.parametrize("n, twist, power, squares", [
    (8, 0.0, "1", 4), (8, math.pi / 8, "−1", 4), (8, math.pi / 16, "i", 4), (2, 3 * math.pi / 4, "−i", 1),
    (5, 0.0, "1", None), (16, math.pi / 64, "0.71 + 0.71 i", 8),
])
def test_roots_tells_its_facts(n, twist, power, squares):
    alt = viz.roots(n, twist=twist).alt
    assert f"z^{n} = {power}" in alt
    assert (f"{squares} different squares, each of two points" if squares else "squares that are all different") in alt
