"""The figure of what a stack sees: its words."""

import pytest
import torch

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
def test_it_says_how_many_tokens_the_output_sees(pattern, window, length, output):
    alt = viz.sight(pattern, window, length, output=output).alt
    output = length - 1 if output is None else output
    seen = int((paths(pattern, window, length, output)[0] > 0).sum())
    assert f"from output {output} down" in alt and f"{seen} of {length} tokens" in alt
