"""The figure of what meets in one result: its still, its words and its data."""

import re

import pytest
import torch
from figure_stills import still_of

from caracal_book import viz
from caracal_min.convolution import causal_conv_direct

TEXTS = [("abcdeedcba", 9), ("abcdeedcba", 5), ("abracadabra", 10), ("abracadabraxyz", 4), ("abcdecdeba", None),
         ("zzzz", 0), ("abba", 1)]


def met(text):
    """For every t, the products of equal letters in r_t: a causal convolution of each letter's places with itself."""
    places = torch.tensor([[float(letter == other) for other in text] for letter in sorted(set(text))]).double()
    return causal_conv_direct(places, places).sum(0).round().int().tolist()


@pytest.mark.parametrize("text, t", TEXTS)
def test_the_still_has_a_bar_for_every_share(text, t):
    figure, t = viz.meeting(text, t), len(text) - 1 if t is None else t
    still, counts = still_of(figure), met(text)
    bars = re.findall(rf'<rect x="[\d.]+" y="[\d.]+" width="[\d.]+" height="([\d.]+)" fill="{viz.palette.result}" '
                      r'fill-opacity="(1|0.55)"/>', still)
    assert [float(height) / 56 for height, _ in bars] == pytest.approx(
        [n / (s + 1) for s, n in enumerate(counts)], abs=1e-3)
    assert [s for s, (_, opacity) in enumerate(bars) if opacity == "1"] == [t]
    whole = text[:t + 1] == text[t::-1]
    assert whole == (counts[t] == t + 1)
    noun = "products" if t else "product"
    assert f"equal in r at t = {t}: {counts[t]} of {t + 1} {noun}<" in still
    assert f"the text up to t is a palindrome: {'yes' if whole else 'no'}<" in still
    assert f"{counts[t]} of {t + 1} {noun}" in figure.alt and ("not a palindrome" in figure.alt) != whole
    assert ", ".join(f"{n} of {s + 1}" for s, n in enumerate(counts)) in figure.alt
