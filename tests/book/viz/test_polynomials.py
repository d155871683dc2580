"""The figures of chapter 2, before any browser: their models, stills and words, and the input they refuse."""

import math
import re
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


def test_antidiagonals_still_warns_beyond_the_text():
    svg = still_of(viz.antidiagonals(V, G))
    diamonds = re.findall(r'<path d="M[^"]*Z" fill="(#\w+)"', svg)
    expected = [viz.palette.result if j + i < 3 else viz.palette.wrapped for j in range(3) for i in range(3)]
    assert [colour for colour in diamonds if colour != viz.palette.paper] == expected


def test_antidiagonals_starts_in_the_middle_and_keeps_whole_numbers():
    figure = viz.antidiagonals(V, G)
    assert figure.model == {"v": [2, -1, 3], "g": [1, 2, -2], "t": 2, "limit": 9}
    assert figure.to_html() == viz.antidiagonals(V.double(), G.int()).to_html()


@pytest.mark.parametrize("arguments, message", [
    ((V, G[:2]), r"v has shape \(3,\) and g has shape \(2,\); give two sequences of one length between 2 and 8"),
    ((V[:1], G[:1]), "between 2 and 8"),
    ((torch.ones(9), torch.ones(9)), "between 2 and 8"),
    ((V[None], G[None]), "between 2 and 8"),
    ((V, G + 0.5), r"g\[0\] is 1.5; give whole numbers from -9 to 9"),
    ((V * 5, G), r"v\[0\] is 10; give whole numbers"),
    ((V, G * float("nan")), r"g\[0\] is nan; give whole numbers"),
    ((V, G, 5), "t=5; for length 3 the product has coefficients 0 to 4"),
    ((V, G, -1), "t=-1"),
])
def test_antidiagonals_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        viz.antidiagonals(*arguments)


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


def test_roots_model():
    figure = viz.roots(4, torch.tensor([1.0, 0.5]).tolist(), twist=math.pi / 8, point=3)
    assert figure.model == {"n": 4, "coefficients": [1.0, 0.5], "degrees": 90.0, "point": 3, "largest": 16}


@pytest.mark.parametrize("arguments, options, message", [
    ((1,), {}, "n=1 points; give 2 to 16"),
    ((17,), {}, "n=17 points"),
    ((8, []), {}, "give 1 to 8 finite numbers"),
    ((8, [1.0] * 9), {}, "give 1 to 8 finite numbers"),
    ((8, [float("inf")]), {}, "give 1 to 8 finite numbers"),
    ((8,), {"twist": -0.1}, "for 8 points give an angle from 0 up to 2 pi / 8, 0.7854"),
    ((8,), {"twist": math.pi / 4}, "gives the same points again"),
    ((8,), {"twist": float("nan")}, "twist=nan"),
    ((8,), {"point": 8}, "point=8; for 8 points give 0 to 7"),
])
def test_roots_refuses(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        viz.roots(*arguments, **options)
