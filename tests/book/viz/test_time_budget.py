"""The figure of chapter 11: its words follow the cost model."""

import pytest

from caracal_book import viz
from caracal_book.numbers.cost import DEVICES, PARTS, Pass, training
from caracal_book.viz.time_budget import _costs, _times
from caracal_min.config import PRESETS


@pytest.mark.parametrize("model, length, device", [("pure", 512, "A100"), ("llama", 8192, "T4"),
                                                   ("hybrid", 65536, "H200")])
def test_words_tell_the_facts_of_the_frame(model, length, device):
    figure = viz.time_budget(model, length, device)
    times, parts = _times(figure.model), _costs(figure.model)[model]
    assert f"on one {device} at {length:,} tokens" in figure.alt
    for of in times.values():
        assert f"{sum(of.values()):.2f}" in figure.alt
    whole, slow = (sum(values) for values in ([cost.operations for cost in parts.values()], times[model].values()))
    for part in PARTS:
        bound = DEVICES[device].bound(part, parts[part])
        said = (f"{part} {100 * parts[part].operations / whole:.1f}% of the operations, "
                f"{100 * times[model][part] / slow:.0f}% of the time, bound by {bound}")
        assert (said in figure.alt) == bool(parts[part].operations)


def test_its_hybrid_and_its_llama_are_tiny():
    costs = _costs(viz.time_budget("pure", 1024).model)
    assert costs["hybrid"] == training(PRESETS["tiny"], 1024)
    assert costs["llama"] == training(PRESETS["tiny"], 1024, "llama", Pass(fused_norms=True))
    chains = _costs(viz.time_budget("pure", 1024, compiled=True).model)
    assert chains["llama"] == training(PRESETS["tiny"], 1024, "llama", Pass(compiled=True)) != costs["llama"]
    assert costs["pure"]["attention"].operations == 0 < costs["hybrid"]["attention"].operations
