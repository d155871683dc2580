"""The loop: it learns, accumulates, measures, samples, stops by tokens or minutes, and says so."""

import json
import time
from functools import partial

import numpy as np
import pytest
import torch
from small_run import Words, config, corpus, losses, same_numbers

from caracal_min import Caracal
from caracal_min.data import Corpus
from caracal_min.evaluation import held_out_loss
from caracal_min.packing import document_ids
from caracal_min.training import DivergedError, Trainer


def packed():
    """A text whose documents end every few words, so that most windows hold several."""
    whole = corpus()
    train, held_out = (np.where(ids.cumsum() % 13, ids, 0).astype(np.uint16)
                       for ids in (whole.train, whole.validation))
    return Corpus("test", "byte", train, held_out)


def test_training_learns_and_logs():
    log = Trainer(config(steps=60, prompt="gate "), corpus()).run()
    assert [e["step"] for e in log] == list(range(1, 61)) and log[-1]["tokens"] == 60 * 4 * 32
    measured = [e["validation_loss"] for e in log if "validation_loss" in e]
    # guessing letters of these words gives about 2.7
    assert len(measured) == 12 and measured[-1] < 2.0 < 4.0 < log[0]["loss"]
    assert [e["step"] for e in log if "sample" in e] == [1, 2, 4, 8, 16, 32, 60]
    assert log[-1]["sample"].startswith("gate ")
    assert log[9]["tokens_per_second"] == pytest.approx(4 * 32 / log[9]["seconds"])
    assert all(e["grad_norm"] > 0 for e in log) and "mfu" not in log[0]


def test_samples_and_running_in_parts_do_not_change_the_run():
    whole = Trainer(config(), corpus()).run()
    trainer = Trainer(config(prompt="gate "), corpus())
    trainer.run(until=5)
    assert trainer.step == 5 and not trainer.finished
    assert losses(trainer.run()) == losses(whole) and trainer.finished


def test_losses_and_samples_are_those_of_a_model_in_evaluation_mode():
    trainer, modes = Trainer(config(steps=2, prompt="gate "), corpus()), {}

    def watched(name, call, *args, **options):
        modes.setdefault(name, set()).add(trainer.model.training)
        return call(*args, **options)

    for name in ("generate", "hidden"):
        setattr(trainer.model, name, partial(watched, name, getattr(trainer.model, name)))
    trainer.run()
    assert modes == {"generate": {False}, "hidden": {True, False}}  # dropout belongs to training alone


def test_accumulated_gradients_are_those_of_one_batch():
    whole = Trainer(config(micro_batch_size=4), corpus()).run()
    parts = Trainer(config(micro_batch_size=1), corpus()).run()
    np.testing.assert_allclose(losses(whole)[:3], losses(parts)[:3], rtol=1e-5)
    np.testing.assert_allclose(losses(whole), losses(parts), rtol=2e-3)


def test_gradients_are_clipped_and_the_log_has_their_norm_before():
    trainer = Trainer(config(clip=0.01), corpus())
    (entry,) = trainer.run(until=1)
    norm = torch.stack([p.grad.norm() for p in trainer.model.parameters()]).norm().item()
    assert entry["grad_norm"] > 1 and norm == pytest.approx(0.01, rel=1e-3)


def test_numbers_that_are_read_a_step_later_make_the_same_log(tmp_path):
    """As on a GPU, whose queue is not drained between steps."""
    whole = Trainer(config(prompt="gate "), corpus()).run()
    trainer, waited = Trainer(config(tmp_path, prompt="gate "), corpus()), []
    trainer.max_pending, log_steps = 1, trainer._log_steps

    def watched(max_pending=0):
        waited.append(len(trainer._launched))
        log_steps(max_pending)

    trainer._log_steps = watched

    def cut(*_):
        if trainer.step == 7:
            raise InterruptedError

    hook = trainer.model.embedding.register_forward_pre_hook(cut)
    with pytest.raises(InterruptedError):
        trainer.run()
    assert [e["step"] for e in trainer.log] == [1, 2, 3, 4, 5, 6, 7]
    hook.remove()
    log = trainer.run()
    assert same_numbers(log) == same_numbers(whole)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == log
    assert max(waited) == 2  # the next step was launched before a loss was read


def test_documents_of_a_window_are_trained_on_and_validated_each_alone():
    trainer = Trainer(config(steps=5, reset_documents=True), packed())
    x, y = trainer.batches[0]
    assert (x == 0).sum() > len(x)
    with torch.no_grad():
        alone, mixed = (trainer.model.loss(x, y, ids).item() for ids in (document_ids(x, 0), None))
    log = trainer.run()
    assert log[0]["loss"] == pytest.approx(alone, rel=1e-5) and abs(alone - mixed) > 1e-4
    measured = (trainer.model, packed().validation, 32, 8)
    assert log[-1]["validation_loss"] == held_out_loss(*measured, end_of_text=0)
    assert log[-1]["validation_loss"] != held_out_loss(*measured)
    parts = Trainer(config(steps=5, reset_documents=True, micro_batch_size=1), packed()).run()
    np.testing.assert_allclose(losses(parts)[:3], losses(log)[:3], rtol=1e-5)


def test_a_budget_in_minutes_ends_the_run_and_its_schedule(monkeypatch):
    """The clock is replaced: every reading is one second later."""
    now = iter(range(1_000_000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(now)))
    trainer = Trainer(config(steps=1000, minutes=2.0), corpus())
    log = trainer.run()
    assert trainer.finished and 20 < trainer.step < 60 and 120 <= trainer.seconds < 130
    rates = np.array([entry["learning_rate"] for entry in log])
    assert rates.max() == pytest.approx(3e-3, rel=0.02) and rates[-1] < 0.13 * 3e-3
    assert (np.diff(rates[rates.argmax():]) <= 0).all() and "validation_loss" in log[-1]


def test_a_loss_that_is_not_finite_stops_the_run_in_one_line(tmp_path):
    trainer = Trainer(config(tmp_path), corpus())
    trainer.run(until=6)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    with torch.no_grad():
        trainer.model.blocks[0].mixer.to_out.bias[0] = float("nan")
    with pytest.raises(DivergedError, match="at step 7 with learning rate .*lower learning_rate") as e:
        trainer.run()
    assert "\n" not in str(e.value) and len(trainer.log) == 6
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_float16_scales_its_loss_and_skips_steps_that_overflow(tmp_path):
    """A scale of 2^24 overflows: steps are skipped until it is small enough, also in two parts."""
    curves = []
    for stops in ((None,), (3, None)):
        for until in stops:
            trainer = Trainer(config(tmp_path / str(len(stops)), precision="float16"), corpus())
            if trainer.step == 0:
                trainer.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
                before = trainer.model.embedding.weight.clone()
            log = trainer.run(until=until)
            if until == 3:
                assert torch.equal(trainer.model.embedding.weight, before)
        curves.append([(e["loss"], e["loss_scale"], e["grad_norm"]) for e in log])
    assert curves[0] == curves[1]
    assert log[0]["loss_scale"] == 2.0**24 and log[0]["grad_norm"] is None
    scales = [e["loss_scale"] for e in log]
    skipped = [e["grad_norm"] is None for e in log]
    assert not skipped[-1] and 0.1 < log[-1]["grad_norm"] < 10  # of the gradient itself
    assert all(b == (a / 2 if skip else a)
               for a, b, skip in zip(scales[:-1], scales[1:], skipped[:-1], strict=True))


def test_a_model_of_ones_own_is_trained_with_its_own_tokenizer(monkeypatch):
    model = Caracal.from_preset("nano", n_layers=2)
    with Trainer(config(steps=2), corpus(), model=model) as trainer:
        log = trainer.run()
    assert trainer.model is model and len(log) == 2 and model.tokenizer.name == "byte"
    model.tokenizer = Words()
    with pytest.raises(ValueError, match="trained with the tokenizer words, .* byte, whose") as e:
        Trainer(config(), corpus(), model=model)
    assert "\n" not in str(e.value)
    asked = []
    monkeypatch.setattr("caracal_min.training.trainer.load_corpus",
                        lambda source, tokenizer, *_: asked.append(tokenizer) or corpus())
    Trainer(config(), model=model)
    assert asked == [model.tokenizer]


@pytest.mark.compile
@pytest.mark.parametrize("what, built", [("blocks", 3), ("model", 1)])
def test_compiled_it_follows_the_same_curve(what, built):
    """Two kinds of block and the output layer, or one graph."""
    graphs = []

    def count(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    plain = Trainer(config(steps=3, micro_batch_size=2), corpus()).run()
    torch.compiler.reset()
    with torch.compiler.set_stance("default", force_backend=count):
        compiled = Trainer(config(steps=3, micro_batch_size=2, compile=what), corpus()).run()
    torch.compiler.reset()
    np.testing.assert_allclose(losses(compiled), losses(plain), atol=2e-3)
    assert len(graphs) == built
