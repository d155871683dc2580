"""What a training run can be: budgets, corpora, architectures, variants, and what it leaves in its folder."""

import hashlib
import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from caracal_min import Caracal, CaracalConfig
from caracal_min.data import RULE, ByteTokenizer, documents, make_tokenizer, tokenize
from caracal_min.data.shards import ShardedTokens
from caracal_min.files import file_sha256
from caracal_min.record import read_record
from caracal_min.training import TrainConfig, Trainer, learning_rate
from caracal_min.training import trainer as trainer_module
from caracal_min.training.run_log import RunLog
from caracal_min.training.trained import load_trained
from caracal_min.zoo import VARIANTS, load_model
from caracal_min.zoo.baselines import baseline_of


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A file of real documents of at most 500 characters, about 200,000 bytes."""
    path = tmp_path_factory.mktemp("text") / "texts.jsonl"
    with path.open("w") as file:
        for text, _ in zip(documents("embedded"), range(60), strict=False):
            for start in range(0, len(text), 500):
                file.write(json.dumps({"text": text[start:start + 500]}) + "\n")
    return str(path)


def config(text, steps=4, **changes):
    defaults = dict(data=text, tokens=steps * 4 * 32, corpus_tokens=200_000, context=32, batch_size=4,
                    micro_batch_size=4, eval_every=3, eval_windows=4, progress=False, device="cpu")
    return TrainConfig.for_preset("nano", **(defaults | changes))


def test_a_file_goes_through_shards_in_the_folder_of_the_run(text, tmp_path):
    held = Trainer(config(text, out=tmp_path / "run"))
    assert isinstance(held.corpus.train, ShardedTokens) and held.corpus.train.folder == tmp_path / "run" / "shards"
    first = held.run()
    again = Trainer(config(str(tmp_path / "run" / "shards"), out=tmp_path / "again", corpus_tokens=4 * 4 * 32)).run()
    assert [e["loss"] for e in again] != [e["loss"] for e in first]  # 512 tokens are all that it reads
    whole = Trainer(config(str(tmp_path / "run" / "shards"), corpus_tokens=held.corpus.train.manifest.tokens)).run()
    assert [e["loss"] for e in whole] == [e["loss"] for e in first]


def test_the_record_holds_the_curve_and_the_model(text, tmp_path):
    trainer = Trainer(config(text, out=tmp_path, prompt="The "))
    log = trainer.run()
    record = read_record(tmp_path / "record.json", require_commit=False)
    assert record["kind"] == "train" and record["results"]["curve"] == log == trainer.log
    assert record["config"]["learning_rate"] == 3e-3 and record["config"]["out"] == str(tmp_path)
    assert record["data"] == {
        "source": str(tmp_path / "shards"), "validation": None, "tokenizer": "byte",
        "tokenizer_sha256": file_sha256(tmp_path / "model" / "tokenizer.json"),
        "train_tokens": len(trainer.corpus.train), "validation_tokens": len(trainer.corpus.validation), "rule": RULE,
        "sha256": trainer.corpus.digest}
    assert record["results"]["parameters"] == load_model(tmp_path / "model").num_parameters()
    sampled = [entry["step"] for entry in log if "sample" in entry]
    assert sampled == [1, 2, 4] and all(entry["sample"].startswith("The ") for entry in log if "sample" in entry)


def test_samples_do_not_change_the_run(text):
    plain, sampled = (Trainer(config(text, prompt=prompt)).run() for prompt in ("", "The "))
    assert [e["loss"] for e in plain] == [e["loss"] for e in sampled]


def test_a_budget_in_minutes_ends_the_run_and_its_schedule(text, tmp_path, monkeypatch):
    """The clock is replaced: every reading is one second later."""
    now = iter(range(1_000_000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(now)))
    made = config(text, steps=1000, minutes=2.0, out=tmp_path)
    trainer = Trainer(made)
    log = trainer.run()
    assert trainer.finished and 20 < trainer.step < 60 and trainer.seconds >= 120
    rates = np.array([entry["learning_rate"] for entry in log])
    assert rates.max() == pytest.approx(3e-3, rel=0.02) and rates[-1] < 0.13 * 3e-3
    assert (np.diff(rates[rates.argmax():]) <= 0).all() and (np.diff(rates[:rates.argmax() + 1]) > 0).all()
    assert "validation_loss" in log[-1] and (tmp_path / "model").exists()
    assert read_record(tmp_path / "record.json", require_commit=False)["seconds"] == trainer.seconds
    again = Trainer(made)
    assert again.finished and again.seconds == trainer.seconds and again.run() == log


def test_time_spent_survives_a_kill(text, tmp_path, monkeypatch):
    now = iter(range(1_000_000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(now)))
    made = config(text, steps=1000, minutes=2.0, out=tmp_path)
    first = Trainer(made)
    first.run(until=9)
    resumed = Trainer(made)
    assert 0 < resumed.seconds <= first.seconds and resumed.step == 9
    resumed.run()
    assert 120 <= resumed.seconds < 130


def test_the_budget_that_ends_first_counts():
    made = TrainConfig.for_preset("nano", minutes=1.0)
    assert learning_rate(700, made, seconds=0) == learning_rate(700, TrainConfig.for_preset("nano"))
    assert learning_rate(0, made, seconds=60) == pytest.approx(0.1 * 3e-3)
    assert learning_rate(0, made, seconds=30) == pytest.approx(learning_rate(made.steps // 2, made))


def test_the_warm_up_begins_after_the_first_step_in_which_a_compiler_works(text, tmp_path, monkeypatch):
    """The clock is replaced: of two minutes the first step takes one, and any other a second; a quarter warms up."""
    clock = [0.0]

    def clip(*arguments, clip=trainer_module.clip_grad_norm_):
        clock[0] += 1.0 if clock[0] else 60.0
        return clip(*arguments)

    monkeypatch.setattr(trainer_module, "clip_grad_norm_", clip)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    made = config(text, steps=10_000, minutes=2.0, warmup=0.25, eval_every=1000, out=tmp_path)
    Trainer(made).run(until=9)
    rates = [entry["learning_rate"] for entry in Trainer(made).run()]
    assert len(rates) == 61 and rates.index(max(rates)) in (16, 17) and max(rates) == pytest.approx(3e-3, rel=1e-2)
    assert all(a < b for a, b in zip(rates[1:15], rates[2:16], strict=True))  # over the resumption, too


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v not in ("default", "2:1")])
def test_every_variant_trains(text, variant, tmp_path):
    log = Trainer(config(text, steps=8, variant=variant, out=tmp_path)).run()
    assert log[-1]["loss"] < log[0]["loss"] - 0.1
    load_model(tmp_path / "model")


@pytest.mark.parametrize("architecture", ["llama", "mamba", "mamba2", "jamba"])
def test_every_baseline_trains_and_resumes(text, architecture, tmp_path):
    changes = dict(architecture=architecture, batch_size=2, micro_batch_size=1, context=16)
    whole = Trainer(config(text, tokens=6 * 32, out=tmp_path / "a", **changes)).run()
    assert whole[-1]["loss"] < whole[0]["loss"] - 0.1
    Trainer(config(text, tokens=6 * 32, out=tmp_path / "b", **changes)).run(until=4)
    resumed = Trainer(config(text, tokens=6 * 32, out=tmp_path / "b", **changes))
    assert resumed.step == 4 and [e["loss"] for e in resumed.run()] == [e["loss"] for e in whole]


def test_the_model_has_the_vocabulary_of_the_tokenizer(text, gpt2):
    trainer = Trainer(config(text, steps=1, tokenizer="gpt2", corpus_tokens=30_000))
    assert trainer.model.config.vocab_size == 50_257
    assert trainer.run()[0]["loss"] == pytest.approx(np.log(50_257), abs=0.5)  # it bets on a token said again


def test_utilisation_is_operations_over_what_the_device_could_do(text):
    (entry,) = Trainer(config(text, steps=1, peak_flops=1e12)).run()
    assert entry["mfu"] * 1e12 / entry["tokens_per_second"] == pytest.approx(6 * 1_270_000, rel=0.1)
    assert entry["tokens_per_second"] == pytest.approx(4 * 32 / entry["seconds"])
    assert "mfu" not in Trainer(config(text, steps=1)).run()[0]


def test_curves_for_tensorboard(text, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made = config(text, out=tmp_path, tensorboard=True, prompt="The ")
    Trainer(made).run(until=3)
    log = Trainer(made).run()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, pytest.approx(e.value)) for e in events.Scalars("loss")] == [(e["step"], e["loss"]) for e in log]
    assert {"grad_norm", "learning_rate", "validation_loss", "tokens_per_second"} <= set(events.Tags()["scalars"])


def test_a_long_curve_is_thinned_and_keeps_what_was_measured():
    log = RunLog(None)
    for step in range(1, 5001):
        log.add({"step": step} | ({"validation_loss": 1.0} if step % 333 == 0 else {}))
    curve = log.curve()
    assert len(curve) < 1100 and curve[-1]["step"] == 5000
    assert [e["step"] for e in curve if "validation_loss" in e] == list(range(333, 5001, 333))


@pytest.mark.parametrize("what, built", [("blocks", 3), ("model", 1)])
def test_compiled_it_follows_the_same_curve(text, what, built):
    """Two kinds of block and the output layer, or one graph; what builds kernels from one is tested with the export."""
    graphs = []

    def count(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    plain = Trainer(config(text, micro_batch_size=2)).run()
    torch.compiler.reset()
    with torch.compiler.set_stance("default", force_backend=count):
        compiled = Trainer(config(text, micro_batch_size=2, compile=what)).run()
    torch.compiler.reset()
    np.testing.assert_allclose([e["loss"] for e in compiled], [e["loss"] for e in plain], atol=2e-3)
    assert len(graphs) == built


@pytest.mark.parametrize("change, words", [
    (dict(minutes=0.0), "minutes=0.0; give a number > 0"),
    (dict(architecture="gpt"), "unknown architecture 'gpt'"),
    (dict(variant="2:2"), "unknown variant '2:2'"),
    (dict(architecture="llama", prompt="The "), "prompt='The ' with architecture='llama'; samples while training"),
])
def test_bad_settings_get_one_line(text, change, words):
    with pytest.raises(ValueError, match=words) as caught:
        config(text, **change)
    assert "\n" not in str(caught.value)


def test_a_run_begins_with_the_weights_of_another(text, tmp_path):
    first = config(text, out=tmp_path / "first")
    with Trainer(first) as trainer:
        end = trainer.run()[-1]["validation_loss"]
    more = config(text, out=tmp_path / "more", start=str(tmp_path / "first"), learning_rate=1e-9, steps=6)
    with Trainer(more) as trainer:
        trainer.run(until=4)
    shutil.move(tmp_path / "first", tmp_path / "moved")
    with pytest.raises(FileNotFoundError):  # another is looked at
        Trainer(replace(more, start=str(tmp_path / "nowhere")))
    for start in (more.start, str(tmp_path / "moved")):  # its checkpoint has all; the same weights elsewhere
        with Trainer(replace(more, start=start)) as trainer:
            assert trainer.step == 4
    with Trainer(more) as trainer:
        log = trainer.run()
    assert log[-1]["step"] == 6 and log[-1]["validation_loss"] == pytest.approx(end, abs=1e-4)
    results = read_record(tmp_path / "more" / "record.json", require_commit=False)["results"]
    (before,) = results["stretches"]
    assert before["steps"] == 4 and before["tokens"] == 4 * 4 * 32 and before["config"]["optimizer"] == "adamw"
    assert before["sha256"] == results["start_sha256"] == hashlib.sha256(
        (tmp_path / "moved" / "model" / "model.safetensors").read_bytes()).hexdigest() != results["model_sha256"]


def test_a_run_goes_on_when_what_it_started_from_has_gone_on(text, tmp_path):
    first = config(text, out=tmp_path / "first")
    more = config(text, out=tmp_path / "more", start=str(tmp_path / "first"))
    for step in (2, 3, None):  # one checkpoint, another one, then a model
        with Trainer(first) as trainer:
            trainer.run(until=step)
        with Trainer(more) as trainer:
            assert trainer.step == (step or 4) - 2
            trainer.run(until=step and step - 1)
    results = read_record(tmp_path / "more" / "record.json", require_commit=False)["results"]
    (before,) = results["stretches"]
    assert before["step"] == 2 and before["sha256"] == results["start_sha256"]


def test_nano_reads_ten_million_tokens_or_its_budget(text, monkeypatch):
    asked, load = [], trainer_module.load_corpus

    def noted(*given, max_tokens, **options):
        asked.append(max_tokens)
        return load(*given, max_tokens=max_tokens, **options)

    monkeypatch.setattr(trainer_module, "load_corpus", noted)
    made = replace(TrainConfig.for_preset("nano"), data=text, progress=False, device="cpu")  # as the command line does
    for changes in (dict(), dict(tokens=20_000_000), dict(tokens=20_000_000, corpus_tokens=200_000)):
        Trainer(replace(made, **changes)).close()
    assert asked == [10_000_000, 20_000_000, 200_000] and TrainConfig(tokens=4096).corpus_limit == 4096


def test_a_baseline_of_ones_own_goes_on_with_another_version_of_transformers(text, tmp_path, monkeypatch):
    configuration = pytest.importorskip("transformers.configuration_utils")
    size = CaracalConfig(256, 32, 2, 2, max_positions=32)
    for step, version in ((1, "5.23.0"), (2, "5.24.0")):
        monkeypatch.setattr(configuration, "__version__", version)
        model = baseline_of("llama", size)
        assert version in repr(model.config)
        with Trainer(config(text, out=tmp_path), model=model) as trainer:
            assert trainer.step == step - 1
            trainer.run(until=step)
    with pytest.raises(ValueError, match="holds a run with model="):
        Trainer(config(text, out=tmp_path), model=baseline_of("llama", replace(size, n_heads=1)))


def test_the_record_names_every_stretch_of_a_run_that_goes_on_from_weights(text, tmp_path):
    """Of a finished run, then of one that was stopped and is started from its checkpoint, then of a model alone."""
    for name, start, until in (("a", None, None), ("b", "a", 3), ("c", "b", None)):
        with Trainer(config(text, out=tmp_path / name, start=start and str(tmp_path / start), seed=ord(name))) as run:
            run.run(until=until)
    first, second = read_record(tmp_path / "c" / "record.json", require_commit=False)["results"]["stretches"]
    assert (first["steps"], first["config"]["seed"], first["config"]["start"]) == (4, ord("a"), None)
    assert (second["step"], second["settings"]["seed"], second["settings"]["start"]) == (3, ord("b"), first["sha256"])
    assert first["data"]["sha256"] == second["corpus"] and first["code"]["sha256"]
    shutil.copytree(tmp_path / "c" / "model", tmp_path / "alone")
    with Trainer(config(text, out=tmp_path / "d", start=str(tmp_path / "alone"))) as run:
        run.run()
    (only,) = read_record(tmp_path / "d" / "record.json", require_commit=False)["results"]["stretches"]
    assert only == {"source": str(tmp_path / "alone" / "model.safetensors"),
                    "sha256": file_sha256(tmp_path / "alone" / "model.safetensors")}


def test_a_run_goes_on_wherever_its_text_lies_and_without_it_once_its_shards_are_complete(text, tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    shutil.copy(text, folder / "x.jsonl")
    whole = Trainer(config(text)).run()
    monkeypatch.chdir(tmp_path)

    def more(data, until):
        with Trainer(config(data, out="run")) as run:
            return run.step, run.run(until=until)

    assert more("data/x.jsonl", 1)[0] == 0
    assert more("./data/x.jsonl", 2)[0] == 1
    monkeypatch.chdir(folder)
    shutil.move("../run", "run")
    assert more(Path("x.jsonl"), 3)[0] == 2
    (folder / "x.jsonl").unlink()
    step, log = more("x.jsonl", None)
    assert step == 3 and [e["loss"] for e in log] == [e["loss"] for e in whole]


def test_shards_may_move_and_other_data_is_refused(text, tmp_path):
    tokenize(text, tmp_path / "shards", "byte", progress=False)
    with Trainer(config(str(tmp_path / "shards"), out=tmp_path / "run")) as run:
        run.run(until=2)
    shutil.move(tmp_path / "shards", tmp_path / "elsewhere")
    with Trainer(config(str(tmp_path / "elsewhere"), out=tmp_path / "run")) as run:
        assert run.step == 2
    tokenize(text, tmp_path / "shards", "byte", limit_documents=100, progress=False)
    with pytest.raises(ValueError, match="holds a run on other data .its hash differs.; resume with the same data"):
        Trainer(config(str(tmp_path / "shards"), out=tmp_path / "run"))


def test_a_start_of_another_model_is_refused_and_so_is_another_start_on_the_way(text, tmp_path):
    for name, changes in {"first": {}, "other": {"seed": 1}, "no-swa": {"variant": "no-swa"}}.items():
        with Trainer(config(text, steps=1, out=tmp_path / name, **changes)) as trainer:
            trainer.run()
    with pytest.raises(ValueError, match="^the weights of .*no-swa.* are not those of the model .*; give the same"):
        Trainer(config(text, start=str(tmp_path / "no-swa")))
    more = config(text, out=tmp_path / "more", start=str(tmp_path / "first"))
    with Trainer(more) as trainer:
        trainer.run(until=1)
    for start in (str(tmp_path / "other"), None):
        with pytest.raises(ValueError, match="start"):
            Trainer(replace(more, start=start))
    with Trainer(config(text, start=str(tmp_path / "first"), model=("gate_length=8",))) as trainer:
        assert trainer.model.config.gate_length == 8


def test_a_start_keeps_its_tokenizer_and_what_no_tensor_tells_unless_it_is_named(text, tmp_path):
    own = ("gate_length=8", "window_size=16")
    with Trainer(config(text, out=tmp_path / "first", model=own)) as trainer:
        trainer.run()
    start = str(tmp_path / "first")
    with pytest.raises(ValueError, match="was trained with gate_length=8, and .* has gate_length=None; give the one"):
        Trainer(config(text, start=start, model=own[1:]))
    with pytest.raises(ValueError, match="was trained with window_size=16, and .* has window_size=64"):
        Trainer(config(text, start=start, model=own[:1]))
    with Trainer(config(text, start=start, model=("gate_length=None", own[1]))) as trainer:
        assert trainer.model.config.gate_length is None
    model = Caracal.from_preset("nano", max_positions=32)
    moved = dict(start=start, tokenizer=written(tmp_path / "ba.json", "ba"))
    with Trainer(config(text, **moved), model=model) as trainer:  # the caller knows what it is
        assert trainer.model is model
    stopped = config(text, out=tmp_path / "stopped", model=own, tokenizer=written(tmp_path / "own.json", "ab"))
    with Trainer(stopped) as trainer:
        trainer.run(until=1)
    for path in (tmp_path / "first", tmp_path / "stopped"):
        with pytest.raises(ValueError, match="was trained with another tokenizer than .*json, whose ids mean other"):
            Trainer(config(text, start=str(path), model=own, tokenizer=written(tmp_path / "other.json", "ba")))


def test_a_start_of_a_baseline_keeps_its_heads(text, tmp_path):
    pytest.importorskip("transformers")
    few = dict(architecture="llama", model=("n_heads=2",))
    with Trainer(config(text, steps=1, out=tmp_path / "first", **few)) as trainer:
        trainer.run()
    with pytest.raises(ValueError, match="was trained with n_heads=2, and what is to start from it has n_heads=4"):
        Trainer(config(text, start=str(tmp_path / "first"), architecture="llama"))


def test_a_refused_run_leaves_the_tokenizer_of_a_finished_one(text, tmp_path):
    with Trainer(config(text, out=tmp_path / "run")) as trainer:
        trainer.run()
    for path in (tmp_path / "run").glob("checkpoint*"):
        path.unlink()
    kept = (tmp_path / "run" / "tokenizer" / "tokenizer.json").read_bytes()
    with pytest.raises(ValueError):
        Trainer(config(text, out=tmp_path / "run", tokenizer=written(tmp_path / "own.json", "ab")))
    assert (tmp_path / "run" / "tokenizer" / "tokenizer.json").read_bytes() == kept


def written(path, letters):
    """A tokenizer of 256 ids, in which two bytes have changed places with the bytes of some letters."""
    stored = json.loads(ByteTokenizer().to_json())
    ids = stored["model"]["vocab"]
    for i, letter in enumerate(letters, 1):
        other = next(token for token, number in ids.items() if number == i)
        ids[letter], ids[other] = ids[other], ids[letter]
    path.write_text(json.dumps(stored))
    return str(path)


def test_a_run_that_has_not_ended_is_read_with_its_own_tokenizer(text, tmp_path, monkeypatch):
    """What it was given may be another file by then, or lie elsewhere."""
    own = written(tmp_path / "own.json", "ab")
    with Trainer(config(text, out=tmp_path / "run", tokenizer=own)) as trainer:
        trainer.run(until=1)
    kept = make_tokenizer(own).encode("abc")
    written(tmp_path / "own.json", "ba")
    monkeypatch.chdir(tmp_path)
    assert load_trained(tmp_path / "run").model.require_tokenizer().encode("abc") == kept
    with pytest.raises(ValueError, match="was made with tokenizer='own.json'"):
        Trainer(config(text, out=tmp_path / "run", tokenizer=own))
    assert load_trained(tmp_path / "run").model.require_tokenizer().encode("abc") == kept
