"""The wrap-around clock of chapter 3: still and words follow the arithmetic of the package, bad input is refused."""

import re

import pytest
import torch
from figure_stills import still_of

from caracal_book import viz
from caracal_min.convolution import circular_conv, linear_conv

V = torch.tensor([1.0, 0.6, 1.4, 0.8])
G = torch.tensor([1.2, 0.8, 0.5, 1.0])


def heights(text, colour):
    return [float(h) for h in re.findall(rf'height="([\d.]+)" fill="{colour}" fill-opacity="1"', text)]


@pytest.mark.parametrize("n, unit, contaminated", [(4, 1, 3), (5, 1, 2), (4, -1, 3), (4, 1j, 0), (7, 1, 0), (8, 1j, 0)])
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


def test_still_draws_every_product_once_at_its_length():
    text = still_of(viz.clock(V, G))
    green, vermilion = (heights(text, colour) for colour in (viz.palette.result, viz.palette.wrapped))
    assert (len(green), len(vermilion)) == (10, 6)
    outer = torch.outer(V, G)
    belongs = torch.arange(4)[:, None] + torch.arange(4) < 4
    scale = sum(green) / outer[belongs].sum().item()
    assert sum(vermilion) == pytest.approx(scale * outer[~belongs].sum().item(), rel=1e-2)


def test_what_wraps_around_stands_on_what_belongs_there():
    text, p = still_of(viz.clock(V, G)), linear_conv(V, G)
    feet = [float(x) for x in re.findall(r"translate\(0 -([\d.]+)\) rotate", text)]
    scale = heights(text, viz.palette.result)[0] / p[0].item()
    assert len(feet) == 7 and feet[:4] == [feet[0]] * 4
    assert [foot - feet[0] for foot in feet[4:]] == pytest.approx([scale * x for x in p[:3].tolist()], rel=1e-2)


def test_the_tail_is_pale_where_it_has_hours_of_its_own():
    text = still_of(viz.clock(V, G, n=7))
    assert text.count('fill-opacity="0.25"') == 6 and heights(text, viz.palette.wrapped) == []


def test_model_is_what_was_asked_for_and_nothing_else_changes_the_id():
    figure = viz.clock(V, G, 5, unit=1j, hour=2)
    rounded = [round(x, 3) for x in V.tolist()]
    assert figure.model == {"v": rounded, "g": [1.2, 0.8, 0.5, 1.0], "n": 5, "unit": "i", "hour": 2}
    assert figure.id == viz.clock(V.double(), G.clone(), 5, unit=1j, hour=2).id
    assert len({f.id for f in (figure, viz.clock(V, G), viz.clock(V, G, 5), viz.clock(V, G, 5, unit=-1))}) == 4


@pytest.mark.parametrize("arguments, options, message", [
    ((V, G[:3]), {}, r"v has shape \(4,\) and g has shape \(3,\)"),
    ((V[:2], G[:2]), {}, "between 3 and 6"),
    ((torch.ones(7), torch.ones(7)), {}, "between 3 and 6"),
    ((V[None], G[None]), {}, "between 3 and 6"),
    ((V, -G), {}, r"g = \[-1.2.*give entries from 0 to 2"),
    ((3 * V, G), {}, r"v = \[3.0.*give entries from 0 to 2"),
    ((V * torch.nan, G), {}, "give entries from 0 to 2"),
    ((V, G, 3), {}, "n=3 hours; for length 4 give 4 to 8"),
    ((V, G, 9), {}, "n=9 hours"),
    ((V, G), {"unit": 2}, "unit=2; give 1, -1 or 1j"),
    ((V, G), {"hour": 4}, "hour=4; on a clock of 4 hours give 0 to 3"),
])
def test_bad_clocks_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        viz.clock(*arguments, **options)
