"""Checkpoints: two of them, whole or passed over, and nothing in them used that was not looked at."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from small_run import config, corpus, losses, save_as_before

from caracal_min import Caracal
from caracal_min.record import read_record
from caracal_min.training import DivergedError, Trainer

NEWEST, PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"


@pytest.fixture(scope="module")
def whole():
    """The losses of an undisturbed run."""
    return losses(Trainer(config(), corpus()).run())


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a run that ended without warning after step 9: checkpoints at 4 and 8."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    with Trainer(config(out), corpus()) as trainer:
        trainer.run(until=9)
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


def rewrite(path, change):
    """Change tensors and facts of a checkpoint; it gets no hash, log and processes, so that only the rest is judged."""
    tensors, metadata = contents(path)
    facts = json.loads(metadata["facts"])
    del tensors["log"], facts["parts"]
    change(tensors, facts)
    save_file(tensors, path, {"format": metadata["format"], "facts": json.dumps(facts)})


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
        assert "the run goes on from the checkpoint before it, step 4" in said and said.count("\n") == 1
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
    with pytest.raises(ValueError, match="not a readable checkpoint .*; restore it, or start anew") as caught:
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


def test_one_that_was_only_rewritten_is_taken(run):
    """What the next test changes is the change alone."""
    rewrite(run / NEWEST, lambda tensors, facts: None)
    with Trainer(config(run), corpus()) as trainer:
        assert trainer.step == 8


WEIGHT, MOMENT = "model.blocks.0.mixer.to_out.bias", "optimizer.3.exp_avg"


@pytest.mark.parametrize("change, words", [
    (lambda t, f: t.update({MOMENT: t[MOMENT].flatten()[:-1].clone()}), f"{MOMENT} has shape"),
    (lambda t, f: t.update({MOMENT: t[MOMENT].half()}), f"{MOMENT} has shape .* torch.float16, expected"),
    (lambda t, f: t.pop(MOMENT), f"{MOMENT} is missing"),
    (lambda t, f: [t.pop(k) for k in list(t) if k.startswith("optimizer.")], "optimizer.0.exp_avg is missing"),
    (lambda t, f: t.update({"optimizer.900.exp_avg": torch.zeros(3)}), "optimizer.900.exp_avg is none of its parts"),
    (lambda t, f: t.update({"optimizer.3.extra.name": torch.zeros(3)}), "is none of its parts"),
    (lambda t, f: t.update({"optimizer.3.step": torch.tensor(7.0)}), "optimizer.3.step counts 7 steps of 8"),
    (lambda t, f: t.update({"optimizer.3.step": torch.tensor([8.0])}), "optimizer.3.step has shape"),
    (lambda t, f: t["optimizer.3.exp_avg_sq"].view(-1)[0].fill_(-1), "exp_avg_sq is negative"),
    (lambda t, f: t[MOMENT].view(-1)[0].fill_(float("inf")), f"{MOMENT} holds infinities or NaN"),
    (lambda t, f: t.pop(WEIGHT), f"{WEIGHT} is missing"),
    (lambda t, f: t.update({WEIGHT: torch.zeros(3)}), f"{WEIGHT} has shape"),
    (lambda t, f: t.update({"model.more": torch.zeros(3)}), "model.more is none of its parts"),
    (lambda t, f: t[WEIGHT][:1].fill_(float("nan")), f"{WEIGHT} holds infinities or NaN"),
    (lambda t, f: t.pop("random.cpu"), "random.cpu is missing"),
    (lambda t, f: t.update({"random.cpu": torch.zeros(7, dtype=torch.uint8)}), "random numbers"),
    (lambda t, f: f.pop("step"), "not whole"),
    (lambda t, f: f.update(step=-1), "not whole"),
    (lambda t, f: f.update(step=8.5), "not whole"),
    (lambda t, f: f.update(seconds=float("nan")), "not whole"),
    (lambda t, f: f.update(settings=[]), "not whole"),
    (lambda t, f: f.update(scaler={"scale": 2.0}), "loss scale"),
])
def test_what_is_in_it_is_checked_before_any_of_it_is_used(run, change, words):
    (run / PREVIOUS).unlink()
    rewrite(run / NEWEST, change)
    with pytest.raises(ValueError, match=words) as caught:
        Trainer(config(run), corpus())
    assert "\n" not in str(caught.value)


def test_one_of_an_earlier_version_is_resumed_and_its_code_is_unknown(tmp_path, whole):
    out = tmp_path / "run"
    with Trainer(config(out), corpus()) as trainer:
        trainer.run(until=8)
        for path in out.glob("checkpoint*"):
            path.unlink()
        save_as_before(trainer, out)
    trainer, curve = resume(out)
    assert curve == whole
    first, second = read_record(out / "record.json", require_commit=False)["parts"]
    assert first == {"from_step": 0, "started": None, "code": None, "machines": []}
    assert second["from_step"] == 8 and second["code"]["sha256"] and second["machines"][0]["device"] == "cpu"
    with pytest.raises(ValueError, match="no commit is known to hold"):
        read_record(out / "record.json")


def test_settings_that_an_earlier_version_did_not_know_must_be_at_their_default(tmp_path):
    out = tmp_path / "run"
    with Trainer(config(out, eval_windows=64), corpus()) as trainer:
        trainer.run(until=4)
        save_as_before(trainer, out, eval_windows=..., retired=3)
    assert resume(out, eval_windows=64)[0].step == 12
    shutil.rmtree(out)
    with Trainer(config(out), corpus()) as trainer:
        trainer.run(until=4)
        save_as_before(trainer, out, eval_windows=...)
    with pytest.raises(ValueError, match="eval_windows=64, now 8"):
        Trainer(config(out), corpus())


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
