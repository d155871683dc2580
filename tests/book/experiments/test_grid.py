"""The runner of grids: a stop loses no run that ended, the same command resumes, and no edited run is taken."""

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from caracal_book.experiments.grid import Cell, Grid, map_unordered, require_known, require_once, settings_of
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


def cells(config, **changes):
    return [Cell(f"{name}_0.1", {"contender": name}, settings_of(config, {"out", "contenders"}) | changes)
            for name in config.contenders]


def run(config, processes=1, show=lambda line: None, changes=(), **how):
    grid = Grid("learn", config, ("contenders",), show=show)
    runs = grid.run(cells(config, **dict(changes)), partial(ran, **how), lambda run: run["contender"], processes)
    return grid.record({"runs": runs, "chance": {}})


@pytest.mark.parametrize("processes", [1, 2])
def test_cells_run_once_and_are_recorded_in_their_order(tmp_path, processes):
    config, log, said = Config(tmp_path / "grid"), tmp_path / "log", []
    record = run(config, processes, said.append, log=log)
    assert [each["contender"] for each in record["results"]["runs"]] == list("abcd")
    assert record == read_record(config.out / "record.json", require_commit=False)
    assert record["seconds"] == 2.0 and [process["from_step"] for process in record["parts"]] == [0]
    assert sorted(said) == sorted(f"{n} of 4: {line.split()[-1]}" for n, line in enumerate(said, 1))
    before = (config.out / "record.json").read_bytes()
    run(config, processes, said.append, log=log)
    assert (config.out / "record.json").read_bytes() == before and sorted(log.read_text()) == list("abcd")


def test_a_stop_loses_no_run_that_ended(tmp_path):
    config, log = Config(tmp_path / "grid"), tmp_path / "log"
    with pytest.raises(StopError):
        run(config, log=log, stop="c")
    assert log.read_text() == "ab" and not (config.out / "record.json").exists()
    record = run(config, log=log)
    assert log.read_text() == "abcd" and [process["from_step"] for process in record["parts"]] == [0, 2]
    whole = run(Config(tmp_path / "other"))
    assert record["results"] == whole["results"]


def test_a_larger_grid_uses_the_runs_that_are_there_and_a_smaller_one_is_refused(tmp_path):
    config, log = Config(tmp_path / "grid", ("a", "b")), tmp_path / "log"
    run(config, log=log)
    larger = run(replace(config, contenders=("b", "c", "a")), log=log)
    assert log.read_text() == "abc" and len(larger["results"]["runs"]) == 3
    with pytest.raises(ValueError, match="record.json holds runs with contenders c, which are left out here; name"):
        run(config, log=log)
    assert read_record(config.out / "record.json", require_commit=False) == larger


def test_other_settings_an_edit_and_another_record_are_refused(tmp_path):
    config = Config(tmp_path / "grid")
    run(config)
    with pytest.raises(ValueError, match="a_0.1.json holds a run with size=3, and this is size=4; go on with the same"):
        run(replace(config, size=4))
    with pytest.raises(ValueError, match="holds a run with corpus=None, and this is corpus='x'"):
        run(config, changes={"corpus": "x"})
    path = config.out / "runs" / "b_0.1.json"
    for text in (path.read_text().replace('"accuracy": 0.98', '"accuracy": 0.99'), path.read_text()[:-20], "[]"):
        path.write_text(text)
        with pytest.raises(ValueError, match="b_0.1.json is damaged or was edited; remove it, and the run is done"):
            run(config)
    path.unlink()
    assert len(run(config)["results"]["runs"]) == 4
    with pytest.raises(ValueError, match="record.json is the record of learn, not of race; give another folder"):
        Grid("race", config, ("contenders",))


def test_a_number_that_is_none_is_not_kept(tmp_path):
    config = Config(tmp_path / "grid", ("a",))
    with pytest.raises(ValueError, match="not JSON compliant"):
        Grid("learn", config, ("contenders",)).run(cells(config), lambda facts: {"loss": float("nan")}, str)
    assert list((config.out / "runs").iterdir()) == []


def fails(item):
    if item == 2:
        raise StopError("two")
    return item


@pytest.mark.parametrize("processes", [1, 2])
def test_all_items_are_handed_out_and_errors_passed_on(processes):
    assert sorted(map_unordered(fails, [1, 3, 4], processes)) == [1, 3, 4]
    with pytest.raises(StopError):
        list(map_unordered(fails, [1, 2, 3], processes))


def test_lists_and_names_that_cannot_be_get_one_line():
    for names in ((), ("a", "a")):
        with pytest.raises(ValueError, match="^contenders=(none|a a); give at least one, and each once$"):
            require_once(Config(Path(), names), ("contenders",))
    with pytest.raises(ValueError, match="^unknown mixer 'mamba'; accepted: static, window$"):
        require_known("mixer", ("static", "mamba"), {"static": 0, "window": 0})
    json.dumps(settings_of(Config(Path()), {"out"}))
