"""The training loop: schedule, accumulation, divergence, and a run that survives SIGKILL with the same curve."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_run import config, corpus, kill_after, losses

from caracal_min import Caracal, CaracalConfig
from caracal_min.data import Corpus, Manifest, tokenize
from caracal_min.evaluation import held_out_loss
from caracal_min.language_model import LanguageModel
from caracal_min.packing import document_ids
from caracal_min.training import DivergedError, TrainConfig, Trainer, learning_rate
from caracal_min.training.checkpoint import Checkpoints
from caracal_min.training.trained import load_trained


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
    kill_after(Trainer(config(tmp_path / "b"), corpus()), 7, checkpoints=[4])  # steps 5 to 7 are lost
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


def command(out, *more):
    return [sys.executable, "-m", "caracal_min", "train", "--preset", "nano", "--tokens", "20480", "--context", "64",
            "--batch-size", "8", "--micro-batch-size", "8", "--corpus-tokens", "300000", "--eval-every", "10",
            "--eval-windows", "8", "--no-progress", "--device", "cpu", "--out", str(out), *more]


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
        process = subprocess.Popen(command(tmp_path / "killed", "--checkpoint-minutes", "0"),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
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


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_stops_the_command_with_a_checkpoint_of_its_last_step(tmp_path, name):
    process = subprocess.Popen(command(tmp_path, "--tokens", str(20 * 20480)), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    wait_for_step(tmp_path, 5, process)
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    done = len((tmp_path / "log.jsonl").read_text().splitlines())
    assert f"step {done} of 800: stopped; the same command goes on from here" in out
    assert Checkpoints(tmp_path).read().facts["step"] == done < 800


PROGRAM = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from pathlib import Path
from small_run import config, corpus
from caracal_min.training import StoppedError, Trainer
trainer = Trainer(config(Path(sys.argv[1])), corpus())
if {ignored}:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
step = trainer.optimizer.step
def stepping(*_):
    if trainer.step == 4:
        for name in {names}:
            os.kill(os.getpid(), getattr(signal, name))
    step()
trainer.optimizer.step = stepping
try:
    trainer.run()
except StoppedError as error:
    print(error)
print(trainer.step, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


@pytest.mark.parametrize("names, ignored, said, kept", [
    (["SIGTERM"], False, "SIGTERM after step 5\n5 True\n", 5), (["SIGHUP"], True, "12 True\n", 12),
    (["SIGINT", "SIGINT"], False, None, None)], ids=["one", "ignored", "two"])
def test_a_signal_stops_a_run_of_a_program_too(tmp_path, names, ignored, said, kept):
    """The step during which it comes is ended and kept; nohup's SIGHUP is ignored; a second Ctrl-C does not wait."""
    code = PROGRAM.format(folder=os.path.dirname(__file__), names=names, ignored=ignored)
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    if said is None:
        assert done.returncode != 0 and done.stderr.endswith("KeyboardInterrupt\n")
        assert not (tmp_path / "checkpoint.safetensors").exists()
        return
    assert done.stdout == said
    assert Checkpoints(tmp_path).read().facts["step"] == kept


def test_a_run_that_is_left_at_some_step_goes_on_there(tmp_path):
    with Trainer(config(tmp_path), corpus()) as trainer:
        trainer.run(until=5)
        kept = (tmp_path / "checkpoint.safetensors").stat().st_mtime_ns
        trainer.run(until=5)
    assert (tmp_path / "checkpoint.safetensors").stat().st_mtime_ns == kept
    with Trainer(config(tmp_path), corpus()) as again:
        assert again.step == 5
        assert losses(again.run()) == losses(Trainer(config(), corpus()).run())


def test_checkpoints_are_minutes_apart(tmp_path, monkeypatch):
    """The clock is replaced: a step takes some 40 seconds, and at least two minutes are between checkpoints."""
    trainer, kept = Trainer(config(tmp_path, checkpoint_minutes=2.0), corpus()), []
    checkpoint, now = trainer.checkpoint, iter(range(0, 10**6, 10))
    trainer.checkpoint = lambda: (checkpoint(), kept.append((trainer.step, trainer.seconds)))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(now)))
    trainer.run()
    times = [0.0, *(seconds for _, seconds in kept)]
    assert kept[-1][0] == 12 and 3 <= len(kept) <= 6
    assert all(120 <= b - a < 170 for a, b in zip(times[:-2], times[1:-1], strict=True))


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
    assert Trainer(config(tmp_path), corpus()).step == 6


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
    changes = dict(checkpoint_minutes=1e-9, eval_every=2, prompt="gate ")
    with Trainer(config(tmp_path, **changes), corpus()) as trainer:
        log = trainer.run(until=10)
    assert losses(log) == whole[:10] and trainer.step == 10
    assert [entry["step"] for entry in log if "validation_loss" in entry] == [6, 8, 10]
    assert [entry["step"] for entry in log if "sample" in entry] == [8]
    (tmp_path / "checkpoint.safetensors").unlink()
    assert Checkpoints(tmp_path).read().facts["step"] == 9
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
    (dict(out=""), ["out=''", "a path"]),
    (dict(model="window_size=9"), ["model='window_size=9'", "a tuple"]),
    (dict(checkpoint_minutes=-1.0), ["checkpoint_minutes=-1.0", ">= 0"]),
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


def test_numbers_of_numpy_and_paths_of_either_kind_are_taken(tmp_path):
    made = config(str(tmp_path), seed=np.int64(3), context=np.int32(32), learning_rate=np.float32(0.5),
                  model=["n_layers=2"], progress=np.bool_(False), data=Path("a") / "b")
    assert made == config(tmp_path, seed=3, learning_rate=0.5, model=("n_layers=2",), data="a/b")
    assert json.loads(json.dumps(made.resume_settings))["seed"] == 3 and isinstance(made.out, Path)
    shape = CaracalConfig(*np.array([256, 64, 3, 2]), window_size=np.int16(8), init_std=np.float32(0.5))
    assert json.dumps(vars(shape)) == json.dumps(vars(CaracalConfig(256, 64, 3, 2, window_size=8, init_std=0.5)))


class Bigram(LanguageModel):
    """A model that is in no zoo: the next token from the last alone."""

    def __init__(self, ids):
        super().__init__()
        self.config, self.embedding = SimpleNamespace(vocab_size=ids), torch.nn.Embedding(ids, 16)

    def hidden(self, tokens):
        return self.embedding(tokens).roll(1, -1)

    def save_pretrained(self, folder):
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text('{"model_type": "bigram"}')
        save_file({"embedding.weight": self.embedding.weight.detach()}, folder / "model.safetensors")


def test_a_model_of_ones_own_is_trained_and_resumed(tmp_path):
    torch.manual_seed(0)
    first = Bigram(256)
    start = first.embedding.weight.detach().clone()
    whole = Trainer(config(learning_rate=0.1), corpus(), model=first).run()
    assert whole[-1]["loss"] < whole[0]["loss"] - 0.5
    for until in (5, None):
        own = Bigram(256)
        own.embedding.weight.data.copy_(start)
        with Trainer(config(tmp_path, learning_rate=0.1), corpus(), model=own) as trainer:
            assert trainer.model is own
            log = trainer.run(until=until)
        if until:
            with pytest.raises(ValueError, match="holds the weights of a model of one's own, Bigram; only the program"):
                load_trained(tmp_path)
            with pytest.raises(ValueError, match="holds a run with architecture='Bigram', now 'caracal'"):
                Trainer(config(tmp_path, learning_rate=0.1), corpus())
    assert losses(log) == losses(whole)
    assert json.loads((tmp_path / "record.json").read_text())["results"]["model"] == {"model_type": "bigram"}
    with pytest.raises(ValueError, match="the model has 7 ids and the tokenizer byte has 256; give a model"):
        Trainer(config(), corpus(), model=Bigram(7))
    with pytest.raises(ValueError, match="a Bigram cannot generate"):
        Trainer(config(prompt="The "), corpus(), model=Bigram(256))


def test_each_batch_is_read_once_and_ahead_of_its_step():
    trainer = Trainer(config(), corpus())
    batches, asked = trainer.batches, []

    class Noted:
        def __getitem__(self, i):
            asked.append((i, trainer.step))
            return batches[i]

        def epochs(self, n):
            return batches.epochs(n)

    trainer.batches = Noted()
    trainer.run(until=5)
    assert losses(trainer.run()) == losses(Trainer(config(), corpus()).run())
    assert asked == [(0, 0), *((i, i - 1) for i in range(1, 12))]


def documents(tokenizer="byte"):
    """A text whose documents end every few words, so that most windows hold several."""
    whole = corpus()
    train, validation = (np.where(ids.cumsum() % 13, ids, 0).astype(np.uint16)
                         for ids in (whole.train, whole.validation))
    return Corpus("test", tokenizer, train, validation)


def test_documents_of_a_window_are_trained_on_and_validated_each_alone():
    trainer = Trainer(config(steps=5, reset_documents=True), documents())
    x, y = trainer.batches[0]
    assert (x == 0).sum() > len(x)
    with torch.no_grad():
        expected, mixed = (trainer.model.loss(x, y, ids).item() for ids in (document_ids(x, 0), None))
    log = trainer.run()
    assert log[0]["loss"] == pytest.approx(expected, rel=1e-5) and abs(expected - mixed) > 1e-4
    measured = (trainer.model, documents().validation, 32, 8)
    assert log[-1]["validation_loss"] == held_out_loss(*measured, end_of_text=0) != held_out_loss(*measured)
    assert log[-1]["tokens"] == 5 * 4 * 32


def test_documents_that_are_reset_are_accumulated_and_resumed_on_the_same_curve(tmp_path):
    whole = Trainer(config(tmp_path / "a", reset_documents=True), documents()).run()
    kill_after(Trainer(config(tmp_path / "b", reset_documents=True), documents()), 7, checkpoints=[4])
    resumed = Trainer(config(tmp_path / "b", reset_documents=True), documents())
    assert resumed.step == 4 and losses(resumed.run()) == losses(whole)
    single = Trainer(config(micro_batch_size=1, reset_documents=True), documents()).run()
    np.testing.assert_allclose(losses(single)[:3], losses(whole)[:3], rtol=1e-5)
    with pytest.raises(ValueError, match="holds a run with reset_documents=True, now False"):
        Trainer(config(tmp_path / "a"), documents())
    assert json.loads((tmp_path / "a" / "record.json").read_text())["config"]["reset_documents"] is True


def test_documents_that_are_reset_meet_compiled_kernels():
    plain, compiled = (Trainer(config(steps=3, reset_documents=True, compile=how), documents()).run()
                       for how in ("no", "blocks"))
    np.testing.assert_allclose(losses(plain), losses(compiled), rtol=1e-5)


def test_documents_are_reset_by_a_tokenizer_that_ends_them():
    endless = SimpleNamespace(name="endless", vocab_size=256)
    with pytest.raises(ValueError, match="^reset_documents=True, and the tokenizer endless has no end_of_text to find"):
        Trainer(config(reset_documents=True), documents(endless))
