"""Runs in a folder: a loop that skips what is recorded, and one record of all.

A cell is one run; it has a name, facts, which become part of its run, and settings, which decide its result with them::

    out/runs/NAME.json   the run of a cell, its settings and the process that ran it, written when the run ends
    out/record.json      all runs

A stop at any moment loses the runs that have not ended.  The same command runs what is left, and so does one with more
cells.  `run_rates_then_seeds` are the cells of language models, `standings` how their runs are read.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from caracal_min.data.batches import Corpus
from caracal_min.files import writing
from caracal_min.training.config import TrainConfig
from caracal_min.training.trainer import DivergedError, Trainer

from ..records import code, machine, write_record

__all__ = ["Cell", "one_thread", "record_grid", "require_once", "run_grid", "run_rates_then_seeds", "settings_of",
           "standings", "train"]


class Cell(NamedTuple):
    """One run of a grid."""

    name: str
    """Of its file."""
    facts: dict
    """What tells it from other cells: contender, learning rate, seed, ..."""
    settings: dict
    """What else decides its result; the grid goes on only under the same."""


def run_grid(out: Path, cells: Iterable[Cell], function: Callable[[dict], dict], line: Callable[[dict], str],
             processes: int = 1, show: Callable[[str], None] = print, device: str = "cpu") -> list[dict]:
    """Run the cells that are left, and return the runs of all, in their order.

    Args:
        out: folder of the grid.
        function: from the facts of a cell to its result, JSON; what a new process can import.
        line: from a run, facts and result, to what is shown of it.
        processes: runs at a time, each in a process of one thread; 1 stays in this process.
        show: gets the line of each run that ends.
        device: that the runs compute on.

    Raises:
        ValueError: a cell was run with other settings.
    """
    cells, process = list(cells), _process(out, device)
    left = [cell for cell in cells if _entry(out, cell) is None]
    run = partial(_run_cell, out, function, process)
    for number, entry in enumerate(_unordered(run, left, processes), 1):
        show(f"{number} of {len(left)}: {line(entry['run'])}")
    return [_entry(out, cell)["run"] for cell in cells]


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, PyTorch computes with one thread; after it with as many as before.  Also a decorator, `@one_thread()`."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def record_grid(kind: str, config: Any, results: dict, show: Callable[[str], None], data: dict | None = None,
                device: str = "cpu") -> dict:
    """Write the record of a grid, unless it is there, show where it is and its standings, and return it.

    Args:
        config: a dataclass with the field `out`.
        results: with `runs`, a list of what `run_grid` returned, and maybe `standings`.
        data: what the record says of the text.
    """
    path, results = config.out / "record.json", json.loads(json.dumps(results))
    if not path.exists() or json.loads(path.read_text())["results"] != results:
        processes = [json.loads(run.read_text())["process"] for run in (config.out / "runs").glob("*.json")]
        parts = sorted({json.dumps(process): process for process in processes}.values(),
                       key=lambda process: (process["started"], process["from_step"]))
        write_record(path, kind, vars(config), results, data, max(sum(run["seconds"] for run in results["runs"]), 1e-3),
                     torch.device(device), parts, grown=True)
    if "standings" in results:
        show(_table(results["standings"]))
    show(f"record = {path}")
    return json.loads(path.read_text())


def _path(out: Path, cell: Cell) -> Path:
    return out / "runs" / f"{cell.name}.json"


@cache
def _process(out: Path, device: str) -> dict:
    """Return what a record says of this process: its code as it was at the start, since files may change."""
    return {"from_step": len(list((out / "runs").glob("*.json"))), "code": code(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machines": [machine(torch.device(device))]}


def _entry(out: Path, cell: Cell) -> dict | None:
    """Return what is recorded of a cell; None if it is left."""
    if not (path := _path(out, cell)).exists():
        return None
    entry = json.loads(path.read_text())
    for name, now in json.loads(json.dumps(cell.settings)).items():
        if (before := entry["settings"].get(name)) != now:
            raise ValueError(f"{path} holds a run with {name}={before!r}, and this is {name}={now!r}; go on with "
                             "the same, or give another folder")
    return entry


def _unordered(function: Callable[[Cell], dict], cells: Sequence[Cell], processes: int) -> Iterable[dict]:
    """Yield what a function returns for each cell, as it ends; the cells are handed out one at a time."""
    if processes == 1:
        yield from map(function, cells)
        return
    with get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
        yield from pool.imap_unordered(function, cells)


def _run_cell(out: Path, function: Callable[[dict], dict], process: dict, cell: Cell) -> dict:
    """Run a cell and write its file, here and not where the runs are collected, so that a stop there loses none."""
    entry = {"settings": cell.settings, "run": cell.facts | function(cell.facts), "process": process}
    path = _path(out, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as partial_file:
        partial_file.write_text(json.dumps(entry, indent=1, allow_nan=False) + "\n")
    return entry


def settings_of(config: Any, free: Iterable[str]) -> dict:
    """Return the fields of a configuration that decide the result of each of its runs: all but those that are free."""
    return {name: value for name, value in vars(config).items() if name not in free}


def require_once(config: Any, names: Iterable[str]) -> None:
    """Raise ValueError, in one line, unless some fields list at least one value, and each once."""
    for name in names:
        given = getattr(config, name)
        if not given or len(set(given)) < len(given):
            raise ValueError(f"{name}={' '.join(map(str, given)) or 'none'}; give at least one, and each once")


def run_rates_then_seeds(config: Any, contenders: Iterable[str], settings: dict, function: Callable[[dict], dict],
                         processes: int = 1, show: Callable[[str], None] = print, device: str = "cpu") -> list[dict]:
    """Run language models at every rate with the first seed, then at their best rates with the others; return all runs.

    The runs that choose the rate may be shorter, with a fraction of the tokens; then the first seed runs at the best
    rate too.  The best rate of short runs need not be that of long ones.

    Args:
        config: with out, learning_rates, seeds and sweep_part, the fraction of the tokens for the runs that choose the
            rate; 1 (or one rate alone): these are runs of the first seed.
        settings: shared by all runs.
        function: from contender, learning_rate, seed and sweep (whether the run only chooses the rate) to the result.
    """
    contenders, (first, *others) = list(contenders), config.seeds
    apart = config.sweep_part < 1 and len(config.learning_rates) > 1

    def run(rows: Iterable[tuple]) -> list[dict]:
        facts = [dict(zip(("contender", "learning_rate", "seed", "sweep"), row, strict=True)) for row in rows]
        return run_grid(config.out, [Cell("{}{}_{:g}_{}".format("sweep_" * row["sweep"], *list(row.values())[:3]), row,
                                          settings) for row in facts], function, _line, processes, show, device)

    runs = run((name, rate, first, apart) for rate in config.learning_rates for name in contenders)
    best = {row["contender"]: row["learning_rate"] for row in standings(runs)}
    return runs + run((name, best[name], seed, False) for seed in (config.seeds if apart else others)
                      for name in contenders if best[name] is not None)


def _line(run: dict) -> str:
    loss = "diverged" if run["loss"] is None else f"{run['loss']:.4f} nats"
    return (f"{run['contender']}, learning rate {run['learning_rate']:g}, seed {run['seed']}"
            f"{', sweep' * run['sweep']}: {loss} in {run['seconds'] / 60:.1f} minutes")


def train(recipe: TrainConfig, corpus: Corpus, build: Callable[[], nn.Module],
          examine: Callable[[Any], Mapping] | None = None, stops: Iterable[int] = (),
          along: Callable[[Any], Any] | None = None) -> dict:
    """Train a model to the end of its budget, and return what came of it.

    Args:
        recipe: of the run; without a folder, since a grid resumes by whole runs.
        build: makes the model, freshly initialised from torch's random state, which the seed decides.
        examine: from the trained model to more results, unless the run diverged.
        stops: steps after which `along` looks at the model.

    Returns:
        parameters, steps, tokens; loss, held-out, in nats per token, None after a divergence, which `diverged` then
        describes; seconds_per_step, the median, and seconds of all training steps; precision; curve, an entry for each
        measurement: step, tokens, loss (mean of training since the entry before), validation_loss, seconds so far; and
        along, an entry for each stop: step, and rows, what was seen there.
    """
    torch.manual_seed(recipe.seed)
    diverged, seen = None, []
    with Trainer(recipe, corpus, build()) as trainer:
        try:
            for stop in stops:
                trainer.run(until=stop)
                seen.append({"step": stop, "rows": along(trainer.model)})
            trainer.run()
        except DivergedError as error:
            diverged = str(error).partition(";")[0]
        log, curve = trainer.log, _curve(trainer.log)
        times = [entry["seconds"] for entry in log] or [0.0]
        found = {
            "parameters": trainer.model.num_parameters(), "steps": len(log), "tokens": log[-1]["tokens"] if log else 0,
            "diverged": diverged, "loss": None if diverged else curve[-1]["validation_loss"],
            "seconds_per_step": statistics.median(times), "seconds": sum(times),
            "precision": str(trainer.precision).removeprefix("torch."), "curve": curve}
        if stops:
            found["along"] = seen
        return found if diverged or examine is None else found | examine(trainer.model)


def _curve(log: list[dict]) -> list[dict]:
    curve, since, seconds = [], [], 0.0
    for entry in log:
        since.append(entry["loss"])
        seconds += entry["seconds"]
        if "validation_loss" in entry:
            curve.append({"step": entry["step"], "tokens": entry["tokens"], "loss": statistics.fmean(since),
                          "validation_loss": entry["validation_loss"], "seconds": seconds})
            since = []
    return curve


def standings(runs: Sequence[dict]) -> list[dict]:
    """Return a row for each contender that ran, the lowest loss first.

    Args:
        runs: as in a record, in the order in which they ran.  Those marked as a sweep choose the learning rate; where
            none is, all runs with the seed of the first one do.

    Returns:
        contender; sweep, pairs of learning rate and held-out loss (None: diverged) with the first seed;
        learning_rate, the best of them (None: all diverged); at_edge, whether it is the lowest or the highest that was
        tried, so that a better one may lie beyond; losses by seed at that rate, on all tokens; loss, their mean, and
        spread, the highest less the lowest (None if a seed diverged); parameters; seconds_per_step, the median over
        these runs.  Losses in nats per token.
    """
    rows = []
    for name in dict.fromkeys(run["contender"] for run in runs):
        own = [run for run in runs if run["contender"] == name]
        tried = [run for run in own if run["sweep"]] or [run for run in own if run["seed"] == own[0]["seed"]]
        sweep = sorted([run["learning_rate"], run["loss"]] for run in tried)
        best = min(((loss, rate) for rate, loss in sweep if loss is not None), default=(None, None))[1]
        at_best = [run for run in own if not run["sweep"] and run["learning_rate"] == best]
        losses = {str(run["seed"]): run["loss"] for run in at_best}
        found = [] if None in losses.values() else [*losses.values()]
        rows.append({"contender": name, "parameters": own[0]["parameters"], "sweep": sweep, "learning_rate": best,
                     "at_edge": best in (sweep[0][0], sweep[-1][0]), "losses": losses,
                     "loss": statistics.fmean(found) if found else None,
                     "spread": max(found) - min(found) if found else None,
                     "seconds_per_step": statistics.median(run["seconds_per_step"] for run in at_best or own)})
    return sorted(rows, key=lambda row: float("inf") if row["loss"] is None else row["loss"])


def _table(rows: Sequence[dict]) -> str:
    """Return standings as text: best rate, loss over the seeds, and time of a step."""
    lines = [f"{'contender':<16}{'parameters':>12}{'best rate':>11}{'held-out loss':>15}{'spread':>9}{'s a step':>10}"]
    for row in rows:
        rate = "diverged" if row["learning_rate"] is None else f"{row['learning_rate']:g}{'*' * row['at_edge']}"
        loss, spread = ("-" if x is None else f"{x:.4f}" for x in (row["loss"], row["spread"]))
        lines.append(f"{row['contender']:<16}{row['parameters']:>12,}{rate:>11}{loss:>15}{spread:>9}"
                     f"{row['seconds_per_step']:>10.3f}")
    return "\n".join([*lines, "* at the edge of the rates that were tried: a better one may lie beyond"])
