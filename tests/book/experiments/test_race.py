"""The race: equal budgets, what is recorded, and what a best rate at the edge says."""

from pathlib import Path

import numpy as np
import pytest
import torch

from caracal_book.experiments.race import CONTENDERS, Contender, RaceConfig, fitted, run_race
from caracal_book.records import read_record
from caracal_min import Caracal
from caracal_min.data import Corpus

STEPS = 6


def corpus(seed=0):
    draw = np.random.default_rng(seed)
    words = [b"causal ", b"fourier ", b"window ", b"gate ", b"token "]
    ids = np.frombuffer(b"".join(words[i] for i in draw.integers(0, 5, 1000)), dtype=np.uint8).astype(np.uint16)
    return Corpus("test", "byte", ids[:-800], ids[-800:])


def config(out, **changes):
    """A race of two, in steps of 2 x 16 tokens."""
    small = dict(contenders=("caracal", "static"), learning_rates=(1e-3, 3e-3), seeds=(0, 1), tokens=STEPS * 2 * 16,
                 width=32, layers=3, heads=2, context=16, window=8, batch_size=2, measurements=3, eval_windows=4,
                 sweep_part=1.0, device="cpu", precision="float32", out=out)
    return RaceConfig(**{**small, **changes})


def quiet(line):
    pass


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_is_within_the_budget_at_the_real_size(name):
    given = RaceConfig()
    hidden, parameters = fitted(name, given.size, given.context)
    with torch.device("meta"):
        budget = Caracal(given.size).num_parameters()
        widths = {n: CONTENDERS[name].build(given.size, given.context, n).num_parameters()
                  for n in (hidden - 8, hidden, hidden + 8)}
    assert abs(parameters - budget) <= 0.03 * budget and parameters == widths[hidden]
    assert min(widths, key=lambda n: abs(widths[n] - budget)) == hidden or name == "caracal"


@pytest.mark.parametrize("name", [name for name in CONTENDERS if name != "caracal"])
def test_contenders_differ_and_learn(name):
    """Each has a gradient for every parameter it has, and none looks ahead."""
    torch.manual_seed(0)
    model = CONTENDERS[name].build(config(Path("x")).size, 16, 48)
    tokens = torch.randint(1, 256, (2, 16))
    model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
    assert [key for key, p in model.named_parameters() if p.grad is None] == []
    changed = tokens.clone()
    changed[:, 9:] = 7
    with torch.no_grad():
        same = (model.logits(tokens) - model.logits(changed)).abs().amax((0, 2)) < 1e-4
    assert same[:9].all() and not same[9:].any()


def test_the_record_holds_the_race(tmp_path):
    said = []
    record = run_race(config(tmp_path), corpus(), said.append)
    assert read_record(tmp_path / "record.json", require_commit=False) == record
    results = record["results"]
    assert record["kind"] == "race" and record["data"]["sha256"] == corpus().digest
    assert [(r["contender"], r["learning_rate"], r["seed"]) for r in results["runs"]][:4] == [
        ("caracal", 1e-3, 0), ("static", 1e-3, 0), ("caracal", 3e-3, 0), ("static", 3e-3, 0)]
    assert len(results["runs"]) == 6
    for row in results["standings"]:
        assert set(row["losses"]) == {"0", "1"} and row["spread"] == abs(row["losses"]["0"] - row["losses"]["1"])
        assert row["loss"] == pytest.approx(sum(row["losses"].values()) / 2)
    for run in results["runs"]:
        assert [entry["step"] for entry in run["curve"]] == [2, 4, 6]
        assert run["loss"] == run["curve"][-1]["validation_loss"] and run["tokens"] == STEPS * 32
    assert f"{results['standings'][0]['loss']:.4f}" in said[-2] and said[-1] == f"record = {tmp_path / 'record.json'}"
    with pytest.raises(ValueError, match="holds a run with corpus="):
        run_race(config(tmp_path), corpus(1), quiet)


def test_a_sweep_of_shorter_runs_decides_the_rate_alone(tmp_path):
    record = run_race(config(tmp_path, sweep_part=0.5), corpus(), quiet)
    runs = record["results"]["runs"]
    tried, whole = ([run for run in runs if run["sweep"] is part] for part in (True, False))
    assert {run["steps"] for run in tried} == {3} and {run["steps"] for run in whole} == {STEPS}
    for row in record["results"]["standings"]:
        own = [run for run in tried if run["contender"] == row["contender"]]
        assert row["sweep"] == [[run["learning_rate"], run["loss"]] for run in own]
        assert row["learning_rate"] == min(own, key=lambda run: run["loss"])["learning_rate"]
        ends = {str(run["seed"]): run["loss"] for run in whole if run["contender"] == row["contender"]}
        assert set(ends) == {"0", "1"} and row["losses"] == ends


def test_the_same_seed_gives_all_the_same_batches(tmp_path, monkeypatch):
    seen = []
    for name in ("caracal", "static"):
        def watched(*size, build=CONTENDERS[name].build):
            model = build(*size)
            if model.embedding.weight.device.type != "meta":
                model.embedding.register_forward_pre_hook(
                    lambda layer, given: seen.append(given[0].clone()) if layer.training else None)
            return model

        monkeypatch.setitem(CONTENDERS, name, Contender(name, watched))
    record = run_race(config(tmp_path, learning_rates=(1e-3,)), corpus(), quiet)
    assert [(run["contender"], run["seed"]) for run in record["results"]["runs"]] == [
        ("caracal", 0), ("static", 0), ("caracal", 1), ("static", 1)]
    seen = [ids for ids in seen if ids.dtype == torch.int64][-4 * STEPS:]
    runs = [seen[start:start + STEPS] for start in range(0, 4 * STEPS, STEPS)]
    assert all(map(torch.equal, runs[0] + runs[2], runs[1] + runs[3]))
    assert not torch.equal(runs[0][0], runs[2][0])
