"""The figure of chapter 11: its still and words follow the cost model, bad input is refused."""

import re

import pytest
from figure_stills import still_of

from caracal_book import viz
from caracal_book.numbers.cost import DEVICES, PARTS, Pass, training
from caracal_book.viz.time_budget import _costs, _times
from caracal_min.config import PRESETS


@pytest.mark.parametrize("model, length, device", [("pure", 512, "A100"), ("llama", 8192, "T4"),
                                                   ("hybrid", 65536, "H200")])
def test_still_tells_the_facts_of_its_frame(model, length, device):
    figure = viz.time_budget(model, length, device)
    text, start = still_of(figure), figure.model
    times, parts = _times(start), _costs(start)[model]
    assert f"{length:,} tokens, one {device}" in text
    for of in times.values():
        assert f">{sum(of.values()):.2f}<" in text and f"{sum(of.values()):.2f}" in figure.alt
    whole = sum(cost.operations for cost in parts.values())
    waits = sum(DEVICES[device].bound(part, cost) == "bandwidth" for of in _costs(start).values()
                for part, cost in of.items())
    assert text.count("url(#waits)") == waits, "what waits for memory is striped, as on the screen"
    assert "pink: attention" in text, "which the list of pure Caracal lacks"
    assert [part for part in PARTS if f">{part}<" in text] == [part for part in PARTS if parts[part].operations]
    for part in PARTS:
        if parts[part].operations:
            assert f">{100 * parts[part].operations / whole:.1f}%<" in text
            assert f">{100 * times[model][part] / sum(times[model].values()):.1f}%<" in text
            assert f"{part} {100 * parts[part].operations / whole:.1f}% of the operations" in figure.alt
    bound = [DEVICES[device].bound(part, cost) for part, cost in parts.items() if cost.operations]
    assert re.findall(r">(compute|bandwidth)<", text) == bound


def test_its_hybrid_and_its_llama_are_tiny():
    costs = _costs(viz.time_budget("pure", 1024).model)
    assert costs["hybrid"] == training(PRESETS["tiny"], 1024)
    assert costs["llama"] == training(PRESETS["tiny"], 1024, "llama", Pass(fused_norms=True))
    chains = _costs(viz.time_budget("pure", 1024, compiled=True).model)
    assert chains["llama"] == training(PRESETS["tiny"], 1024, "llama", Pass(compiled=True)) != costs["llama"]
    assert costs["pure"]["attention"].operations == 0 < costs["hybrid"]["attention"].operations


def test_a_norm_costs_the_same_in_all_models():
    """One kernel each: all that small operators of a Llama cost more is its turn by position."""
    parts, d = _costs(viz.time_budget("pure", 512).model), 512
    taps = PRESETS["tiny"].n_layers * 20 * d                  # of each Fourier layer: pad, taps and norm; bias, SiLU
    turn = PRESETS["tiny"].n_layers * (40 * d + 8 * d // PRESETS["tiny"].n_heads)
    more = parts["llama"]["small operators"].bytes - parts["pure"]["small operators"].bytes
    assert more == pytest.approx(3 * (turn - taps), rel=0.001)


def test_bars_keep_their_scale_when_chains_are_fused():
    across = []
    for compiled in (False, True):
        figure = viz.time_budget("pure", 512, "RTX 3090", compiled=compiled)
        bars = re.findall(r'<rect [^>]*?width="([\d.]+)" height="22', still_of(figure))
        striped = sum(float(width) for width in bars)
        assert striped > 0, "the bars of the still are found"
        parts = [(part, cost, model) for model, of in _costs(figure.model).items() for part, cost in of.items()]
        waits = [(part, model) for part, cost, model in parts if DEVICES["RTX 3090"].bound(part, cost) == "bandwidth"]
        times = _times(figure.model)
        shown = sum(sum(of.values()) for of in times.values()) + sum(times[model][part] for part, model in waits)
        across.append(striped / shown)
    assert across[1] == pytest.approx(across[0], rel=1e-3), "so many units for a microsecond, before and after"


@pytest.mark.parametrize("given, says", [
    ({"model": "mamba"}, "unknown model 'mamba'; accepted: hybrid, pure, llama"),
    ({"device": "L4"}, "unknown device 'L4'; accepted: T4, RTX 3090, RTX 4090, A100, H200"),
    ({"length": 500}, "length=500; give a power of two from 64 to 131,072"),
    ({"length": 32}, "length=32; give a power of two"),
    ({"width": 520}, "width=520; give a multiple of 64 from 256 to 4,096"),
])
def test_bad_input_is_refused(given, says):
    with pytest.raises(ValueError, match=says):
        viz.time_budget(**given)
