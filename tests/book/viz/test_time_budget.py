"""The figure of chapter 11: its still and words follow the cost model."""

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
