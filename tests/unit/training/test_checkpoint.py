"""A run that is killed goes on along the same curve, and what it wrote last is whole."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file
from small_run import Words, config, corpus, losses, same_numbers

from caracal_min import Caracal
from caracal_min.training import Trainer, load_run
from caracal_min.training.checkpoint import load_checkpoint


def start(out, changes=""):
    """Start a process that trains the small run, with a checkpoint after every step."""
    code = (f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
            "from small_run import Words, config, corpus; from caracal_min.training import Trainer\n"
            f"Trainer(config({str(out)!r}, steps=40, checkpoint_minutes=0{changes}), corpus()).run()")
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


def wait_for_step(out, step, process):
    log, end = out / "log.jsonl", time.monotonic() + 120
    while not (log.exists() and len(log.read_text().splitlines()) >= step):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.process
def test_a_killed_run_follows_the_same_curve_bit_for_bit(tmp_path):
    """Muon and AdamW; killed without warning, and gone on with in another process."""
    whole = Trainer(config(tmp_path / "whole", steps=40, optimizer="muon"), corpus()).run()
    process = start(tmp_path / "killed", ", optimizer='muon'")
    wait_for_step(tmp_path / "killed", 7, process)
    process.kill()
    process.communicate()
    # a checkpoint that was in the making is never taken
    (tmp_path / "killed" / "checkpoint.pt.partial").write_bytes(b"half of a file")
    trainer = Trainer(config(tmp_path / "killed", steps=40, optimizer="muon"), corpus())
    assert 6 <= trainer.step < 40 and losses(trainer.log) == losses(whole)[:trainer.step]
    assert same_numbers(trainer.run()) == same_numbers(whole)
    lines = (tmp_path / "killed" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == trainer.log
    a, b = (load_file(tmp_path / name / "model" / "model.safetensors")
            for name in ("whole", "killed"))
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    history = json.loads((tmp_path / "killed" / "run.json").read_text())["history"]
    assert [entry["from_step"] for entry in history] == [0, history[1]["from_step"]]


@pytest.mark.parametrize("fault", ["while it is written", "before it is renamed"])
def test_a_checkpoint_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch, fault):
    trainer = Trainer(config(tmp_path), corpus())
    trainer.run(until=4)
    save = torch.save

    def fail(state, path):
        if fault == "while it is written":
            path.write_bytes(b"half of a file")
        else:
            save(state, path)
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="no space left"):
        trainer.run()
    assert Trainer(config(tmp_path), corpus()).step == 4


def test_an_exception_loses_the_steps_since_the_checkpoint_alone(tmp_path):
    """As chapter 12 does it: a hook interrupts, and a new Trainer computes the same steps again."""
    trainer = Trainer(config(tmp_path), corpus())
    trainer.run(until=4)

    def cut(*_):
        if trainer.step == 7:
            raise InterruptedError

    trainer.model.embedding.register_forward_pre_hook(cut)
    with pytest.raises(InterruptedError):
        trainer.run()
    lost = trainer.log[4:]
    again = Trainer(config(tmp_path), corpus())
    assert again.step == 4
    again.run(until=7)
    assert len(lost) == 3 and losses(again.log[4:]) == losses(lost)


@pytest.mark.process
def test_a_signal_stops_a_run_with_a_checkpoint_of_its_last_step(tmp_path):
    process = start(tmp_path, ", eval_every=1000")
    wait_for_step(tmp_path, 3, process)
    process.terminate()
    said = process.communicate(timeout=60)[1]
    done = len((tmp_path / "log.jsonl").read_text().splitlines())
    assert process.returncode != 0 and f"StoppedError: a signal came; stopped after step {done}" in said
    assert load_checkpoint(tmp_path)["step"] == done < 40
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_finished_run_is_left_as_it_is_and_its_end_is_made_up_for(tmp_path):
    log = Trainer(config(tmp_path), corpus()).run()
    run = json.loads((tmp_path / "run.json").read_text())
    assert {"config", "tokens", "steps", "epochs", "seconds", "parameters", "precision", "device",
            "versions", "data", "history", "curve"} == run.keys()
    assert run["curve"] == log and run["steps"] == 12 and run["data"]["digest"] == corpus().digest
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    again = Trainer(config(tmp_path), corpus())
    assert again.finished and again.run() == log
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    (tmp_path / "run.json").unlink()  # as where a kill came right after the last checkpoint
    Trainer(config(tmp_path), corpus()).run()
    assert json.loads((tmp_path / "run.json").read_text())["curve"] == log


def test_a_run_is_extended_and_its_rate_is_that_of_the_longer_schedule(tmp_path):
    Trainer(config(tmp_path), corpus()).run()
    longer = Trainer(config(tmp_path, steps=20), corpus())
    assert longer.step == 12 and not longer.finished
    longer.run(until=14)
    assert load_run(tmp_path)[1] == 14  # the finished model is an earlier one by now
    log = longer.run()
    whole = Trainer(config(steps=20), corpus())
    whole.run()
    assert len(log) == 20 and log[11]["learning_rate"] < log[12]["learning_rate"]
    rates = [e["learning_rate"] for e in log[12:]]
    assert rates == [e["learning_rate"] for e in whole.log[12:]]
    run = json.loads((tmp_path / "run.json").read_text())
    budgets = [(e["from_step"], e["tokens"]) for e in run["history"]]
    assert budgets == [(0, 12 * 128), (12, 20 * 128)] and run["steps"] == 20
    with pytest.raises(ValueError, match="holds a run with tokens=2560, now 1536; resume"):
        Trainer(config(tmp_path), corpus())
    timed = dict(minutes=1e-9, steps=40)
    Trainer(config(tmp_path / "timed", **timed), corpus()).run()
    with Trainer(config(tmp_path / "timed", **timed | dict(minutes=60.0)), corpus()) as trainer:
        assert trainer.step == 1 and not trainer.finished and len(trainer.run(until=3)) == 3


@pytest.mark.parametrize("changes, said", [
    (dict(learning_rate=0.002), "learning_rate=0.003, now 0.002; .* give --start"),
    (dict(optimizer="muon"), "optimizer='adamw', now 'muon'"),
    (dict(precision="bfloat16"), "precision='float32', now 'bfloat16'"),
    (dict(variant="no-swa"), "variant='default', now 'no-swa'; .* another folder$"),
    (dict(eval_windows=9), "eval_windows=8, now 9"),
])
def test_other_settings_are_refused_before_the_text_is_read(tmp_path, monkeypatch, changes, said):
    Trainer(config(tmp_path), corpus()).run(until=4)
    monkeypatch.setattr("caracal_min.training.trainer.load_corpus", lambda *_: pytest.fail("read"))
    with pytest.raises(ValueError, match=f"holds a run with {said}") as caught:
        Trainer(config(tmp_path, **changes))
    assert "\n" not in str(caught.value)


def test_other_data_is_refused_and_what_changes_no_number_is_not(tmp_path):
    whole = losses(Trainer(config(), corpus()).run())
    Trainer(config(tmp_path), corpus()).run(until=4)
    with pytest.raises(ValueError, match="holds a run with data_sha256=.*; resume with the same"):
        Trainer(config(tmp_path), corpus(seed=1))
    changes = dict(checkpoint_minutes=0.0, eval_every=2, prompt="gate ", data="elsewhere.txt")
    assert losses(Trainer(config(tmp_path, **changes), corpus()).run()) == whole


def test_the_model_of_a_run_is_that_of_its_checkpoint_then_the_finished_one(tmp_path):
    shape = ("gate_length=7", "n_layers=3", "gate=single_stage")
    trainer = Trainer(config(tmp_path, model=shape), corpus())
    trainer.run(until=5)
    tokens = torch.arange(20)[None] + 60
    expected = trainer.model.eval()(tokens)[0]
    model, step = load_run(tmp_path)
    assert step == 5 and torch.equal(model(tokens)[0], expected) and not model.training
    assert model.tokenizer.name == "byte"
    assert load_run(tmp_path, gate_length=3)[0].config.gate_length == 3
    trainer.run()
    model, step = load_run(tmp_path)
    assert step is None and torch.equal(model(tokens)[0], trainer.model.eval()(tokens)[0])
    assert load_run(tmp_path / "model")[1] is None


def test_a_run_starts_from_the_weights_of_another(tmp_path):
    with Trainer(config(tmp_path / "first"), corpus()) as trainer:
        end = trainer.run()[-1]["validation_loss"]
    more = dict(start=str(tmp_path / "first"), learning_rate=1e-9, steps=6)
    with Trainer(config(tmp_path / "more", **more), corpus()) as trainer:
        trainer.run(until=4)
    (tmp_path / "first").rename(tmp_path / "moved")  # the checkpoint has all that is needed
    with Trainer(config(tmp_path / "more", **more), corpus()) as trainer:
        log = trainer.run()
    assert len(log) == 6 and log[-1]["validation_loss"] == pytest.approx(end, abs=1e-4)
    other = Caracal.from_preset("nano")
    other.tokenizer = Words()
    other.save_pretrained(tmp_path / "words")
    with pytest.raises(ValueError, match="words was trained with the tokenizer") as caught:
        Trainer(config(start=str(tmp_path / "words")), corpus())
    assert "\n" not in str(caught.value)
