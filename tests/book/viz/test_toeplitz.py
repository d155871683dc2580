"""The live Toeplitz figure of chapter 5 as Python makes it: what it holds and says."""

import torch

from caracal_book import viz

V = torch.tensor([0.8, -0.6, 1.2, 0.4, -1.0])
G = torch.tensor([1.4, 0.6, -0.8, -1.2, 1.0])


def test_the_kernel_tells_the_facts_of_its_own_frame():
    figure = viz.toeplitz_kernel(V, G, row=3, column=1)
    assert "Entry (3, 1)" in figure.alt and "lag 2" in figure.alt
    assert (figure.model["row"], figure.model["column"]) == (3, 1)
