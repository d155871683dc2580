"""All contenders on all tasks, at several learning rates, with several seeds: run, resumed, recorded, read.

    config.out/runs.jsonl    a line for each process that took part, and one for each run that ended, as they end
    config.out/record.json   all of them in one record, once there is no run left

A kill at any moment loses the runs that were under way, one for each process, and nothing else.  `comparison` and
`learning_curves` read a record, or the runs so far.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import product
from pathlib import Path

import torch

from caracal_min.record import code, machine, write_record
from caracal_min.training.folder import RunFolder
from caracal_min.training.settings import require_kinds, require_range

from .learner import CONTENDERS, Learner, Lesson, learn
from .pool import each
from .surgery import gate_of_another, gate_up_to, windows_of
from .task import Task
from .tasks import TASKS, make_task

__all__ = ["LearnConfig", "at_best_rate", "comparison", "learning_curves", "run_learn", "runs_of"]


@dataclass(frozen=True)
class LearnConfig(Lesson):
    """Which mixers learn which tasks: every contender on every task, at every rate, with every seed.

    Raises:
        ValueError: a field out of range, or an unknown name, in one line.
    """

    out: Path = Path("runs/learn")
    """Folder of the sweep; the same command goes on from what is there."""
    contenders: tuple[str, ...] = tuple(CONTENDERS)
    """Names of contenders."""
    tasks: tuple[str, ...] = tuple(TASKS)
    """Names of tasks."""
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    """Peaks of the schedule."""
    seeds: int = 3
    """Runs of each, with seeds 0, 1, ..."""
    every_rate: bool = True
    """Every seed at every rate.  False: seed 0 alone, and the later seeds at the rate that was best with it."""
    processes: int = 1
    """Runs at a time, each in a process of one thread; 1 stays in this process."""

    def __post_init__(self):
        super().__post_init__()
        require_kinds(self)
        require_range(self, ("seeds", "processes"), low=1)
        for what, given, accepted in (("contender", self.contenders, CONTENDERS), ("task", self.tasks, TASKS)):
            for name in given:
                if name not in accepted:
                    raise ValueError(f"unknown {what} {name!r}; accepted: {', '.join(accepted)}")
        for name in ("contenders", "tasks", "learning_rates"):
            given = getattr(self, name)
            if not given or len(set(given)) != len(given):
                raise ValueError(f"{name}={given!r}; give at least one, and each once")
        if min(self.learning_rates) <= 0:
            raise ValueError(f"learning_rates={self.learning_rates!r}; give numbers > 0")

    @property
    def decisive(self) -> dict:
        """What decides the result of a run: the sweep goes on under the same alone."""
        return {field.name: getattr(self, field.name) for field in fields(Lesson)}

    def stages(self, runs: Callable[[], list[dict]]) -> Iterator[list[tuple[str, str, float, int]]]:
        """Yield the (task, contender, learning rate, seed) of runs, in one list, or in two if rates are chosen.

        Args:
            runs: what has ended, asked when the second list is.
        """
        seeds = self.seeds if self.every_rate else 1
        first = list(product(self.tasks, self.contenders, self.learning_rates, range(seeds)))
        yield first
        if seeds < self.seeds:
            best = comparison(run for run in runs() if _cell(run) in set(first))
            yield [(row["task"], row["contender"], row["learning_rate"], seed)
                   for row in best for seed in range(seeds, self.seeds)]


def run_learn(config: LearnConfig, show: Callable[[str], None] = print) -> dict:
    """Run what is left of a sweep, show a line for each run, write the record, and return it.

    Raises:
        ValueError: the folder holds a sweep of other lessons, or a line that is none of ours.
        OSError: it cannot be written, or another process works in it.
        ImportError: jsonschema, which the record needs, is not installed.
    """
    folder = RunFolder(config.out)
    try:
        lines = _Lines(config.out / "runs.jsonl")
        sizes = {name: str(make_task(name)) for name in config.tasks}
        for process in lines.of("process"):
            for ours, theirs in ((config.decisive, process["lesson"]), (sizes, process["tasks"])):
                for name in sorted(ours.keys() & theirs.keys()):
                    if ours[name] != theirs[name]:
                        raise ValueError(f"{lines.path} holds runs with {name}={theirs[name]!r}, and this is "
                                         f"{name}={ours[name]!r}; give another folder")
        wide = [max(map(len, names)) + 2 for names in (config.tasks, config.contenders)]
        cells: set[tuple] = set()
        for stage in config.stages(lambda: lines.of("run")):
            cells.update(stage)
            done = {_cell(run) for run in lines.of("run")}
            left = [cell for cell in stage if cell not in done]
            if left:
                lines.add("process", {"lesson": config.decisive, "tasks": sizes, "part": {
                    "from_step": len(done), "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "code": code(), "machines": [machine(torch.device("cpu"))]}})
                show(f"{len(left)} runs, {len(done)} done before")
            for number, run in enumerate(each(partial(_run, config), left, config.processes), 1):
                lines.add("run", run)
                show(f"{number:>5} of {len(left)}  {run['task']:<{wide[0]}}{run['contender']:<{wide[1]}}"
                     f"{run['learning_rate']:<8g}seed {run['seed']}  accuracy {run['accuracy']:.3f}  "
                     f"{run['seconds']:.0f} s")
        runs = sorted((run for run in lines.of("run") if _cell(run) in cells), key=_cell)
        chance = {name: make_task(name).chance for name in config.tasks}
        results = {"runs": runs, "chance": chance, "tasks": sizes}
        return write_record(folder.record, "learn", asdict(config), results, None,
                            max(sum(run["seconds"] for run in runs), 1e-3), torch.device("cpu"),
                            [process["part"] for process in lines.of("process")], grown=True)
    finally:
        folder.close()


def runs_of(source: dict | Path) -> list[dict]:
    """Return the runs of a record, or of the folder of a sweep that is under way.

    A run has task, contender, learning_rate and seed, and what `learner.learn` returns.
    """
    if isinstance(source, dict):
        return source["results"]["runs"]
    return _Lines(source / "runs.jsonl", keep=True).of("run")


def comparison(runs: Iterable[dict]) -> list[dict]:
    """Return, for every contender on every task, the accuracy at its best learning rate.

    The best rate is that of the highest mean over seeds, among those that were run with the most seeds.  Of equal ones
    it is that of the fewest steps (a run ends as soon as it makes no mistake), then the smallest.

    Returns:
        rows with task, contender, learning_rate, mean, low and high (over seeds), seeds, and `edge`: the best rate is
        the smallest or the largest that was tried, so a better one may lie beyond.
    """
    by_cell: dict[tuple[str, str], dict[float, list[dict]]] = {}
    for run in runs:
        rates = by_cell.setdefault((run["task"], run["contender"]), {})
        rates.setdefault(run["learning_rate"], []).append(run)
    rows = []
    for (task, contender), rates in by_cell.items():
        best = max(sorted(rates), key=lambda rate: _merit(rates[rate]))
        found = [run["accuracy"] for run in rates[best]]
        rows.append({"task": task, "contender": contender, "learning_rate": best, "mean": sum(found) / len(found),
                     "low": min(found), "high": max(found), "seeds": len(found),
                     "edge": len(rates) > 1 and best in (min(rates), max(rates))})
    return rows


def _merit(runs: list[dict]) -> tuple[int, float, int]:
    """Return what ranks a rate: how many seeds it was run with, their mean accuracy, and their steps, negative."""
    return len(runs), sum(run["accuracy"] for run in runs) / len(runs), -sum(run["curve"][-1][0] for run in runs)


def at_best_rate(runs: Iterable[dict], task: str, contender: str) -> list[dict]:
    """Return the runs of a contender on a task at its best rate, as `comparison` has it, by seed.

    Raises:
        ValueError: there is no such run.
    """
    own = sorted((run for run in runs if (run["task"], run["contender"]) == (task, contender)), key=_cell)
    if not own:
        raise ValueError(f"no run of {contender} on {task}; look at task and contender of the runs")
    best = comparison(own)[0]["learning_rate"]
    return [run for run in own if run["learning_rate"] == best]


def learning_curves(runs: Sequence[dict], task: str, contender: str, learning_rate: float | None = None) -> list[list]:
    """Return the curves of a contender on a task, one for each seed: lists of [step, loss, accuracy].

    Args:
        learning_rate: None takes the best, as `comparison` has it.

    Raises:
        ValueError: there is no such run.
    """
    if learning_rate is None:
        return [run["curve"] for run in at_best_rate(runs, task, contender)]
    own = [run for run in runs if _cell(run)[:3] == (task, contender, learning_rate)]
    curves = [run["curve"] for run in sorted(own, key=_cell)]
    if not curves:
        raise ValueError(f"no run of {contender} on {task} at {learning_rate}; look at task, contender and "
                         "learning_rate of the runs")
    return curves


class _Lines:
    """Lines of JSON that are added whole: what a kill left unfinished at the end is cut off."""

    def __init__(self, path: Path, keep: bool = False):
        self.path = path
        there = path.read_bytes() if path.exists() else b""
        whole = there[:there.rfind(b"\n") + 1]
        if whole != there and not keep:
            os.truncate(path, len(whole))
        self.entries = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                entry = json.loads(line)
                valid = len(entry) == 1 and ("process" in entry or bool(_cell(entry["run"])))
            except (ValueError, TypeError, KeyError):
                valid = False
            if not valid:
                raise ValueError(f"{path} is damaged in line {number}; remove the line, and the run is done again")
            self.entries.append(entry)

    def of(self, kind: str) -> list[dict]:
        return [entry[kind] for entry in self.entries if kind in entry]

    def add(self, kind: str, entry: dict) -> None:
        line = json.dumps({kind: entry}, allow_nan=False)
        with open(self.path, "ab", buffering=0) as file:
            file.write(line.encode() + b"\n")
            os.fsync(file.fileno())
        self.entries.append(json.loads(line))


def _cell(run: dict) -> tuple[str, str, float, int]:
    return run["task"], run["contender"], run["learning_rate"], run["seed"]


def _run(config: LearnConfig, cell: tuple[str, str, float, int]) -> dict:
    task, contender, learning_rate, seed = cell
    lesson = Lesson(**config.decisive)
    operations = _operations(contender, make_task(task), lesson.texts)
    return {"task": task, "contender": contender, "learning_rate": learning_rate, "seed": seed,
            **learn(contender, make_task(task), learning_rate, seed, lesson, operations)}


def _operations(contender: str, task: Task, texts: int) -> dict[str, Callable[[Learner], AbstractContextManager]]:
    """Return what is tried on a trained model, by name: gates exchanged, gates and window cut alone and together."""
    mixers, window, _ = CONTENDERS[contender]
    fourier, found = any(mixer.startswith("fourier") for mixer in mixers), {}
    if fourier and texts > 1:
        found["gate of another text"] = gate_of_another
    windows = {"": None} | ({"half the window": window // 2} if window else {})
    lags = range(0, task.length, 4) if fourier else ()
    for (name, keys), lag in product(windows.items(), (None, *lags)):
        parts = [name] * (keys is not None) + [f"gates up to lag {lag}"] * (lag is not None)
        if parts:
            found[", ".join(parts)] = partial(_cut, keys=keys, lag=lag)
    return found


@contextmanager
def _cut(model: Learner, keys: int | None, lag: int | None) -> Iterator[None]:
    with ExitStack() as both:
        if keys is not None:
            both.enter_context(windows_of(model, keys))
        if lag is not None:
            both.enter_context(gate_up_to(model, lag))
        yield
