"""The figure of what meets in one result: its still, its words and its data, and what it refuses."""

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
def test_the_still_joins_the_letters_that_meet(text, t):
    still, t = still_of(viz.meeting(text, t)), len(text) - 1 if t is None else t
    centres = [float(x) for x in re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="middle" font-weight="\d+" '
                                            r'font-size="17"', still)]
    assert len(centres) == len(text)
    arcs = re.findall(r'<path d="M([\d.]+) [\d.]+A([\d.]+) [\d.]+ 0 0 1 ([\d.]+) [\d.]+"([^>]*)/>', still)
    pairs = [(j, t - j) for j in range(len(text)) if j < t - j]
    assert len(arcs) == len(pairs)
    for (left, half, right, look), (j, i) in zip(arcs, pairs, strict=True):
        assert float(left) == pytest.approx(centres[j], abs=0.02)
        assert float(right) == pytest.approx(centres[i], abs=0.02)
        assert float(half) == pytest.approx((centres[i] - centres[j]) / 2, abs=0.02)
        colour, width = (viz.palette.result, 4) if text[j] == text[i] else (viz.palette.muted, 1.2)
        assert f'stroke="{colour}"' in look and f'stroke-width="{width}"' in look
    rings = re.findall(r'<circle cx="([\d.]+)"', still)
    assert [float(x) for x in rings] == pytest.approx([centres[t // 2]] if t % 2 == 0 else [], abs=0.02)
    assert still.count("stroke-dasharray") == len(text) - 1 - t, "letters later than t"


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


def test_the_still_stays_in_its_frame():
    for text in ("abba", "abcdefghijklmn"):
        still = still_of(viz.meeting(text))
        width, height = (int(re.search(rf'<svg[^>]* {side}="(\d+)"', still)[1]) for side in ("width", "height"))
        boxes = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', still)
        assert width == 420 and max(float(x) + float(wide) for x, _, wide, _ in boxes) <= width
        assert max(float(y) + float(tall) for _, y, _, tall in boxes) < height
        assert min(float(x) for x, *_ in boxes) >= 0


def test_the_last_result_is_chosen_unless_one_is_named():
    assert viz.meeting("abcdeedcba").model == {"text": "abcdeedcba", "t": 9}
    assert viz.meeting("abcdeedcba").to_html() == viz.meeting("abcdeedcba", 9).to_html()
    assert viz.meeting("abcdeedcba", 0).model["t"] == 0


@pytest.mark.parametrize("text, t, message", [
    ("", None, "text=''; give letters a to z"),
    ("Abba", None, "text='Abba'; give letters a to z"),
    ("ab ba", None, "give letters a to z"),
    ("abéba", None, "give letters a to z"),
    ("aba", None, "text='aba' has 3 letters; give 4 to 14"),
    ("a" * 15, None, "has 15 letters; give 4 to 14"),
    ("abba", 4, "t=4; for 4 letters give 0 to 3"),
    ("abba", -1, "t=-1; for 4 letters give 0 to 3"),
])
def test_bad_arguments_are_refused(text, t, message):
    with pytest.raises(ValueError, match=message):
        viz.meeting(text, t)
