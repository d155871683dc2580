"""Two processes started by torchrun follow the curve of one, and resume."""

import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from caracal_min.data import documents
from caracal_min.training import TrainConfig, Trainer

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def command(out, shards, processes, *more):
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m",
             "caracal_min"] if processes > 1 else [sys.executable, "-m", "caracal_min"]
    return [*start, "train", "--preset", "nano", "--data", str(shards), "--tokens", "10240", "--context", "64",
            "--batch-size", "8", "--micro-batch-size", "2", "--eval-every", "10", "--eval-windows", "8",
            "--no-progress", "--device", "cpu", "--out", str(out), *more]


def tokenized(folder, texts):
    source = folder / "texts.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    subprocess.run([sys.executable, "-m", "caracal_min", "tokenize", "--source", source, "--out", folder / "shards",
                    "--tokenizer", "byte", "--shard-tokens", "50000", "--no-progress"], check=True)
    return folder / "shards"


@pytest.fixture(scope="module")
def texts():
    return [text for text, _ in zip(documents("embedded"), range(60), strict=False)]


@pytest.fixture(scope="module")
def shards(tmp_path_factory, texts):
    return tokenized(tmp_path_factory.mktemp("corpus"), texts)


def run(*arguments):
    done = subprocess.run(command(*arguments), capture_output=True, text=True, env=ENVIRONMENT, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def log(out):
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_two_processes_follow_the_curve_of_one(shards, tmp_path):
    run(tmp_path / "one", shards, 1)
    assert "step 20 of 20: done" in run(tmp_path / "two", shards, 2)
    one, two = log(tmp_path / "one"), log(tmp_path / "two")
    assert [entry["step"] for entry in two] == list(range(1, 21))
    for name in ("loss", "learning_rate"):
        np.testing.assert_allclose([e[name] for e in one], [e[name] for e in two], atol=1e-4, rtol=0)
    np.testing.assert_allclose([e["grad_norm"] for e in one], [e["grad_norm"] for e in two], rtol=1e-3)
    measured = [[e["validation_loss"] for e in log if "validation_loss" in e] for log in (one, two)]
    np.testing.assert_allclose(*measured, atol=1e-4, rtol=0)
    assert one[0]["loss"] - one[-1]["loss"] > 1
    record = json.loads((tmp_path / "two" / "record.json").read_text())
    assert record["results"]["processes"] == 2


def test_two_processes_stop_together_and_resume_on_the_same_curve(shards, tmp_path):
    run(tmp_path / "whole", shards, 2)
    process = subprocess.Popen(command(tmp_path / "cut", shards, 2), env=ENVIRONMENT, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    path, until = tmp_path / "cut" / "log.jsonl", time.monotonic() + 120
    while not (path.exists() and len(path.read_text().splitlines()) >= 3):
        assert process.poll() is None and time.monotonic() < until, process.communicate()[1].decode()
        time.sleep(0.02)
    process.terminate()
    process.communicate(timeout=60)
    stopped = len(log(tmp_path / "cut"))
    assert (tmp_path / "cut" / "checkpoint.safetensors").exists() and not (tmp_path / "cut" / "model").exists()
    assert f"resuming {tmp_path / 'cut'} at step {stopped} of 20" in run(tmp_path / "cut", shards, 2)
    assert [e["loss"] for e in log(tmp_path / "cut")] == [e["loss"] for e in log(tmp_path / "whole")]


def test_two_processes_with_unequal_numbers_of_documents_follow_the_curve_of_one(tmp_path, texts):
    short = tokenized(tmp_path, [text[i:i + n] for text, n in zip(texts, range(9, 90), strict=False)
                                 for i in range(0, 3000, n)])
    for out, processes in ((tmp_path / "one", 1), (tmp_path / "two", 2)):
        run(out, short, processes, "--reset-documents")
    one, two = log(tmp_path / "one"), log(tmp_path / "two")
    for name in ("loss", "validation_loss"):
        found, expected = ([e[name] for e in entries if name in e] for entries in (two, one))
        np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)


APART = """
import os, sys
from caracal_min.__main__ import main
sys.exit(main([*sys.argv[1:-1], f"{sys.argv[-1]}-{os.environ['RANK']}"]))
"""


@pytest.mark.parametrize("option, what", [("--out", "checkpoint"), ("--data", "data")])
def test_processes_that_see_other_folders_get_one_line(shards, tmp_path, texts, option, what):
    """What the option names is another folder in each: of the run, where the first sees a checkpoint, or of shards."""
    if what == "data":
        shutil.copytree(shards, tmp_path / "place-0")
        tokenized(tmp_path, texts[:30]).rename(tmp_path / "place-1")
    else:
        made = TrainConfig.for_preset("nano", data=str(shards), tokens=10240, context=64, batch_size=8,
                                      micro_batch_size=2, eval_windows=8, progress=False, device="cpu",
                                      out=tmp_path / "place-0")
        with Trainer(made) as trainer:
            trainer.run(until=3)
    _, *start = command(tmp_path / "run", shards, 2)
    at = start.index("caracal_min") - 1
    words = [sys.executable, *start[:at], "--no-python", sys.executable, "-c", APART, *start[at + 2:], option,
             tmp_path / "place"]
    done = subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, timeout=240)
    assert done.returncode != 0 and f"error: the processes of this run do not see the same {what}; give" in done.stderr


def test_a_batch_that_cannot_be_shared_gets_one_line(shards, tmp_path):
    done = subprocess.run(command(tmp_path / "run", shards, 2, "--micro-batch-size", "8"), capture_output=True,
                          text=True, env=ENVIRONMENT, timeout=240)
    assert done.returncode != 0
    assert "batch_size=8 is not a multiple of micro_batch_size x processes = 16; change one of them" in done.stderr
