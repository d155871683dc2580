"""`python -m caracal_min`: each command once, errors in one line, and one process as a user starts it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest
import torch

from caracal_min import Caracal, __version__
from caracal_min.__main__ import main
from caracal_min.data import ByteTokenizer, tokens_of
from caracal_min.evaluation import held_out_loss
from caracal_min.training import TrainConfig, Trainer

SMALL = ["--tokens", "512", "--context", "32", "--eval-windows", "2", "--device", "cpu", "--no-progress"]


@pytest.fixture
def run(monkeypatch, capsys):  # one command in this process; returns what it printed
    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["caracal_min", *map(str, arguments)])
        main()
        return capsys.readouterr().out
    return command


@pytest.fixture(scope="module")
def text(tmp_path_factory):  # 400 documents, 20 of which are held out
    path = tmp_path_factory.mktemp("text") / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": f"text {i} " * 20}) + "\n" for i in range(400)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):  # an untrained nano that reads bytes
    folder = tmp_path_factory.mktemp("nano")
    torch.manual_seed(0)
    nano = Caracal.from_preset("nano")
    nano.tokenizer = ByteTokenizer()
    nano.save_pretrained(folder)
    return folder


def test_train_resumes_and_sample_reads_the_run(run, text, tmp_path, capsys):
    out = tmp_path / "run"
    config = TrainConfig.for_preset("nano", data=str(text), out=out, tokens=512, context=32, eval_windows=2,
                                    device="cpu", progress=False)
    with Trainer(config) as trainer:
        trainer.run(until=2)
    sample = ["sample", out, "--prompt", "text ", "--max-new-tokens", 8, "--seed", 1, "--device", "cpu"]
    assert run(*sample).startswith("text")  # from the checkpoint of a run that has not ended
    said = run("train", "--preset", "nano", "--data", text, "--out", out, *SMALL)
    assert "resumed after step 2 of 4\n" in said and "step 4 of 4: done" in said and str(out / "model") in said
    assert f"more than 32 tokens, cut its gate: sample {out} --gate-length 32" in said
    written = Caracal.from_pretrained(out / "model", device="cpu").generate_text("text", 8, temperature=0.8, seed=1)
    assert run(*sample) == written + "\n"
    said = run("train", "--start", out, "--data", text, "--out", tmp_path / "more", *SMALL)
    assert "step 4 of 4: done" in said and "resumed" not in said  # of its preset, read with its tokenizer


def test_train_goes_on_with_micro_on_a_small_text_of_ones_own(run, text, tmp_path, monkeypatch):
    """Its preset, its tokenizer and its cut gate come along; of a text of 400 short documents some are held out."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("the network was asked"))
    train = ["train", "--start", "micro", "--data", text, "--out", tmp_path, "--tokens", 256, "--context", 64,
             "--batch-size", 2, "--micro-batch-size", 2, "--prompt", "text ", "--device", "cpu", "--no-progress"]
    said = run(*train)
    assert "step 2 of 2: done" in said and "cut its gate" not in said
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert log[0]["loss"] < 8 and log[0]["sample"].startswith("text") and not log[0]["sample"].startswith("text  ")
    model, micro = (Caracal.from_pretrained(name, device="cpu") for name in (tmp_path / "model", "micro"))
    assert (model.tokenizer.to_json(), model.config.gate_length) == (micro.tokenizer.to_json(), 256)
    train[train.index("--tokens") + 1] = 512
    assert "step 4 of 4: done" in run(*train)  # and is extended without a look at micro


def test_evaluate_prints_the_loss_of_the_library(run, model, text):
    said = run("evaluate", model, "--data", text, "--context", 32, "--device", "cpu", "--precision", "float32")
    found = dict(re.findall(r"^(loss|bits per byte) = ([\d.]+)", said, re.MULTILINE))
    ids = tokens_of(text, "byte", "held_out", progress=False)
    loss = held_out_loss(Caracal.from_pretrained(model, device="cpu"), ids, 32)
    assert float(found["loss"]) == pytest.approx(loss, abs=1e-4)
    assert float(found["bits per byte"]) == pytest.approx(loss / 0.6931, rel=0.02)  # ends of texts are no bytes
    assert [int(n) for n in re.findall(r"^context (\d+)", said, re.MULTILINE)] == [32, 64, 128, 256, 512]


def test_tokenize_writes_what_train_reads(run, text, tmp_path):
    run("tokenize", "--source", text, "--out", tmp_path / "shards", "--tokenizer", "byte")
    assert "done" in run("train", "--data", tmp_path / "shards", "--out", tmp_path / "run", *SMALL)


def test_export_and_info(run, model, tmp_path):
    run("export", model, "--out", tmp_path / "nano.pt2", "--length", 9)
    tokens = torch.arange(9)[None]
    exported = torch.export.load(tmp_path / "nano.pt2").module()(tokens)
    assert torch.allclose(exported, Caracal.from_pretrained(model, device="cpu").logits(tokens), atol=1e-4)
    said = run("info", model)
    assert __version__ in said and "1,269,504 parameters" in said and "tokenizer = byte" in said


@pytest.mark.parametrize("arguments, said", [
    (["info", "nowhere"], "there is no model 'nowhere'"),
    (["train", "--preset", "huge"], "unknown preset 'huge'"),
    (["sample", "micro", "--gate-length", "0"], "gate_length=0"),
    (["evaluate", "micro", "--data", "nowhere.jsonl"], "nowhere.jsonl"),
])
def test_an_error_is_one_line(run, arguments, said):
    with pytest.raises(SystemExit) as exit:
        run(*arguments)
    assert exit.value.code.startswith("error: ") and said in exit.value.code and "\n" not in exit.value.code


def test_ctrl_c_is_one_line_and_the_run_goes_on(run, text, tmp_path, monkeypatch):
    command, step = ["train", "--preset", "nano", "--data", text, "--out", tmp_path, *SMALL], Trainer._train_step
    with monkeypatch.context() as patch, pytest.raises(SystemExit, match="^a signal came; stopped after step 1; "):
        patch.setattr(Trainer, "_train_step", lambda self: (signal.raise_signal(signal.SIGINT), step(self)))
        run(*command)
    assert "step 4 of 4: done" in run(*command)


@pytest.mark.process
def test_a_process_of_its_own():
    command = [sys.executable, "-m", "caracal_min", "sample"]
    drawn = [*command, "micro", "--prompt", "βeta", "--max-new-tokens", "4", "--seed", "1"]
    latin = os.environ | {"PYTHONIOENCODING": "latin-1"}  # as into a pipe on Windows: it has no β
    done = subprocess.run(drawn, capture_output=True, text=True, env=latin)
    assert done.returncode == 0 and done.stdout.startswith("?eta"), done.stderr
    wrong = subprocess.run([*command, "nowhere"], capture_output=True, text=True)
    assert wrong.returncode == 1 and re.fullmatch("error: there is no model 'nowhere'.*\n", wrong.stderr)
