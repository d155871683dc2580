"""The wrap-around clock of chapter 3: still and words follow the arithmetic of the package."""


import pytest
import torch
from figure_stills import still_of

from caracal_book import viz
from caracal_min.convolution import circular_conv, linear_conv

V = torch.tensor([1.0, 0.6, 1.4, 0.8])
G = torch.tensor([1.2, 0.8, 0.5, 1.0])


@pytest.mark.parametrize("n, unit, contaminated", [(4, 1, 3), (4, -1, 3), (4, 1j, 0), (7, 1, 0)])
def test_still_tells_the_facts_of_its_own_frame(n, unit, contaminated):
    figure = viz.clock(V, G, n, unit=unit, hour=1)
    text, p = still_of(figure), linear_conv(V, G)
    wrapped = p[1 + n].item() if 1 + n < len(p) else 0.0
    assert f"Contaminated outputs: {contaminated} of 4" in text
    real = p[1].item() + wrapped * complex(unit).real
    assert f"causal sum {p[1]:.2f}, wrapped {wrapped:.2f}, real part {real:.2f}".replace("-", "−") in text
    if unit == 1:
        assert real == pytest.approx(circular_conv(V, G, n)[1].item(), abs=1e-6)
    assert f"z^{n} = {'i' if unit == 1j else str(unit).replace('-', '−')}" in text
    assert f"a clock with {n} hours where z to the {n} is " in figure.alt
