"""`python -m caracal_min evaluate`, in a process of its own and without a network."""

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import tokenizers
import torch
from caracal_min.commands.evaluate import EvaluateConfig, run_evaluate
from tokenizers import decoders, models, normalizers, pre_tokenizers

from caracal_book.measured import bits_per_byte, bytes_of_targets, gives_texts_back
from caracal_book.ngrams import ngram_losses
from caracal_book.records import read_record
from caracal_min import Caracal
from caracal_min.__main__ import main
from caracal_min.data import (
    RULE,
    ByteTokenizer,
    documents,
    is_held_out,
    load_corpus,
    sequential_windows,
    tokenize,
    tokens_of,
)
from caracal_min.evaluation import held_out_loss, loss_by_context_length, loss_by_position, losses
from caracal_min.files import file_sha256
from caracal_min.precision import resolve_precision
from caracal_min.tokenizer import FileTokenizer
from caracal_min.training import TrainConfig, Trainer


@pytest.fixture(scope="module")
def nano(tmp_path_factory):
    """Folder of an untrained nano, and of a text of 60 documents."""
    folder = tmp_path_factory.mktemp("nano")
    torch.manual_seed(0)
    model = Caracal.from_preset("nano")
    model.tokenizer = ByteTokenizer()
    model.save_pretrained(folder)
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
    whole = read_record(tmp_path / "new" / "out.json", require_commit=False)
    stored = whole["results"]
    assert whole["data"] == {
        "source": config.data, "files": [{"name": "text.jsonl", "sha256": file_sha256(nano / "text.jsonl")}],
        "split": "held_out", "rule": RULE, "model_rule": None, "tokenizer": "byte", "tokens": len(tokens),
        "sha256": hashlib.sha256(tokens.astype("<u2").tobytes()).hexdigest()}
    assert stored["loss_by_context_length"] == {str(n): v for n, v in record["loss_by_context_length"].items()}
    text = "".join(t for t in documents(config.data) if is_held_out(t)).encode()[:16 * ((len(tokens) - 1) // 16)]
    assert 0 < stored["tokens"] - stored["bytes"] < 10 and len(text) - 10 < stored["bytes"] <= len(text)
    assert stored["bits_per_byte"] == pytest.approx(record["loss"] / np.log(2) * stored["tokens"] / stored["bytes"])
    shown = capsys.readouterr().out
    assert f"loss = {record['loss']:.4f} nats per token (byte)" in shown
    assert f"bits per byte = {stored['bits_per_byte']:.4f}" in shown
    binned = re.findall(r"(\d+)-(\d+): ([\d.]+)", shown)
    assert [(int(a), int(b)) for a, b, _ in binned] == [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16)]
    for a, b, value in binned:
        assert float(value) == pytest.approx(np.mean(record["loss_by_position"][int(a) - 1:int(b)]), abs=6e-4)


def test_documents_are_read_alone_where_that_is_asked(nano):
    data = str(nano / "text.jsonl")
    given = dict(model=str(nano), data=data, split="all", context=100, device="cpu", precision="float32")
    found, mixed = run_evaluate(EvaluateConfig(**given, reset_documents=True)), run_evaluate(EvaluateConfig(**given))
    model, tokens = Caracal.from_pretrained(nano, device="cpu"), tokens_of(data, "byte", progress=False)
    assert found["loss"] == pytest.approx(held_out_loss(model, tokens, 100, end_of_text=0), abs=1e-6)
    by_length = loss_by_context_length(model, tokens, 100, end_of_text=0)
    assert found["loss_by_context_length"] == pytest.approx(by_length, abs=1e-6)
    assert abs(found["loss"] - mixed["loss"]) > 1e-4


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


def test_prompts_are_continued_and_recorded(nano, tmp_path, capsys):
    config = EvaluateConfig(str(nano), str(nano / "text.jsonl"), context=16, device="cpu", precision="float32",
                            prompts=("alpha", "The \N{BULLET}"), out=tmp_path / "out.json")
    run_evaluate(config)
    results, model = read_record(config.out, require_commit=False)["results"], Caracal.from_pretrained(nano)
    assert results["samples"] == [{"prompt": prompt, "seed": seed, "text": model.generate_text(
        prompt, 64, temperature=0.8, seed=seed)} for seed, prompt in enumerate(config.prompts)]
    assert results["sampling"] == {"max_new_tokens": 64, "temperature": 0.8}
    assert results["samples"][0]["text"] in capsys.readouterr().out
    with pytest.raises(ValueError, match="^one of the prompts is empty; give at least one character$"):
        replace(config, prompts=("a", ""))
    with pytest.raises(ValueError, match="^prompts=.* holds bytes that are not UTF-8 [(]character 2[)]"):
        replace(config, prompts=("a", "\udcff"))


def test_bits_per_byte_of_texts():
    tokenizer = ByteTokenizer()
    ids = np.array([0, *tokenizer.encode("aé"), 0, *tokenizer.encode("\0b")])  # NUL is two ids, and one byte
    assert len(ids) == 8 and bytes_of_targets(ids[None], tokenizer) == 5
    assert bits_per_byte(np.log(256), 7, 7) == pytest.approx(8)
    with pytest.raises(ValueError, match="^the 2 tokens to measure on hold no text, only ends of texts"):
        bytes_of_targets(np.zeros((1, 3), int), tokenizer)


class Lowercase(ByteTokenizer):
    """Takes capitals for small letters, as many tokenizers of other people do."""

    name = "lowercase"

    def encode(self, text):
        return super().encode(text.lower())


@pytest.mark.parametrize("given, lost", [
    (normalizers.Replace("\r\n", "\n"), True), (normalizers.NFC(), True), (normalizers.NFKC(), True), (None, False),
    (normalizers.Strip(), True), (normalizers.Lowercase(), True), (normalizers.Prepend(" "), True),
    (normalizers.Replace("\N{LEFT DOUBLE QUOTATION MARK}", '"'), True),
    (normalizers.Replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"), True)])
def test_what_a_tokenizer_does_not_give_back(given, lost):
    """A file with bytes alone, and what may be done to a text before them."""
    words = [*pre_tokenizers.ByteLevel.alphabet(), "<|endoftext|>"]
    encoder = tokenizers.Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoder.decoder = decoders.ByteLevel()
    if given is not None:
        encoder.normalizer = given
    assert gives_texts_back(FileTokenizer("one", encoder.to_str(), "<|endoftext|>")) is not lost


def test_a_tokenizer_that_loses_capitals_has_no_bits_per_byte(nano, tmp_path, capsys, monkeypatch):
    with pytest.raises(ValueError, match="^the tokenizer lowercase does not give a text back as it was, so its ids"):
        bytes_of_targets(np.array([[97, 98]]), Lowercase())
    monkeypatch.setattr("caracal_min.data.tokenizers.make_tokenizer", lambda given: Lowercase())
    given = dict(model=str(nano), data=str(nano / "text.jsonl"), context=16, device="cpu", precision="float32")
    run_evaluate(EvaluateConfig(**given, tokenizer="lowercase.json", out=tmp_path / "out.json"))
    record = read_record(tmp_path / "out.json", require_commit=False)["results"]
    assert record["bits_per_byte"] is record["bytes"] is None and record["loss"] > 0
    assert "bits per byte: not known, since lowercase does not give a text back as it was" in capsys.readouterr().out


def test_counting_stands_beside_the_model(nano, capsys):
    given = dict(model=str(nano), data=str(nano / "text.jsonl"), context=16, device="cpu", precision="float32")
    record = run_evaluate(EvaluateConfig(**given, ngrams=given["data"]))
    counted = load_corpus(given["data"], "byte").train  # what is measured is not counted
    windows = sequential_windows(load_corpus(given["data"], "byte").validation, 16)
    what = {name: record["ngrams"].pop(name) for name in ("source", "files", "split", "tokens", "sha256")}
    assert record["ngrams"] == ngram_losses(counted, windows.numpy(), 256)
    assert what == {"source": given["data"], "files": record["text"]["files"], "split": "train",
                    "tokens": len(counted), "sha256": hashlib.sha256(counted.tobytes()).hexdigest()}
    assert f"bigram {record['ngrams']['bigram']:.4f}" in capsys.readouterr().out


def test_the_whole_text_can_be_measured_and_lengths_end_with_it(nano, capsys):
    config = EvaluateConfig(str(nano), str(nano / "text.jsonl"), split="all", context=64, tokens=700, device="cpu")
    record = run_evaluate(config)
    assert record["text"]["tokens"] == 701 and record["text"]["split"] == "all" and record["text"]["rule"] is None
    assert list(record["loss_by_context_length"]) == [64, 128, 256, 512]
    assert "701 tokens of text do not reach 1,024" in capsys.readouterr().out


def documents_in(tokens):
    return set(bytes(int(i) for i in tokens[:]).split(b"\0")) - {b""}


def trained(out, data, corpus=None, **changes):
    """A run of two steps in a folder, and what it trained on and measured."""
    given = dict(data=str(data), out=out, tokens=128, corpus_tokens=10**6, context=16, batch_size=4,
                 micro_batch_size=4, eval_every=1, eval_windows=2, progress=False, device="cpu")
    with Trainer(TrainConfig.for_preset("nano", **(given | changes)), corpus) as trainer:
        trainer.run()
    return trainer.corpus


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """400 different documents, 20 of which are held out."""
    path = tmp_path_factory.mktemp("text") / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": f"text number {i} " * 20}) + "\n" for i in range(400)))
    return path


def test_no_document_that_was_trained_on_is_called_held_out(text, tmp_path, monkeypatch):
    """The file is trained on through shards; it, and shards of another size, are measured."""
    corpus = trained(tmp_path / "run", text)
    tokenize(text, tmp_path / "others", "byte", 777, progress=False)
    seen, measured = [], documents_in(corpus.validation)
    monkeypatch.setattr(losses, "token_losses", lambda model, windows, *_: seen.append(windows) or torch.zeros(
        windows[:, 1:].shape))
    monkeypatch.setattr(losses, "loss_by_context_length", lambda model, tokens, *_, **__: seen.append(tokens) or {})
    for data in (text, tmp_path / "others", tmp_path / "run" / "shards"):
        seen.clear()
        record = run_evaluate(EvaluateConfig(str(tmp_path / "run" / "model"), str(data), context=16, device="cpu"))
        assert documents_in(seen[1]) == measured and len(measured) == 20
        assert not documents_in(seen[1]) & documents_in(corpus.train)
        assert record["text"]["model_rule"] == record["text"]["rule"] == RULE
        run_evaluate(EvaluateConfig(str(tmp_path / "run" / "model"), str(data), "all", context=16, device="cpu"))
        assert documents_in(seen[3]) == measured | documents_in(corpus.train)
    assert read_record(tmp_path / "run" / "record.json", require_commit=False)["data"]["rule"] == RULE


def test_a_model_that_was_trained_under_another_split_is_refused(text, nano, tmp_path, capsys):
    pytest.importorskip("tyro")
    corpus = replace(load_corpus(str(text), progress=False), rule="every third document")
    trained(tmp_path / "run", text, corpus=corpus)
    given = ["--context", "16", "--tokens", "256", "--device", "cpu", "--data", str(text), "--model"]
    capsys.readouterr()
    assert main(["evaluate", *given, str(tmp_path / "run" / "model")]) == 2
    *_, error = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and "record.json says that the training held out every third document" in error
    assert main(["evaluate", *given, str(tmp_path / "run" / "model"), "--split", "all"]) == 0
    capsys.readouterr()
    assert main(["evaluate", *given, str(nano)]) == 0
    assert "whether it was trained on what is held out is not known" in capsys.readouterr().out


def test_a_record_that_is_there_is_not_written_over(nano, tmp_path, capsys):
    pytest.importorskip("tyro")
    out = tmp_path / "out.json"
    out.write_text("an older record")
    for arguments in (["evaluate", "--model", str(nano), "--data", str(nano / "text.jsonl"), "--context", "16"],
                      ["benchmark", "--rows", "layer", "--preset", "nano", "--lengths", "32", "--repeats", "1"]):
        assert main([*arguments, "--device", "cpu", "--out", str(out)]) == 2
        shown = capsys.readouterr()
        assert shown.err.splitlines() == [f"error: {out} exists, and no record is written over another file; move it, "
                                          "or give another name"] and shown.out == ""
    assert out.read_text() == "an older record"


def test_a_killed_run_is_measured_at_its_checkpoint(text, tmp_path, capsys):
    run = tmp_path / "run"
    given = dict(data=str(text), out=run, tokens=256, corpus_tokens=10**6, context=16, batch_size=4,
                 micro_batch_size=4, progress=False, device="cpu")
    with Trainer(TrainConfig.for_preset("nano", **given)) as trainer:
        trainer.run(until=2)
    record = run_evaluate(EvaluateConfig(str(run), str(text), context=16, device="cpu", precision="float32",
                                         out=tmp_path / "out.json"))
    said = capsys.readouterr()
    assert f"{run} has no finished model: this is the one of its checkpoint at step 2" in said.err
    assert "whether it was trained on what is held out is not known" in said.out
    expected = held_out_loss(trainer.model.eval(), load_corpus(str(text), progress=False).validation, 16)
    assert record["loss"] == pytest.approx(expected, abs=1e-5)
    stored = read_record(tmp_path / "out.json", require_commit=False)["results"]
    assert stored["checkpoint_step"] == 2 and stored["model_sha256"] == file_sha256(run / "checkpoint.safetensors")


@pytest.mark.parametrize(("options", "word"), [
    (["--tasks", "piqa", "--task-data", "damaged"], "piqa.jsonl, line 1: "),
    (["--tasks", "piqa", "--task-data", "missing"], "no folder missing"),
    (["--tasks", "chess"], "unknown task 'chess'"),
    (["--ngrams", "missing.txt"], "no file missing.txt"),
    (["--data", "x.txt", "--split", "all", "--ngrams", "x.txt"], "ngrams=x.txt is what is measured"),
    (["--data", "binary.txt"], "binary.txt cannot be read"),
    (["--device", "cuda:99"], "device='cuda:99'"),
])
def test_what_cannot_be_read_is_reported_before_a_loss_is_measured(nano, tmp_path, monkeypatch, capsys, options, word):
    pytest.importorskip("lm_eval")
    pytest.importorskip("accelerate")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "piqa.jsonl").write_text('{"goal": "x"}\n')
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)))
    monkeypatch.setattr(losses, "token_losses", lambda *_: pytest.fail("a loss was measured"))
    given = ["--model", str(nano), "--data", str(nano / "text.jsonl"), "--context", "16"]
    assert main(["evaluate", *given, *options]) == 2
    assert word in capsys.readouterr().err


def test_tasks_from_the_command_line(nano, shared_data, tmp_path):
    pytest.importorskip("lm_eval")
    pytest.importorskip("accelerate")
    done = run("--model", nano, "--data", nano / "text.jsonl", "--context", 16, "--tasks", "all", "--limit", 2,
               "--task-data", shared_data / "evals", "--out", tmp_path / "out.json", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "out.json").read_text())["results"]
    assert len(record["table2"]["tasks"]) == 8 and record["table2"]["limit"] == 2
    assert re.search(r"^lambada_openai +perplexity +\d", done.stdout, re.MULTILINE)
    assert "bootstrapping" not in done.stdout + done.stderr


@pytest.mark.parametrize(("options", "words"), [
    (["--tasks", "mmlu"], ["unknown task 'mmlu'", "lambada_openai"]),
    (["--tasks", "piqa", "--task-data", "nowhere"], ["no folder nowhere", "piqa.jsonl"]),
    (["--data", "nowhere.jsonl"], ["no file nowhere.jsonl"]),
    (["--model", "./nowhere/at/all"], ["nowhere", "save_pretrained"]),
])
def test_errors_are_one_line(nano, options, words, capsys):
    pytest.importorskip("lm_eval")
    pytest.importorskip("accelerate")
    pytest.importorskip("tyro")
    given = ["--data", str(nano / "text.jsonl"), "--context", "16", "--model", str(nano)]
    assert main(["evaluate", *given, *options]) == 2
    *progress, error = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and not any("Traceback" in line for line in progress)
    for word in words:
        assert word in error


def test_a_model_without_a_tokenizer_takes_one_from_the_command_line(nano, tmp_path):
    Caracal.from_pretrained(nano, device="cpu").save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "SHA256SUMS").unlink()
    given = dict(data=str(nano / "text.jsonl"), context=16, device="cpu", precision="float32")
    with pytest.raises(ValueError, match="^the model has no tokenizer .* --tokenizer on the command line"):
        run_evaluate(EvaluateConfig(str(tmp_path), **given))
    found = run_evaluate(EvaluateConfig(str(tmp_path), tokenizer="byte", **given))
    assert found["loss"] == run_evaluate(EvaluateConfig(str(nano), **given))["loss"]


def test_fields_out_of_range():
    for name in ("context", "tokens", "batch_size", "max_length", "limit"):
        with pytest.raises(ValueError, match=f"^{name}=0; give a number >= 1"):
            EvaluateConfig("model", **{name: 0})
