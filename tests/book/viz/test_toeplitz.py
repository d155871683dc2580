"""The figures of chapter 5 as Python makes them: what their stills say, what they hold, what they refuse."""

import re

import pytest
import torch
from figure_stills import still_of

from caracal_book import viz
from caracal_min.convolution import causal_conv_direct, toeplitz

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
    r = causal_conv_direct(V, G)
    assert f"A[3, 1] = g[2] = {G[2]:.2f}; sum of row 3: {r[3]:.2f}".replace("-", "−") in still_of(figure)
    assert "Entry (3, 1)" in figure.alt and "lag 2" in figure.alt
    assert (figure.model["row"], figure.model["column"]) == (3, 1)


def test_the_still_draws_a_square_for_each_entry():
    text = still_of(viz.toeplitz_kernel(V, G))
    orange = re.findall(rf'height="([\d.]+)" fill="{viz.palette.gate}"/>', text)
    hollow = re.findall(rf'height="([\d.]+)" fill="{viz.palette.paper}" stroke="{viz.palette.gate}"', text)
    entries = toeplitz(G)[tuple(torch.tril_indices(5, 5))]
    assert len(orange) == (entries > 0).sum() + (G > 0).sum()
    assert len(hollow) == (entries < 0).sum() + (G < 0).sum()


def test_the_figure_may_be_shown_twice_and_from_any_dtype():
    figure = viz.toeplitz_kernel(V.double(), G.requires_grad_())
    assert figure.to_html() == viz.toeplitz_kernel(V, G).to_html()
    assert figure.id != viz.toeplitz_kernel(V, G, column=1).id


@pytest.mark.parametrize("arguments, options, message", [
    ((V, G[:4]), {}, r"v has shape \(5,\) and g has shape \(4,\)"),
    ((V[:2], G[:2]), {}, "between 3 and 12"),
    ((torch.ones(13), torch.ones(13)), {}, "between 3 and 12"),
    ((V[None], G[None]), {}, "between 3 and 12"),
    ((V, G), {"row": 5}, r"entry \(5, 0\) of a 5 by 5 matrix"),
    ((V, G), {"row": 2, "column": 3}, "give 0 <= column <= row"),
    ((V, G), {"column": -1}, "give 0 <= column <= row"),
])
def test_bad_kernels_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        viz.toeplitz_kernel(*arguments, **options)


def test_the_matrices_hold_the_weights_that_were_given():
    model = viz.mixing_matrices(TEXT, HEADS, CHANNELS).model
    assert model["tokens"] == list(TEXT) and model["row"] == L - 1
    for frame, (name, A) in zip(model["attention"], HEADS.items(), strict=True):
        assert frame["name"] == name and [len(line) for line in frame["rows"]] == list(range(1, L + 1))
        for line, weights in zip(frame["rows"], A, strict=True):
            assert torch.allclose(torch.tensor(line) / 1000, weights[:len(line)], atol=6e-4)
    for frame, (name, g) in zip(model["fourier"], CHANNELS.items(), strict=True):
        assert frame["name"] == name and torch.allclose(torch.tensor(frame["g"]), g, atol=1e-5)


def test_the_still_of_the_matrices_shades_every_entry_once():
    text = still_of(viz.mixing_matrices(TEXT, HEADS, CHANNELS, row=4))
    cells = re.findall(r"M(\d+) (\d+)h1v1h-1z", text)
    places = [(int(t), int(j)) for j, t in cells]
    shaded = [(t, j) for t in range(L) for j in range(t + 1) if abs(KERNEL[t - j]) > 0.05]
    assert all(j <= t for t, j in places)
    assert all(places.count(place) >= 1 for place in shaded)
    hollow = {int(t) - int(j) for j, t in re.findall(r"M(\d+) (\d+)h1v1h-1zm0.25", text)}
    assert hollow == {k for k in range(L) if KERNEL[k] < -0.05}  # a negative weight is hollow, as in every figure
    assert "head &lt;0&gt;" in text and text.count(": the weights of row 4<") == 2


def test_the_still_of_the_matrices_has_a_bar_on_each_token_of_the_row():
    text = still_of(viz.mixing_matrices(TEXT, HEADS, CHANNELS, row=4))
    below = text.partition("attention: the weights")[2]
    bars = re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="[\d.]+" height="([\d.]+)" fill="(#\w+)"', below)
    assert [colour for _, colour in bars[:5]] == [viz.palette.ink] * 5
    row = KERNEL[:5].flip(0)                                      # of the five tokens 0 to 4
    assert [colour == viz.palette.paper for _, colour in bars[5:]] == (row < 0).tolist()
    heights = torch.tensor([float(height) for height, _ in bars[5:]])
    assert torch.allclose(heights / heights.max(), (row / row.abs().max()).abs().to(heights.dtype), atol=0.01)


def test_tokens_may_be_words():
    figure = viz.mixing_matrices(["The", " cat", " sat", " "], {"a": torch.eye(4)}, {"c": torch.ones(4)})
    text = still_of(figure)
    assert figure.model["tokens"] == ["The", " cat", " sat", " "] and "4 tokens" in figure.alt
    assert all(text.count(f">{word}<") == 2 for word in ("The", "cat", "sat", "␣"))


def test_names_and_text_cannot_break_out_of_the_page():
    html = viz.mixing_matrices(TEXT, {"</script><b>": causal_softmax()}, CHANNELS).to_html()
    assert html.count("</script") == 1 and "<b>" not in html


@pytest.mark.parametrize("given, message", [
    ({"tokens": "a"}, "the text has 1 tokens; give 2 to 64"),
    ({"tokens": "a" * 65}, "give 2 to 64"),
    ({"attention": {}}, "attention is empty"),
    ({"fourier": {}}, "fourier is empty"),
    ({"attention": {"h": torch.eye(4)}}, r"attention 'h' has shape \(4, 4\); 9 tokens ask for \(9, 9\)"),
    ({"fourier": {"c": torch.ones(4)}}, r"fourier 'c' has shape \(4,\); 9 tokens ask for \(9,\)"),
    ({"attention": {"h": torch.ones(L, L)}}, "weights above the diagonal"),
    ({"attention": {"h": -torch.eye(L)}}, "below zero"),
    ({"row": L}, r"entry \(9, 0\)"),
    ({"row": 3, "column": 4}, "give 0 <= column <= row"),
])
def test_bad_matrices_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        viz.mixing_matrices(**{"tokens": TEXT, "attention": HEADS, "fourier": CHANNELS, **given})
