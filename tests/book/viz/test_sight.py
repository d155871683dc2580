"""The figure of what a stack sees: its still, its words and its data."""

import re

import pytest
import torch
from figure_stills import still_of

from caracal_book import viz


def paths(pattern, window, length, output):
    """From the tokens up: the number of paths to the output, as products of masks."""
    back = torch.arange(length)[:, None] - torch.arange(length)
    masks = {"F": (back >= 0).long(), "A": ((back >= 0) & (back < window)).long()}
    levels = [torch.eye(length, dtype=torch.long)[output]]
    for kind in reversed(pattern):
        levels.insert(0, levels[0] @ masks[kind])
    return torch.stack(levels)


@pytest.mark.parametrize("pattern, window, length, output", [
    ("AAAAAA", 4, 20, None), ("FFAFFA", 3, 20, 12), ("A", 1, 2, 1), ("F", 10, 24, 0), ("AFAAAAFA", 2, 9, 8)])
def test_the_still_shades_the_cells_that_the_output_sees(pattern, window, length, output):
    figure = viz.sight(pattern, window, length, output=output)
    output = length - 1 if output is None else output
    levels = paths(pattern, window, length, output)
    text = still_of(figure)
    drawn = re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="[\d.]+" height="13" rx="2" '
                       r'(fill|fill="none" stroke)="(#?\w+)"(?: fill-opacity="([\d.]+)")?/>', text)
    assert len(drawn) == levels.numel()
    for place, ((paint, colour, shade), n) in enumerate(zip(drawn, levels.flatten().tolist(), strict=True)):
        level = place // length
        if n:
            expected = viz.palette.content if level == 0 else viz.palette.ink
            expected = viz.palette.result if level == len(pattern) else expected
            assert paint == "fill" and colour == expected and 0.25 < float(shade) <= 1
        else:
            assert "none" in paint
    seen = int((levels[0] > 0).sum())
    assert f"output {output} sees {seen} of {length} tokens" in text
    assert f"{seen} of {length} tokens" in figure.alt and len(figure.alt) > 60
    assert text.count(">Fourier<") == pattern.count("F") and text.count(">window<") == pattern.count("A")
