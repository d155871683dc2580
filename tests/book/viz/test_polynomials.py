"""The figures of chapter 2, before any browser: their models, stills and words."""

import math
from xml.etree import ElementTree

import pytest
import torch
from figure_stills import still_of

from caracal_book import viz
from caracal_min.convolution import linear_conv

V, G = torch.tensor([2, -1, 3]), torch.tensor([1.0, 2.0, -2.0])


def words(svg):
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")]


@pytest.mark.parametrize("t", range(5))
def test_antidiagonals_still_tells_the_product(t):
    figure = viz.antidiagonals(V, G, t)
    product = linear_conv(V.double(), G.double()).round().int().tolist()
    text = words(still_of(figure))
    table = [str(int(a * b)).replace("-", "−") for a in V for b in G]
    assert text[:9] == table
    assert text[-1 - len(product):-1] == [str(c).replace("-", "−") for c in product]
    assert text[-1].startswith(f"coefficient {t}:") and text[-1].endswith(f" = {product[t]}".replace("-", "−"))
    assert f"its sum is {product[t]}" in figure.alt
    assert ("beyond the text" in figure.alt) == (t >= 3)


@pytest.mark.parametrize("n, twist, power, squares", [
    (8, 0.0, "1", 4), (8, math.pi / 8, "−1", 4), (8, math.pi / 16, "i", 4), (2, 3 * math.pi / 4, "−i", 1),
    (5, 0.0, "1", 5), (16, math.pi / 64, "0.71 + 0.71 i", 8),
])
def test_roots_still_tells_its_facts(n, twist, power, squares):
    figure = viz.roots(n, twist=twist)
    text = words(still_of(figure))
    assert f"z to the power {n} is {power} at every point" in text
    assert f"{squares} different squares" in text
    assert f"z^{n} = {power}" in figure.alt
