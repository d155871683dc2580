"""Contenders on tasks, at several learning rates and with several seeds: what is run, and how the runs are read.

`run_learn` runs the grid; `comparison`, `at_best_rate` and `learning_curves` read its runs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import partial
from itertools import product
from pathlib import Path

from torch import Generator

from .grid import Cell, Grid, require_known, require_once
from .learner import CONTENDERS, Learner, Lesson, learn
from .surgery import gate_of_another, gate_up_to, windows_of
from .task import Task
from .tasks import TASKS, make_task

__all__ = ["LearnConfig", "at_best_rate", "comparison", "learning_curves", "run_learn", "runs_of"]


@dataclass(frozen=True)
class LearnConfig(Lesson):
    """Which mixers learn which tasks: every contender on every task, at every learning rate, with every seed.

    Raises:
        ValueError: a field out of range, or an unknown name, in one line.
    """

    out: Path = Path("runs/learn")
    """Folder of the runs and of the record; the same command resumes."""
    contenders: tuple[str, ...] = tuple(CONTENDERS)
    """Names of contenders."""
    tasks: tuple[str, ...] = tuple(TASKS)
    """Names of tasks."""
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    """Peak learning rates."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the weights and of the texts."""
    every_rate: bool = True
    """Run every seed at every learning rate.  Otherwise the first seed does, and the others at its best rate."""
    processes: int = 1
    """Runs at a time, each in a process of one thread; 1 stays in this process."""

    def __post_init__(self):
        super().__post_init__()
        require_once(self, ("contenders", "tasks", "learning_rates", "seeds"))
        require_known("contender", self.contenders, CONTENDERS)
        require_known("task", self.tasks, TASKS)


def run_learn(config: LearnConfig, show: Callable[[str], None] = print) -> dict:
    """Run what is left of the grid, show a line for each run, write the record, and return it.

    Raises:
        ValueError: as `grid.Grid`.
    """
    lesson = Lesson(**{field.name: getattr(config, field.name) for field in fields(Lesson)})

    def cell(task: str, contender: str, rate: float, seed: int) -> Cell:
        return Cell(f"{task}_{contender}_{rate:g}_{seed}",
                    {"task": task, "contender": contender, "learning_rate": rate, "seed": seed},
                    vars(lesson) | {"sizes of the task": str(make_task(task))})

    grid = Grid("learn", config, ("tasks", "contenders", "learning_rates", "seeds"), show=show)

    def run(cells: Iterable[tuple]) -> list[dict]:
        return grid.run([cell(*each) for each in cells], partial(_run, lesson), _line, config.processes)

    first = config.seeds if config.every_rate else config.seeds[:1]
    runs = run(product(config.tasks, config.contenders, config.learning_rates, first))
    # The other seeds run only where the first one, or all at every rate, did best.
    runs += run((row["task"], row["contender"], row["learning_rate"], seed)
                for row in comparison(runs) for seed in config.seeds[len(first):])
    tasks = {name: make_task(name) for name in config.tasks}
    return grid.record({"runs": runs, "chance": {name: task.chance for name, task in tasks.items()},
                        "tasks": {name: str(task) for name, task in tasks.items()}})


def runs_of(record: dict) -> list[dict]:
    """Return the runs of a record: task, contender, learning_rate and seed, and what `learner.learn` returns."""
    return record["results"]["runs"]


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
    """Return the runs of a contender on a task at its best learning rate, as `comparison` has it, by seed.

    Raises:
        ValueError: there is no such run.
    """
    own = sorted((run for run in runs if (run["task"], run["contender"]) == (task, contender)),
                 key=lambda run: run["seed"])
    if not own:
        raise ValueError(f"no run of {contender} on {task}; look at task and contender of the runs")
    best = comparison(own)[0]["learning_rate"]
    return [run for run in own if run["learning_rate"] == best]


def learning_curves(runs: Sequence[dict], task: str, contender: str) -> list[list]:
    """Return the curves of a contender on a task at its best learning rate, by seed: lists of [step, loss, accuracy].

    Raises:
        ValueError: there is no such run.
    """
    return [run["curve"] for run in at_best_rate(runs, task, contender)]


def _line(run: dict) -> str:
    return (f"{run['task']}, {run['contender']}, learning rate {run['learning_rate']:g}, seed {run['seed']}: accuracy "
            f"{run['accuracy']:.3f} in {run['seconds']:.0f} s")


def _run(lesson: Lesson, facts: dict) -> dict:
    task = make_task(facts["task"])
    return learn(facts["contender"], task, facts["learning_rate"], facts["seed"], lesson,
                 _ablations(facts["contender"], task))


def _ablations(contender: str, task: Task) -> dict[str, Callable[[Learner], AbstractContextManager]]:
    """Return the ablations that a trained model is measured under, by name.

    Gates are those of other texts; where answers are told apart by their distance, gates and windows are cut too, alone
    and together.
    """
    mixers, window, _ = CONTENDERS[contender]
    fourier = any(mixer.startswith("fourier") for mixer in mixers)
    found: dict = {"gate of another text": gate_of_another} if fourier else {}
    if task.distances(task.draw(1, Generator().manual_seed(0))) is None:
        return found
    windows = {"": None} | ({"half the window": window // 2} if window else {})
    for (name, keys), lag in product(windows.items(), (None, *(range(0, task.length, 4) if fourier else ()))):
        cuts = [name] * (keys is not None) + [f"gates up to lag {lag}"] * (lag is not None)
        if cuts:
            found[", ".join(cuts)] = partial(_cut, keys=keys, lag=lag)
    return found


@contextmanager
def _cut(model: Learner, keys: int | None, lag: int | None) -> Iterator[None]:
    with ExitStack() as both:
        if keys is not None:
            both.enter_context(windows_of(model, keys))
        if lag is not None:
            both.enter_context(gate_up_to(model, lag))
        yield
