"""Learning and the sweep: repeatable, ablated, recorded, and read with its spread."""

import json
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch

from caracal_book.experiments.learner import (
    CONTENDERS,
    LearnConfig,
    Lesson,
    comparison,
    learn,
    learning_curves,
    make_contender,
    run_learn,
    runs_of,
)
from caracal_book.experiments.surgery import gate_up_to
from caracal_book.experiments.tasks import IGNORED, TASKS, Recall, make_task
from caracal_book.records import read_record
from caracal_book.runs import describe

EASY = Recall(1, 2, 2)  # the value stands one token back
SMALL = Lesson(d_model=8, n_heads=2, hidden=8, steps=4, batch_size=4, points=2, texts=10)


def small(folder, **changes):
    given = dict(vars(SMALL), out=folder, contenders=("static", "window"), tasks=("recall",),
                 learning_rates=(1e-3, 1e-2), seeds=(0, 1))
    return LearnConfig(**(given | changes))


def without_time(runs):
    return [{k: v for k, v in run.items() if k != "seconds"} for run in runs]


@pytest.fixture(autouse=True)
def needs_schema():
    pytest.importorskip("jsonschema")


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_answers_what_is_asked_in_every_task(name):
    for task in TASKS.values():
        batch = task.draw(3, torch.Generator().manual_seed(0))
        logits, asked = make_contender(name, task, SMALL)(batch)
        assert logits.shape == ((batch.targets != IGNORED).sum(), task.vocab_size)
        assert torch.equal(asked, batch.targets[batch.targets != IGNORED])


def test_contenders_differ_in_their_mixers_alone_and_in_positions():
    models = {name: make_contender(name, make_task("recall"), SMALL) for name in CONTENDERS}
    outside = {name: {(k, v.shape) for k, v in model.named_parameters() if ".mixer." not in k}
               for name, model in models.items()}
    at_places = {("positions.weight", (make_task("recall").length, SMALL.d_model))}
    assert all(shapes == outside["fourier"] | (at_places if CONTENDERS[name].positions else set())
               for name, shapes in outside.items())
    placed = {name for name in CONTENDERS if CONTENDERS[name].positions}
    assert placed == {"attention-absolute", "attention-taps-absolute", "attention-taps-places"}
    assert CONTENDERS["attention-taps-places"] == CONTENDERS["attention-taps"]._replace(positions=True)


def test_a_run_is_repeatable_and_the_seed_changes_it():
    task = make_task("recall")
    first, again, other = (learn("fourier", task, 1e-2, seed, SMALL) for seed in (0, 0, 1))
    assert without_time([first]) == without_time([again]) != without_time([other])
    assert [point[0] for point in first["curve"]] == [2, 4] and first["curve"][-1][1:] == [first["loss"],
                                                                                           first["accuracy"]]


def test_a_contender_learns():
    run = learn("static", Recall(1, 2, 8), 1e-2, 0, replace(SMALL, steps=400, batch_size=16, points=80))
    assert run["accuracy"] == 1.0 and run["curve"][0][1] > 2 * run["loss"]
    assert run["curve"][-1][0] < 400 and [a for _, _, a in run["curve"]].index(1.0) == len(run["curve"]) - 1


def test_ablations_are_measured_on_the_trained_model():
    lesson = replace(SMALL, steps=400, batch_size=16, points=40)
    run = learn("fourier-no-pc", EASY, 3e-2, 0, lesson, {"none": lambda model: nullcontext(),
                                                         "lag 0": partial(gate_up_to, lag=0)})
    assert run["operated"]["none"] == run["accuracy"] == 1.0 > run["operated"]["lag 0"]


def test_a_run_that_diverges_ends_and_says_so():
    run = learn("window", make_task("recall"), 1e30, 0, replace(SMALL, steps=40))
    assert run["loss"] is None and run["curve"][-1][0] <= 40
    json.dumps(run, allow_nan=False)


def test_a_sweep_is_recorded(tmp_path, capsys):
    run_learn(small(tmp_path))
    record = read_record(tmp_path / "record.json", require_commit=False)
    assert [(run["contender"], run["learning_rate"], run["seed"]) for run in runs_of(record)] == list(
        product(("static", "window"), (1e-3, 1e-2), (0, 1)))
    assert record["results"]["chance"] == {"recall": 0.25} and len(record["parts"]) == 1
    assert describe(record).startswith("recorded, not rerun: mixers on synthetic tasks")
    said = capsys.readouterr().out
    assert "8 of 8: recall, window, learning rate 0.01, seed 1: accuracy" in said and "over seeds" in said


def test_other_lessons_and_other_sizes_of_a_task_are_refused(tmp_path, monkeypatch):
    run_learn(small(tmp_path, seeds=(0,)), lambda line: None)
    with pytest.raises(ValueError, match="holds a run with steps=4, and this is steps=5"):
        run_learn(small(tmp_path, seeds=(0,), steps=5))
    monkeypatch.setitem(TASKS, "recall", Recall(keys=16))
    with pytest.raises(ValueError, match="sizes of the task='Recall\\(pairs=4, keys=32"):
        run_learn(small(tmp_path, seeds=(0,)))


def made(contender, rate, accuracies, task="recall"):
    return [{"task": task, "contender": contender, "learning_rate": rate, "seed": seed, "accuracy": a,
             "curve": [[1, 2.0, 0.0], [2, 1.0, a]]} for seed, a in enumerate(accuracies)]


def test_a_comparison_takes_the_best_rate_by_its_mean_and_shows_the_spread():
    runs = [*made("fourier", 1e-3, [0.2, 0.3]), *made("fourier", 3e-3, [0.5, 0.7]), *made("fourier", 1e-2, [0.9, 0.1]),
            *made("static", 1e-3, [0.4, 0.4]), *made("static", 3e-3, [0.3, 0.3])]
    fourier, static = comparison(runs)
    assert fourier == {"task": "recall", "contender": "fourier", "learning_rate": 3e-3, "mean": pytest.approx(0.6),
                       "low": 0.5, "high": 0.7, "seeds": 2, "edge": False}
    assert static["learning_rate"] == 1e-3 and static["edge"]
    assert learning_curves(runs, "recall", "fourier") == [[[1, 2.0, 0.0], [2, 1.0, a]] for a in (0.5, 0.7)]
    with pytest.raises(ValueError, match="no run of fourier on mirror"):
        learning_curves(runs, "mirror", "fourier")
