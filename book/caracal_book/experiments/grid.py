"""A grid of runs in a folder: each cell is run once, and all of them are recorded.

A cell has a name, facts, which become part of its run, and settings, which decide its result with them::

    out/runs/NAME.json   the run of a cell, its settings and the process that ran it, written when the run ends
    out/record.json      all runs

A stop at any moment loses the runs that have not ended.  The same command runs what is left, and so does one with more
cells.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait as wait_for_end
from pathlib import Path
from typing import Any, NamedTuple

import torch

from caracal_min.files import writing

from ..records import code, machine, read_record, seal, write_record

__all__ = ["Cell", "Grid", "map_unordered", "require_known", "require_once", "settings_of"]


class Cell(NamedTuple):
    """One run of a grid."""

    name: str
    """Of its file."""
    facts: dict
    """What tells it from other cells: contender, learning rate, seed, ..."""
    settings: dict
    """What else decides its result; the grid goes on only under the same."""


class Grid:
    """The folder of a grid, in which one process at a time works.

    Args:
        kind: of the record.
        config: a dataclass with the field `out`, the folder.
        fields: names of the fields that list what is run; a record that is there holds no value that they leave out.
        device: that the runs compute on.
        show: gets a line for each run that ends.

    Raises:
        ValueError: the record in the folder holds runs that are left out, or was edited.
    """

    def __init__(self, kind: str, config: Any, fields: Sequence[str], device: torch.device | str = "cpu",
                 show: Callable[[str], None] = print):
        self.kind, self.config, self.device, self.show = kind, config, torch.device(device), show
        self._record = config.out / "record.json"
        self._processes: list[dict] = []
        self._own: dict | None = None
        self._require_no_less(fields)
        code()  # as it is now: the files may change before the last run ends

    def run(self, cells: Sequence[Cell], function: Callable[[dict], dict], line: Callable[[dict], str],
            processes: int = 1) -> list[dict]:
        """Run the cells that are left, and return the runs of all, in their order.

        Args:
            function: from the facts of a cell to its result, JSON; what a new process can import.
            line: from a run, facts and result, to what is shown of it.
            processes: runs at a time, each in a process of one thread; 1 stays in this process.

        Raises:
            ValueError: a cell was run with other settings, or its file was edited.
        """
        runs = {cell.name: self._read(cell) for cell in cells}
        left = [cell for cell in cells if runs[cell.name] is None]
        if left and self._own is None:
            self._own = {"from_step": len(list(self._path("*").parent.glob("*.json"))), "code": code(),
                         "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                         "machines": [machine(self.device)]}
        for number, (cell, result) in enumerate(map_unordered(partial(_result_of, function), left, processes), 1):
            runs[cell.name] = self._write(cell, cell.facts | result)
            self.show(f"{number} of {len(left)}: {line(runs[cell.name])}")
        return [runs[cell.name] for cell in cells]

    def record(self, results: dict, data: dict | None = None) -> dict:
        """Write the record of the grid, unless it is there, and return it.

        Args:
            results: with `runs`, a list of what `run` returned.
            data: what the record says of the text.
        """
        path, results = self._record, json.loads(json.dumps(results))
        if not path.exists() or json.loads(path.read_text())["results"] != results:
            write_record(path, self.kind, vars(self.config), results, data,
                         max(sum(run["seconds"] for run in results["runs"]), 1e-3), self.device,
                         sorted(self._processes, key=lambda process: (process["started"], process["from_step"])),
                         grown=True)
        return json.loads(path.read_text())

    def _path(self, name: str) -> Path:
        return self.config.out / "runs" / f"{name}.json"

    def _read(self, cell: Cell) -> dict | None:
        """Return the run of a cell; None if it is left."""
        path = self._path(cell.name)
        if not path.exists():
            return None
        try:
            entry = json.loads(path.read_text())
            whole = entry["digest"] == seal(entry)["digest"]
        except (ValueError, TypeError, KeyError, AttributeError):
            whole = False
        if not whole:
            raise ValueError(f"{path} is damaged or was edited; remove it, and the run is done again")
        for name, now in json.loads(json.dumps(cell.settings)).items():
            if (before := entry["settings"].get(name)) != now:
                raise ValueError(f"{path} holds a run with {name}={before!r}, and this is {name}={now!r}; go on with "
                                 "the same, or give another folder")
        if entry["process"] not in self._processes:
            self._processes.append(entry["process"])
        return entry["run"]

    def _write(self, cell: Cell, run: dict) -> dict:
        self._path(cell.name).parent.mkdir(parents=True, exist_ok=True)
        with writing(self._path(cell.name)) as partial_file:
            partial_file.write_text(json.dumps(seal(json.loads(json.dumps(
                {"settings": cell.settings, "run": run, "process": self._own}, allow_nan=False))), indent=1) + "\n")
        return self._read(cell)

    def _require_no_less(self, fields: Sequence[str]) -> None:
        if self._record.exists():
            before = read_record(self._record, require_commit=False)
            if before["kind"] != self.kind:
                raise ValueError(f"{self._record} is the record of {before['kind']}, not of {self.kind}; give another "
                                 "folder")
            for name in fields:
                lost = [value for value in before["config"][name] if value not in getattr(self.config, name)]
                if lost:
                    raise ValueError(f"{self._record} holds runs with {name} {' '.join(map(str, lost))}, which "
                                     "are left out here; name them too, or give another folder")


def settings_of(config: Any, free: Iterable[str]) -> dict:
    """Return the fields of a configuration that decide the result of each of its runs: all but those that are free."""
    return {name: value for name, value in vars(config).items() if name not in free}


def require_once(config: Any, names: Iterable[str]) -> None:
    """Raise ValueError, in one line, unless some fields list at least one value, and each once."""
    for name in names:
        given = getattr(config, name)
        if not given or len(set(given)) < len(given):
            raise ValueError(f"{name}={' '.join(map(str, given)) or 'none'}; give at least one, and each once")


def require_known(what: str, given: Iterable[str], accepted: Mapping[str, object]) -> None:
    """Raise ValueError, in one line, if one of some names is not accepted."""
    for name in given:
        if name not in accepted:
            raise ValueError(f"unknown {what} {name!r}; accepted: {', '.join(accepted)}")


def map_unordered(function: Callable[[Any], Any], items: Sequence[Any], processes: int) -> Iterator[Any]:
    """Yield what a function returns for each item, as it ends.

    Args:
        function: what a new process can import, with arguments bound by `functools.partial` if need be.
        items: handed out one at a time, in this order, so that a stop has nothing waiting.
        processes: how many at a time, each in one thread, and ended when this one has; 1 stays in this process.
    """
    if processes == 1:
        yield from map(function, items)
        return
    pool, todo, running = ProcessPoolExecutor(processes, get_context("spawn"), _begin), iter(items), set()
    try:
        for item in todo:
            running.add(pool.submit(function, item))
            if len(running) == processes:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (run.result() for run in ended)
        while running:
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (run.result() for run in ended)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    """Compute in one thread, and end when the process that started this one has."""
    torch.set_num_threads(1)
    parent = parent_process().sentinel
    threading.Thread(target=lambda: (wait_for_end([parent]), os._exit(1)), daemon=True).start()


def _result_of(function: Callable[[dict], dict], cell: Cell) -> tuple[Cell, dict]:
    return cell, function(cell.facts)
