"""Grids: a stop loses no run that ended, the same command runs what is left, and other settings are refused."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch

from caracal_book.experiments import ladder, nine_numbers, own_gates
from caracal_book.experiments.grid import Cell, record_grid, run_grid, settings_of
from caracal_book.records import read_record


@pytest.fixture(autouse=True)
def needs_schema():
    pytest.importorskip("jsonschema")


@dataclass(frozen=True)
class Config:
    out: Path
    contenders: tuple[str, ...] = ("a", "b", "c", "d")
    size: int = 3


class StopError(Exception):
    pass


def ran(facts, log=None, stop=None):
    """The run of a cell, which is noted in a file, since it may have run in another process."""
    if facts["contender"] == stop:
        raise StopError
    if log is not None:
        with open(log, "a") as file:
            file.write(facts["contender"])
    return {"accuracy": ord(facts["contender"]) / 100, "seconds": 0.5, "task": "recall", "learning_rate": 1.0,
            "seed": 0, "curve": [], "parameters": 1}


def run(config, processes=1, show=lambda line: None, **how):
    cells = [Cell(f"{name}_0.1", {"contender": name}, settings_of(config, {"out", "contenders"}))
             for name in config.contenders]
    runs = run_grid(config.out, cells, partial(ran, **how), lambda run: run["contender"], processes, show)
    return record_grid("learn", config, {"runs": runs, "chance": {}}, show)


def test_cells_run_once_and_are_recorded_in_their_order(tmp_path):
    config, log, said = Config(tmp_path / "grid"), tmp_path / "log", []
    record = run(config, show=said.append, log=log)
    assert [each["contender"] for each in record["results"]["runs"]] == list("abcd")
    assert record == read_record(config.out / "record.json", require_commit=False)
    assert record["seconds"] == 2.0 and [process["from_step"] for process in record["parts"]] == [0]
    assert said.pop() == f"record = {config.out / 'record.json'}"
    assert sorted(said) == sorted(f"{n} of 4: {line.split()[-1]}" for n, line in enumerate(said, 1))
    before = (config.out / "record.json").read_bytes()
    run(config, show=said.append, log=log)
    assert (config.out / "record.json").read_bytes() == before and sorted(log.read_text()) == list("abcd")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_stop_loses_no_run_that_ended_and_a_larger_grid_uses_them(tmp_path, processes):
    config, log = Config(tmp_path / "grid", ("a", "b", "c")), tmp_path / "log"
    with pytest.raises(StopError):
        run(config, processes, log=log, stop="c")
    assert not (config.out / "record.json").exists()
    record = run(config, log=log)
    if processes == 1:  # with more, one that was under way when another failed has noted itself, too
        assert log.read_text() == "abc"
    assert set(log.read_text()) == set("abc") and len(record["results"]["runs"]) == 3
    log.unlink()
    larger = run(replace(config, contenders=("b", "d", "a", "c")), log=log)
    assert log.read_text() == "d" and [each["contender"] for each in larger["results"]["runs"]] == list("bdac")


def test_other_settings_are_refused_and_a_number_that_is_none_is_not_kept(tmp_path):
    config = Config(tmp_path / "grid")
    run(config)
    with pytest.raises(ValueError, match="a_0.1.json holds a run with size=3, and this is size=4; go on with the same"):
        run(replace(config, size=4))
    with pytest.raises(ValueError, match="not JSON compliant"):
        run_grid(tmp_path, [Cell("a", {}, {})], lambda facts: {"loss": float("nan")}, str)
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("run, config, where, first", [
    (ladder.run_ladder, ladder.LadderConfig, vars(ladder), "load_corpus"),
    (own_gates.run_own_gates, own_gates.OwnGatesConfig, vars(own_gates), "make_task"),
    (nine_numbers.run_nine_numbers, nine_numbers.NineNumbersConfig, nine_numbers.MODELS, "micro"),
], ids=["ladder", "own gates", "nine numbers"])
def test_an_experiment_of_one_thread_leaves_as_many_as_it_found(monkeypatch, tmp_path, run, config, where, first):
    seen = []

    def stop(*given, **options):
        seen.append(torch.get_num_threads())
        raise StopError

    monkeypatch.setitem(where, first, stop)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(StopError):
            run(config(out=tmp_path / "out"))
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)
