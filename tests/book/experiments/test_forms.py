"""Forms of the Fourier layer: what each changes and what not, and runs that are ablated, resumed and recorded."""

from dataclasses import replace

import pytest
import torch

from caracal_book.experiments.forms import FORMS, FormsConfig, make_form, run_forms
from caracal_book.records import read_record
from caracal_book.runs import describe
from caracal_min import CaracalConfig

SIZE = CaracalConfig(256, 16, 3, 2, window_size=4)


def form(name):
    torch.manual_seed(0)
    return make_form(name, SIZE, context=8).eval()


def ids(length):
    return torch.randint(256, (2, length), generator=torch.Generator().manual_seed(1))


def seen(model, length=24):
    """The lags of the tokens that the state of the last one depends on, by derivative."""
    x = model.embedding(ids(length)).detach().requires_grad_()
    y = x
    for block in model.blocks:
        y = block(y)
    gradient, = torch.autograd.grad(y[:, -1].square().sum(), x)
    size = gradient.abs().sum((0, 2))
    return {length - 1 - t for t in (size > 1e-9 * size.max()).nonzero().flatten().tolist()}


def test_forms_share_the_weights_of_what_they_share():
    plain = form("plain").state_dict()
    for name in ("cut", "local", "norm", "faded"):
        other = form(name).state_dict()
        assert all(torch.equal(other[key], plain[key]) for key in plain), name
        more = {key.rsplit("mixer.", 1)[1] for key in other.keys() - plain.keys()}
        assert more == {"norm": {"norm_result.weight"}, "faded": {"log_reach"}}.get(name, set())


def test_within_the_length_of_training_a_cut_changes_nothing():
    plain, cut = form("plain"), form("cut")
    torch.testing.assert_close(cut(ids(8))[0], plain(ids(8))[0])
    assert (cut(ids(12))[0] - plain(ids(12))[0]).abs()[:, 8:].max() > 1e-6


def test_what_each_form_sees():
    lags = {name: seen(form(name).double()) for name in FORMS}
    for name in ("plain", "norm", "faded", "pure", "no-windows", "no-taps"):
        assert lags[name] == set(range(24)), name
    # A gate at the first token alone: r_t = g_0 v_t.  So a token sees the first one and itself, and in the hybrid what
    # the taps of two layers and a window of 4 reach.
    assert lags["pure-local"] == {0, 23}
    assert {0, 1, 2, 3, 23} < lags["local"] <= {*range(2 + 2 + 3 + 1), 23}


def test_a_faded_gate_is_the_gate_times_an_exponential():
    layer = form("faded").blocks[0].mixer
    x = torch.randn(1, 6, 16, generator=torch.Generator().manual_seed(2))
    v, g = layer.streams(x)
    window = torch.exp(-torch.arange(6.) / layer.log_reach.exp()[:, None])
    r = torch.stack([sum((g * window)[..., i] * v[..., t - i] for i in range(t + 1)) for t in range(6)], dim=1)
    torch.testing.assert_close(layer(x), layer.to_out(r))
    assert layer.log_reach.exp()[0] == 1 and torch.isclose(layer.log_reach.exp()[-1], torch.tensor(8.))


def small(out, **changes):
    given = dict(out=out, forms=("plain", "pure-local"), learning_rates=(1e-3, 3e-3), seeds=(0, 1), tokens=2 * 64,
                 sweep_part=0.5, context=16, windows=4)
    return FormsConfig(**(given | changes))


@pytest.fixture
def recorded(tmp_path):
    pytest.importorskip("jsonschema")
    return run_forms(small(tmp_path), show=lambda line: None)


def test_runs_are_ablated_recorded_and_resumed(recorded, tmp_path, capsys):
    runs = recorded["results"]["runs"]
    assert [(run["contender"], run["sweep"]) for run in runs] == [
        ("plain", True), ("pure-local", True)] * 2 + [("plain", False), ("pure-local", False)] * 2
    best = {row["contender"]: row["learning_rate"] for row in recorded["results"]["standings"]}
    for run in runs:
        assert run["steps"] == (1 if run["sweep"] else 2)
        if not run["sweep"]:
            assert run["learning_rate"] == best[run["contender"]]
            outcomes = {found["operation"]: found for found in run["surgery"]}
            assert outcomes["whole"]["change"] == 0 and ("windows of one key" in outcomes) == (
                run["contender"] == "plain")
            assert [n for n, _ in run["loss_by_length"]["whole"]] == [16, 32, 64, 128, 256]
    # A gate at the first token alone has no other lag: what is cut has no effect.
    local = next(run for run in runs if run["contender"] == "pure-local" and not run["sweep"])
    assert all(found["change"] == 0 for found in local["surgery"] if found["operation"].startswith("gate up to"))
    (tmp_path / "runs" / f"plain_{best['plain']:g}_1.json").unlink()
    run_forms(small(tmp_path))
    again = read_record(tmp_path / "record.json", require_commit=False)
    assert [run["loss"] for run in again["results"]["runs"]] == [run["loss"] for run in runs]
    said = capsys.readouterr().out
    assert "1 of 1: plain, learning rate" in said and "held-out loss" in said and "8 runs of forms" in describe(again)
    with pytest.raises(ValueError, match="holds a run with tokens=128, and this is tokens=256; go on with the same"):
        run_forms(replace(small(tmp_path), tokens=256))
