"""The model of a run, whether the run has ended or was killed."""

import shutil

import pytest
import torch
from small_run import config, corpus, kill_after

from caracal_min import Caracal
from caracal_min.files import file_sha256
from caracal_min.training import Trainer
from caracal_min.training.trained import load_trained

NEWEST, PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder of a run that was killed after step 9: checkpoints at 4 and 8."""
    out = tmp_path_factory.mktemp("killed") / "run"
    kill_after(Trainer(config(out), corpus()), 9, checkpoints=[4, 8])
    return out


@pytest.fixture
def run(killed, tmp_path):
    return shutil.copytree(killed, tmp_path / "run")


def same_weights(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_killed_run_gives_the_model_of_its_last_checkpoint(run):
    with Trainer(config(), corpus()) as undisturbed:
        undisturbed.run(until=8)
    trained = load_trained(str(run))
    assert same_weights(trained.model, undisturbed.model) and not trained.model.training
    assert (trained.step, trained.source, trained.run) == (8, run / NEWEST, run)
    assert trained.sha256 == file_sha256(run / NEWEST)
    assert trained.note == f"{run} has no finished model: this is the one of its checkpoint at step 8"
    trained.model.loss(torch.zeros(1, 4, dtype=torch.int64), torch.zeros(1, 4, dtype=torch.int64)).backward()


def test_a_finished_run_gives_its_finished_model(run):
    with Trainer(config(run), corpus()) as trainer:
        trainer.run()
    for folder in (run, run / "model"):
        trained = load_trained(folder)
        assert same_weights(trained.model, trainer.model) and (trained.step, trained.note) == (None, "")
        assert trained.run == run and trained.sha256 == file_sha256(run / "model" / "model.safetensors")


def test_a_damaged_checkpoint_is_passed_over_and_two_are_refused(run):
    (run / NEWEST).write_bytes((run / NEWEST).read_bytes()[:-100])
    trained = load_trained(run)
    assert trained.step == 4 and trained.source == run / PREVIOUS
    assert "at step 4 (" in trained.note and NEWEST in trained.note and "\n" not in trained.note
    (run / PREVIOUS).write_bytes(b"half of a file")
    with pytest.raises(ValueError, match="not a readable checkpoint .*; restore it, or train anew in") as caught:
        load_trained(run)
    assert "\n" not in str(caught.value)


def test_the_gate_can_be_cut(run):
    assert load_trained(run, gate_length=5).model.config.gate_length == 5
    with Trainer(config(run), corpus()) as trainer:
        trainer.run()
    assert load_trained(run, gate_length=5).model.config.gate_length == 5
    assert load_trained(run).model.config.gate_length is None


@pytest.mark.parametrize("changes", [
    dict(variant="pe", context=32), dict(variant="sslp"), dict(variant="no-swa-no-pc"),
    dict(model=("gate_length=7", "d_model=64", "n_heads=2", "pre_conv=False", "gate=single_stage", "init_std=0.1")),
    dict(architecture="llama"), dict(architecture="mamba2"),
])
def test_every_kind_of_model_comes_back(tmp_path, changes):
    if "architecture" in changes:
        pytest.importorskip("transformers")
    with Trainer(config(tmp_path, steps=2, **changes), corpus()) as trainer:
        trainer.run(until=1)
    model, tokens = load_trained(tmp_path).model, torch.arange(20)[None] + 60
    with torch.no_grad():
        assert torch.equal(model(tokens)[0], trainer.model.eval()(tokens)[0])
    assert getattr(model.config, "gate_length", None) == (7 if "model" in changes else None)


def test_the_model_folder_of_a_killed_run_is_not_there_yet(run):
    with pytest.raises(FileNotFoundError, match=f"model is not there, the run has not ended; give {run}, and its last"):
        load_trained(run / "model")


def test_a_model_that_the_settings_do_not_describe_is_refused(tmp_path):
    with Trainer(config(tmp_path), corpus(), model=Caracal.from_preset("nano", n_layers=2)) as trainer:
        trainer.run(until=1)
    with pytest.raises(ValueError, match="holds the weights of a model of one's own, Caracal; only the") as caught:
        load_trained(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_of_neither_is_refused(tmp_path):
    (tmp_path / "log.jsonl").write_text("{}")
    for path in (tmp_path, tmp_path / "log.jsonl"):
        with pytest.raises(FileNotFoundError, match=f"^{path} is no folder with a model or a checkpoint; give"):
            load_trained(path)
