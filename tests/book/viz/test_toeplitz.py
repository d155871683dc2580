"""The figures of chapter 5 as Python makes them: what they hold and say."""

import torch

from caracal_book import viz

V = torch.tensor([0.8, -0.6, 1.2, 0.4, -1.0])
G = torch.tensor([1.4, 0.6, -0.8, -1.2, 1.0])
TEXT = "a <b> & c"
L = len(TEXT)
KERNEL = torch.linspace(-1, 1, L)


def causal_softmax(seed=0):
    scores = torch.randn(L, L, generator=torch.Generator().manual_seed(seed))
    return scores.masked_fill(torch.ones(L, L).triu(1).bool(), -torch.inf).softmax(-1)


HEADS = {"head <0>": causal_softmax(), "head 1": causal_softmax(1)}
CHANNELS = {"channel 0": KERNEL, "channel 1": -KERNEL}


def test_the_kernel_tells_the_facts_of_its_own_frame():
    figure = viz.toeplitz_kernel(V, G, row=3, column=1)
    assert "Entry (3, 1)" in figure.alt and "lag 2" in figure.alt
    assert (figure.model["row"], figure.model["column"]) == (3, 1)


def test_the_matrices_hold_the_weights_that_were_given():
    model = viz.mixing_matrices(TEXT, HEADS, CHANNELS).model
    assert model["tokens"] == list(TEXT) and model["row"] == L - 1
    for frame, (name, A) in zip(model["attention"], HEADS.items(), strict=True):
        assert frame["name"] == name and [len(line) for line in frame["rows"]] == list(range(1, L + 1))
        for line, weights in zip(frame["rows"], A, strict=True):
            assert torch.allclose(torch.tensor(line) / 1000, weights[:len(line)], atol=6e-4)
    for frame, (name, g) in zip(model["fourier"], CHANNELS.items(), strict=True):
        assert frame["name"] == name and torch.allclose(torch.tensor(frame["g"]), g, atol=1e-5)
