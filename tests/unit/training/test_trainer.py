"""The training loop: schedule, accumulation, divergence, and a run that survives SIGKILL with the same curve."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small_run import config, corpus, losses

from caracal_min import Caracal
from caracal_min.data import Manifest, tokenize
from caracal_min.training import DivergedError, TrainConfig, Trainer, learning_rate


def without_times(entry):
    return {key: value for key, value in entry.items() if key not in ("seconds", "tokens_per_second", "mfu")}


def test_schedule():
    c = TrainConfig()  # the paper's: 10B tokens in batches of 0.5M
    assert c.batch_size * c.context == 524_288 and c.steps == 19_073
    rates = [learning_rate(s, c) for s in range(c.steps)]
    peak = int(np.argmax(rates))
    assert max(rates) == pytest.approx(9e-4)
    assert peak + 1 == pytest.approx(0.0375 * c.steps, abs=1)
    assert np.allclose(np.diff(rates[:peak]), rates[0])  # linear from zero
    assert (np.diff(rates[peak:]) <= 0).all() and rates[-1] == pytest.approx(9e-5, rel=1e-3)
    middle = peak + (c.steps - peak) // 2
    assert rates[middle] == pytest.approx((9e-4 + 9e-5) / 2, rel=1e-3)


def test_training_learns_and_logs():
    log = Trainer(config(steps=60), corpus()).run()
    assert [e["step"] for e in log] == list(range(1, 61))
    assert log[-1]["tokens"] == 60 * 4 * 32
    measured = [e["validation_loss"] for e in log if "validation_loss" in e]
    assert len(measured) == 12
    assert measured[-1] < 2.0 < 4.0 < log[0]["loss"]  # guessing letters of these words gives about 2.7


def test_accumulation_gives_the_same_curve():
    whole = Trainer(config(micro_batch_size=4), corpus()).run()
    parts = Trainer(config(micro_batch_size=1), corpus()).run()
    np.testing.assert_allclose(losses(whole), losses(parts), rtol=2e-3)
    np.testing.assert_allclose(losses(whole)[:3], losses(parts)[:3], rtol=1e-5)


def test_weight_decay_acts_on_matrices_only():
    trainer = Trainer(config(), corpus())
    decayed, plain = trainer.optimizer.param_groups
    assert decayed["weight_decay"] == 0.1 and plain["weight_decay"] == 0.0
    assert all(p.ndim >= 2 for p in decayed["params"]) and all(p.ndim == 1 for p in plain["params"])
    assert sum(p.numel() for g in (decayed, plain) for p in g["params"]) == trainer.model.num_parameters()


def test_running_in_parts_is_the_same_run():
    whole = Trainer(config(), corpus()).run()
    trainer = Trainer(config(), corpus())
    trainer.run(until=5)
    assert trainer.step == 5
    assert losses(trainer.run()) == losses(whole)


def test_resume_follows_the_same_curve_to_the_last_bit(tmp_path):
    whole = Trainer(config(tmp_path / "a"), corpus()).run()
    first = Trainer(config(tmp_path / "b"), corpus())
    first.run(until=7)  # the last checkpoint is at step 4; steps 5 to 7 are lost, as by a kill
    resumed = Trainer(config(tmp_path / "b"), corpus())
    assert resumed.step == 4
    log = resumed.run()
    assert losses(log) == losses(whole)
    a, b = (load_file(tmp_path / x / "model" / "model.safetensors") for x in "ab")
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    lines = [json.loads(line) for line in (tmp_path / "b" / "log.jsonl").read_text().splitlines()]
    assert lines == log
    assert Caracal.from_pretrained(tmp_path / "b" / "model").config.d_model == 128


def test_finished_run_is_not_trained_again(tmp_path):
    Trainer(config(tmp_path), corpus()).run()
    again = Trainer(config(tmp_path), corpus())
    assert again.step == 12 and len(again.run()) == 12


def command(out):
    return [sys.executable, "-m", "caracal_min", "train", "--preset", "nano", "--tokens", "20480", "--context", "64",
            "--batch-size", "8", "--micro-batch-size", "8", "--corpus-tokens", "300000", "--eval-every", "10",
            "--eval-windows", "8", "--checkpoint-every", "4", "--no-progress", "--device", "cpu", "--out", str(out)]


def wait_for_step(out, step, process):
    log, deadline = out / "log.jsonl", time.time() + 120
    while not (log.exists() and len(log.read_text().splitlines()) >= step):
        assert process.poll() is None, process.stderr.read().decode()
        assert time.time() < deadline, "the run did not get going in two minutes"
        time.sleep(0.05)


def test_sigkill_and_resume_by_the_command_line(tmp_path):
    """The same command, killed twice without warning and started again, ends with the curve of an undisturbed run."""
    subprocess.run(command(tmp_path / "whole"), check=True, capture_output=True)
    for step in (6, 17):
        process = subprocess.Popen(command(tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        wait_for_step(tmp_path / "killed", step, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
    done = subprocess.run(command(tmp_path / "killed"), check=True, capture_output=True, text=True)
    assert "resuming" in done.stdout and "step 40 of 40: done" in done.stdout
    curves = [[json.loads(line) for line in (tmp_path / run / "log.jsonl").read_text().splitlines()]
              for run in ("whole", "killed")]
    for a, b in zip(*curves, strict=True):
        assert without_times(a) == without_times(b)


def test_sigterm_stops_with_a_checkpoint(tmp_path):
    process = subprocess.Popen(command(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_step(tmp_path, 5, process)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "the same command goes on from here" in out
    assert (tmp_path / "checkpoint.safetensors").exists()


def test_a_kill_while_writing_keeps_the_previous_checkpoint(tmp_path):
    trainer = Trainer(config(tmp_path), corpus())
    trainer.run(until=4)
    (tmp_path / "checkpoint.safetensors.partial").write_bytes(b"half of a file")
    assert Trainer(config(tmp_path), corpus()).step == 4


def test_nan_stops_with_the_step_and_keeps_the_checkpoint(tmp_path):
    trainer = Trainer(config(tmp_path), corpus())
    trainer.run(until=6)
    with torch.no_grad():
        trainer.model.blocks[0].mixer.to_out.bias[0] = float("nan")
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    with pytest.raises(DivergedError) as caught:
        trainer.run()
    message = str(caught.value)
    assert "step 7" in message and "learning_rate" in message and str(tmp_path) in message and "\n" not in message
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before
    assert Trainer(config(tmp_path), corpus()).step == 4


def test_other_settings_or_data_are_refused(tmp_path):
    Trainer(config(tmp_path), corpus()).run(until=4)
    with pytest.raises(ValueError, match="learning_rate=0.003, now 0.002"):
        Trainer(replace(config(tmp_path), learning_rate=0.002), corpus())
    with pytest.raises(ValueError, match="other data"):
        Trainer(config(tmp_path), corpus(seed=1))


def test_other_settings_are_refused_before_the_corpus_is_read(tmp_path, monkeypatch):
    Trainer(config(tmp_path), corpus()).run(until=4)
    monkeypatch.setattr("caracal_min.training.trainer.load_corpus", lambda *_, **__: pytest.fail("was read"))
    with pytest.raises(ValueError, match="learning_rate=0.003, now 0.002"):
        Trainer(replace(config(tmp_path), learning_rate=0.002))


def test_when_a_run_is_measured_sampled_and_kept_may_change_on_the_way(tmp_path):
    whole = losses(Trainer(config(), corpus()).run())
    Trainer(config(tmp_path), corpus()).run(until=4)
    changes = dict(checkpoint_every=3, eval_every=2, prompt="gate ")
    with Trainer(config(tmp_path, **changes), corpus()) as trainer:
        log = trainer.run(until=10)
    assert losses(log) == whole[:10] and trainer.step == 10
    assert [entry["step"] for entry in log if "validation_loss" in entry] == [6, 8, 10]
    assert [entry["step"] for entry in log if "sample" in entry] == [8]
    assert Trainer(config(tmp_path), corpus()).step == 9
    with pytest.raises(ValueError, match="eval_windows=8, now 9"):
        Trainer(config(tmp_path, eval_windows=9), corpus())


@pytest.mark.parametrize("changes, words", [
    (dict(data="missing.jsonl"), "no file missing.jsonl"),
    (dict(validation="missing.txt"), "no file missing.txt"),
    (dict(validation="binary.txt"), "binary.txt cannot be read .line 1"),
    (dict(data="shards"), "shards is not finished"),
])
def test_what_cannot_be_read_is_reported_before_the_corpus_is_read(tmp_path, monkeypatch, changes, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)))
    tokenize("embedded", "shards", "byte", 1000, limit_documents=5, progress=False)
    replace(Manifest.load("shards"), complete=False).save(tmp_path / "shards")
    monkeypatch.setattr("caracal_min.training.trainer.load_corpus", lambda *_, **__: pytest.fail("was read"))
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        Trainer(config(tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


def test_a_package_that_is_missing_is_reported_before_the_corpus_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("caracal_min.training.trainer.load_corpus", lambda *_, **__: pytest.fail("was read"))
    for package, changes in {"tensorboard": dict(tensorboard=True), "transformers": dict(architecture="llama"),
                             "datasets": dict(data="fineweb")}.items():
        with monkeypatch.context() as patch, pytest.raises(ImportError, match=f"needs {package}") as caught:
            for name in [name for name in sys.modules if name.partition(".")[0] == package]:
                patch.delitem(sys.modules, name)
            patch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
            patch.setitem(sys.modules, package, None)
            Trainer(config(tmp_path, **changes))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("changes, words", [
    (dict(preset="huge"), ["huge", "nano, micro, tiny"]),
    (dict(batch_size=10, micro_batch_size=4), ["batch_size=10", "micro_batch_size=4"]),
    (dict(tokens=0), ["tokens=0"]),
    (dict(learning_rate=0.0), ["learning_rate=0.0"]),
    (dict(warmup=1.5), ["warmup=1.5"]),
    (dict(weight_decay=-1.0), ["weight_decay=-1.0"]),
    (dict(seed=-1), ["seed=-1", ">= 0"]),
    (dict(seed=True), ["seed=True", "whole number"]),
    (dict(minutes=float("inf")), ["minutes=inf", "finite"]),
    (dict(learning_rate=float("nan")), ["learning_rate=nan", "finite"]),
    (dict(context=32.0), ["context=32.0", "whole number"]),
    (dict(tokens=2**63), ["tokens=9223372036854775808", "whole number"]),
    (dict(beta1=1.0), ["beta1=1.0", "< 1"]),
    (dict(tokenizer="klingon"), ["unknown tokenizer 'klingon'", "byte, gpt2, gpt2:N"]),
    (dict(optimizer="sgd"), ["optimizer='sgd'", "adamw, muon"]),
    (dict(model=("window_size",)), ["model='window_size'", "name=value"]),
    (dict(model=("window_size=8", "window_size=9")), ["model='window_size=9'", "once each"]),
    (dict(model=("window_size=wide",)), ["window_size='wide'", "whole number"]),
    (dict(model=("wings=2",)), ["caracal has no setting 'wings'", "window_size"]),
    (dict(model=("vocab_size=99",)), ["caracal has no setting 'vocab_size'"]),
    (dict(model=("window_size=9",), architecture="llama"), ["llama has no setting 'window_size'", "d_model"]),
    (dict(data=""), ["data is empty"]),
    (dict(out="runs/a"), ["out='runs/a'", "Path"]),
    (dict(compile="yes"), ["compile='yes'", "no, blocks, model"]),
    (dict(timeout=0.0), ["timeout=0.0", "> 0"]),
    (dict(corpus_tokens=0), ["corpus_tokens=0"]),
])
def test_bad_settings_get_one_clear_line(changes, words):
    with pytest.raises(ValueError) as caught:
        config(**changes)
    for word in words:
        assert word in str(caught.value)


def test_tokenizer_and_preset_must_fit():
    data = corpus()
    with pytest.raises(ValueError, match="unknown tokenizer"):
        Trainer(config(), replace(data, tokenizer="klingon"))
