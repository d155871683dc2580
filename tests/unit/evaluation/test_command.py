"""`python -m caracal_min evaluate`, in a process of its own and without a network."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from caracal_min import Caracal
from caracal_min.__main__ import main
from caracal_min.data import all_tokens, load_corpus, sequential_windows
from caracal_min.evaluation import held_out_loss, loss_by_context_length, loss_by_position, ngram_losses
from caracal_min.evaluation.command import EvaluateConfig, run_evaluate
from caracal_min.precision import resolve_precision


@pytest.fixture(scope="module")
def nano(tmp_path_factory):
    """Folder of an untrained nano, and of a text of 60 documents."""
    folder = tmp_path_factory.mktemp("nano")
    torch.manual_seed(0)
    Caracal.from_preset("nano").save_pretrained(folder)
    words = np.random.default_rng(0).choice(["alpha", "beta", "gamma"], (60, 12))
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": " ".join(w)}) + "\n" for w in words))
    return folder


def run(*arguments):
    command = [sys.executable, "-m", "caracal_min", "evaluate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})


def test_losses_are_those_of_the_library(nano, tmp_path, capsys):
    config = EvaluateConfig(str(nano), str(nano / "text.jsonl"), context=16, out=tmp_path / "new" / "out.json",
                            device="cpu", precision="float32")
    record = run_evaluate(config)
    tokens, model = load_corpus(config.data, "byte").validation, Caracal.from_pretrained(nano)
    assert record["loss"] == pytest.approx(held_out_loss(model, tokens, 16), abs=1e-6)
    assert record["loss_by_position"] == pytest.approx(loss_by_position(model, tokens, 16).tolist(), abs=1e-6)
    assert record["loss_by_context_length"] == pytest.approx(loss_by_context_length(model, tokens, 16), abs=1e-6)
    stored = json.loads((tmp_path / "new" / "out.json").read_text())["results"]
    assert stored["loss_by_context_length"] == {str(n): v for n, v in record["loss_by_context_length"].items()}
    shown = capsys.readouterr().out
    assert f"loss = {record['loss']:.4f} nats per token (byte)" in shown
    binned = re.findall(r"(\d+)-(\d+): ([\d.]+)", shown)
    assert [(int(a), int(b)) for a, b, _ in binned] == [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16)]
    for a, b, value in binned:
        assert float(value) == pytest.approx(np.mean(record["loss_by_position"][int(a) - 1:int(b)]), abs=6e-4)


@pytest.mark.parametrize("precision", ["bfloat16", "auto"])
def test_losses_in_another_precision_are_near_and_say_so(nano, precision):
    given = dict(model=str(nano), data=str(nano / "text.jsonl"), context=16, device="cpu")
    exact = run_evaluate(EvaluateConfig(**given, precision="float32"))
    found = run_evaluate(EvaluateConfig(**given, precision=precision))
    dtype = resolve_precision(precision, "cpu")
    assert found["precision"] == str(dtype).removeprefix("torch.") and exact["precision"] == "float32"
    assert found["loss"] == pytest.approx(exact["loss"], abs=5e-3)
    assert (found["loss"] == exact["loss"]) is (dtype == torch.float32)
    with pytest.raises(ValueError, match="^precision='half'; accepted: auto, bfloat16, float16, float32$"):
        EvaluateConfig(**given, precision="half")


def test_counting_stands_beside_the_model(nano, capsys):
    given = dict(model=str(nano), data=str(nano / "text.jsonl"), context=16, device="cpu", precision="float32")
    record = run_evaluate(EvaluateConfig(**given, ngrams=given["data"]))
    counted = all_tokens(given["data"], "byte")
    windows = sequential_windows(load_corpus(given["data"], "byte").validation, 16)
    assert record["ngrams"] == {"source": given["data"], "tokens": len(counted),
                                **ngram_losses(counted, windows.numpy(), 256)}
    assert f"bigram {record['ngrams']['bigram']:.4f}" in capsys.readouterr().out


def test_the_whole_text_can_be_measured_and_lengths_end_with_it(nano, capsys):
    config = EvaluateConfig(str(nano), str(nano / "text.jsonl"), split="all", context=64, tokens=700, device="cpu")
    record = run_evaluate(config)
    assert record["text"]["tokens"] == 701
    assert list(record["loss_by_context_length"]) == [64, 128, 256, 512]
    assert "701 tokens of text do not reach 1,024" in capsys.readouterr().out


def test_tasks_from_the_command_line(nano, shared_data, tmp_path):
    pytest.importorskip("lm_eval")
    done = run("--model", nano, "--data", nano / "text.jsonl", "--context", 16, "--tasks", "all", "--limit", 2,
               "--task-data", shared_data / "evals", "--out", tmp_path / "out.json", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "out.json").read_text())["results"]
    assert len(record["table2"]["tasks"]) == 8 and record["table2"]["limit"] == 2
    assert re.search(r"^paper, T: Caracal \(63M\) +219\.90 ", done.stdout, re.MULTILINE)
    assert "bootstrapping" not in done.stdout + done.stderr


@pytest.mark.parametrize(("options", "words"), [
    (["--tasks", "mmlu"], ["unknown task 'mmlu'", "lambada_openai"]),
    (["--tasks", "piqa", "--task-data", "nowhere"], ["no folder nowhere", "piqa.jsonl"]),
    (["--data", "nowhere.jsonl"], ["no file nowhere.jsonl"]),
    (["--model", "./nowhere/at/all"], ["nowhere", "save_pretrained"]),
])
def test_errors_are_one_line(nano, options, words, capsys):
    pytest.importorskip("lm_eval")
    pytest.importorskip("tyro")
    given = ["--data", str(nano / "text.jsonl"), "--context", "16", "--model", str(nano)]
    assert main(["evaluate", *given, *options]) == 2
    *progress, error = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and not any("Traceback" in line for line in progress)
    for word in words:
        assert word in error


def test_a_vocabulary_without_a_tokenizer(tmp_path):
    Caracal.from_preset("nano", vocab_size=100).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="^no tokenizer with 100 ids"):
        run_evaluate(EvaluateConfig(str(tmp_path)))


def test_fields_out_of_range():
    for name in ("context", "tokens", "batch_size", "max_length", "limit"):
        with pytest.raises(ValueError, match=f"^{name}=0; give a number >= 1"):
            EvaluateConfig("model", **{name: 0})
