"""The gate ladder: what each rung computes and reads, and runs that are resumed and recorded."""

from dataclasses import replace

import pytest
import torch

from caracal_book.experiments.ladder import RUNGS, LadderConfig, make_rung, run_ladder
from caracal_book.records import read_record
from caracal_min import Caracal, CaracalConfig

SIZE = CaracalConfig(256, 16, 3, 2, window_size=4)


def model_of(name):
    torch.manual_seed(0)
    return make_rung(name, SIZE, 8).eval()


def ids(rows=2, length=8):
    return torch.randint(256, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("name", "changes"), [("written", {}), ("none", {"gate_length": 1})])
def test_two_rungs_are_models_of_the_package(name, changes):
    rung = model_of(name)
    torch.manual_seed(0)
    model = Caracal(replace(SIZE, **changes)).eval()
    assert torch.equal(rung.logits(ids()), model.logits(ids()))


@pytest.mark.parametrize("name", RUNGS)
def test_no_rung_looks_ahead_and_one_reads_another_text(name):
    model, changed = model_of(name), ids()
    changed[0, 5] = (changed[0, 5] + 1) % 256
    change = (model.logits(ids()) - model.logits(changed)).abs().amax(-1)
    assert change[0, :5].max() < 1e-5 < change[0, 5:].min()
    assert (change[1].max() > 1e-5) == (name == "exchanged")


def test_a_relative_kernel_is_the_mean_of_products_over_the_text_so_far():
    layer = model_of("relative-fading").blocks[0].mixer
    x = torch.randn(1, 6, 16, generator=torch.Generator().manual_seed(2))
    normed = layer.norm(layer.pre_conv(torch.nn.functional.pad(x, (0, 0, 2, 0)).mT).mT)
    a, b, v = (part.unflatten(-1, (2, -1))[0] for part in (*layer.to_pair(normed).chunk(2, -1), layer.to_value(normed)))
    fade = torch.exp(-torch.arange(6) / layer.log_reach.exp()[:, None])
    r = torch.stack([sum(fade[:, k, None] * v[t - k] * sum((b[i] * a[i - k]).sum(-1) for i in range(k, t + 1))[:, None]
                         / (t + 1) for k in range(t + 1)) for t in range(6)])
    torch.testing.assert_close(layer(x), layer.to_out(r.flatten(1))[None])


def test_a_ladder_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("caracal_book.experiments.ladder.find_preset", lambda name: SIZE)
    few = LadderConfig(out=tmp_path, rungs=("none", "exchanged"), learning_rates=(3e-3,), seeds=(0,), tokens=2048,
                       eval_every=1, windows=8)
    said = []
    run_ladder(few, said.append)
    record = run_ladder(replace(few, seeds=(0, 1)), said.append)
    runs = read_record(tmp_path / "record.json", require_commit=False)["results"]["runs"]
    assert sum(" nats in " in line for line in said) == len(runs) == len(record["results"]["runs"]) == 4
    assert len(runs[0]["curve"]) == 2
    assert [point["step"] for point in runs[1]["along"]] == [1, 2] and "along" not in runs[0]
    assert [row["operation"] for row in runs[1]["surgery"]] == [
        "whole", "gate of another text", "own gate", "gate up to lag 0"]
