"""Checkpoints: two of them, whole or passed over, and nothing in them used that was not looked at."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from safetensors import safe_open
from small_run import config, corpus, kill_after, losses

from caracal_min import Caracal, CaracalConfig
from caracal_min.training import DivergedError, Trainer

NEWEST, PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"


@pytest.fixture(scope="module")
def whole():
    """The losses of an undisturbed run."""
    return losses(Trainer(config(), corpus()).run())


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a run that was killed after step 9: checkpoints at 4 and 8."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    kill_after(Trainer(config(out), corpus()), 9, checkpoints=[4, 8])
    return out


@pytest.fixture
def run(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "run")


def resume(out, **changes):
    with Trainer(config(out, **changes), corpus()) as trainer:
        return trainer, losses(trainer.run())


def contents(path):
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}, file.metadata()


def test_the_last_two_are_kept(run, whole):
    steps = {name: json.loads(contents(run / name)[1]["facts"])["step"] for name in (NEWEST, PREVIOUS)}
    assert steps == {NEWEST: 8, PREVIOUS: 4}
    assert sorted(path.name for path in run.glob("checkpoint*")) == [PREVIOUS, NEWEST]
    trainer, curve = resume(run)
    assert curve == whole and trainer.step == 12


def test_a_flipped_bit_anywhere_is_found_and_the_one_before_is_taken(run, whole, capsys):
    """Fifty random bits of header and data, one after the other; after the last the run ends on the same curve."""
    data, draw = (run / NEWEST).read_bytes(), np.random.default_rng(0)
    header = 8 + int.from_bytes(data[:8], "little")
    places = [*draw.integers(0, header, 15), *draw.integers(header, len(data), 35)]
    for place in places:
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(draw.integers(8))
        (run / NEWEST).write_bytes(flipped)
        with Trainer(config(run), corpus()) as trainer:
            assert trainer.step == 4, f"bit at {place} of {len(data)}"
        said = capsys.readouterr().out
        assert "the checkpoint before it is taken, step 4" in said and said.count("\n") == 1
    _, curve = resume(run)
    assert curve == whole


def test_a_damaged_one_never_replaces_a_good_one(run):
    (run / NEWEST).write_bytes(b"half of a file")
    good = (run / PREVIOUS).read_bytes()
    with Trainer(config(run), corpus()) as trainer:
        assert trainer.step == 4
        trainer.checkpoint()
    assert (run / PREVIOUS).read_bytes() == good and len((run / NEWEST).read_bytes()) > 1000


def test_two_damaged_ones_are_refused(run):
    for name in (NEWEST, PREVIOUS):
        (run / name).write_bytes((run / name).read_bytes()[:5000])
    with pytest.raises(ValueError, match="not a readable checkpoint .*; restore it, or train anew") as caught:
        Trainer(config(run), corpus())
    assert "\n" not in str(caught.value) and "delete" not in str(caught.value)
    Caracal.from_preset("nano").save_pretrained(run / "m")
    for name in (NEWEST, PREVIOUS):
        shutil.copy(run / "m" / "model.safetensors", run / name)
    with pytest.raises(ValueError, match="no checkpoint of this version"):
        Trainer(config(run), corpus())


def test_a_kill_between_the_two_renamings_loses_nothing(run, whole):
    (run / NEWEST).rename(run / PREVIOUS)
    assert resume(run)[1] == whole


def test_one_of_another_model_of_ones_own_is_refused(tmp_path):
    """Settings say of a model of one's own only what its configuration says."""
    for layers in (2, 3):
        model = Caracal.from_preset("nano", n_layers=layers)
        model.config = CaracalConfig(256, 128, 4, 4)
        if layers == 2:
            with Trainer(config(tmp_path), corpus(), model=model) as trainer:
                trainer.run(until=4)
    with pytest.raises(ValueError, match="not hold the state of this model: model.blocks.2.* is missing") as caught:
        Trainer(config(tmp_path), corpus(), model=model)
    assert "\n" not in str(caught.value)


def test_without_permission_it_is_not_called_damaged(run, monkeypatch):
    opened = pathlib.Path.open

    def refuse(self, *arguments, **options):
        if self.name == NEWEST:
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *arguments, **options)

    monkeypatch.setattr(pathlib.Path, "open", refuse)
    with pytest.raises(PermissionError):
        Trainer(config(run), corpus())


@pytest.mark.parametrize("which", ["weight", "moment"])
def test_what_is_not_finite_is_never_kept(tmp_path, which):
    """The last step is the one that breaks it: its loss is finite, what it leaves is not."""
    trainer = Trainer(config(tmp_path, steps=8, eval_every=100), corpus())
    trainer.run(until=4)
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("checkpoint*")}
    step = trainer.optimizer.step

    def break_it(*arguments, **options):
        step(*arguments, **options)
        if trainer.step == 7:
            parameter = trainer.model.blocks[0].mixer.to_out.bias
            broken = parameter if which == "weight" else trainer.optimizer.state[parameter]["exp_avg"]
            broken.data[0] = float("nan")

    trainer.optimizer.step = break_it
    with pytest.raises(DivergedError, match="not finite at step 8|validation loss nan at step 8") as caught:
        trainer.run()
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("checkpoint*")} == kept
    assert not (tmp_path / "record.json").exists() and not (tmp_path / "model").exists()
    assert "NaN" not in (tmp_path / "log.jsonl").read_text()


def test_a_sample_of_broken_weights_is_no_crash(tmp_path):
    trainer = Trainer(config(tmp_path, prompt="The "), corpus())
    step = trainer.optimizer.step

    def break_it(*arguments, **options):
        step(*arguments, **options)
        trainer.model.blocks[0].mixer.to_out.bias.data[0] = float("nan")

    trainer.optimizer.step = break_it
    with pytest.raises(DivergedError, match="to_out.bias is not finite at step 1"):
        trainer.run()


def test_without_a_folder_a_run_that_broke_does_not_end_as_done():
    trainer = Trainer(config(steps=1, eval_every=1), corpus())
    step = trainer.optimizer.step
    trainer.optimizer.step = lambda *a, **o: (step(), trainer.model.embedding.weight.data.fill_(float("inf")))
    with pytest.raises(DivergedError):
        trainer.run()
