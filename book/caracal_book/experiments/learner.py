"""A small model around any mixers, and how it learns a task: the same for all contenders but for the mixers::

    ids [B, L] -> embedding -> blocks (mixer, SwiGLU; pre-norm) -> norm -> logits at the positions with a target

`CONTENDERS` says which mixers stand in the two blocks; `learn` trains one of them once, and `run_learn` a grid of them,
at several learning rates and with several seeds.  `comparison`, `at_best_rate` and `learning_curves` read its runs.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from caracal_min.config import require_known
from caracal_min.layers import Block

from .grid import Cell, record_grid, require_once, run_grid
from .mixers import make_mixer
from .surgery import gate_of_another, gate_up_to, windows_of
from .tasks import IGNORED, TASKS, Batch, Task, make_task

__all__ = ["CONTENDERS", "Contender", "LearnConfig", "Learner", "Lesson", "answers", "at_best_rate", "comparison",
           "learn", "learning_curves", "make_contender", "measure", "run_learn", "runs_of", "taught"]


class Contender(NamedTuple):
    """What stands in the two blocks, and what goes into them."""

    mixers: tuple[str, str]
    """Names of `mixers.MIXERS`, first block first."""
    window: int = 0
    """Keys that a window layer sees; 0: there is none."""
    positions: bool = False
    """Whether a learned vector for each position is added to the embedding, as in GPT-2 (absolute positions)."""


CONTENDERS: dict[str, Contender] = {
    "fourier": Contender(("fourier", "fourier")),
    "fourier-window": Contender(("fourier", "window"), 12),
    "fourier-short-window": Contender(("fourier", "window"), 4),
    "static-window": Contender(("static", "window"), 12),
    "window": Contender(("window", "window"), 12),
    "attention": Contender(("attention", "attention")),
    "attention-no-positions": Contender(("attention-no-positions", "attention-no-positions")),
    "attention-absolute": Contender(("attention-no-positions", "attention-no-positions"), positions=True),
    "attention-taps": Contender(("attention-taps", "attention-taps")),
    "attention-taps-absolute": Contender(("attention-taps-no-positions", "attention-taps-no-positions"),
                                         positions=True),
    "attention-taps-places": Contender(("attention-taps", "attention-taps"), positions=True),
    "static": Contender(("static", "static")),
    "gated-static": Contender(("gated-static", "gated-static")),
    "fourier-no-pc": Contender(("fourier-no-pc", "fourier-no-pc")),
    "fourier-single-stage": Contender(("fourier-single-stage", "fourier-single-stage")),
    "linear-attention": Contender(("linear-attention", "linear-attention")),
    "delta-rule": Contender(("delta-rule", "delta-rule")),
}
"""Contenders by name."""


@dataclass(frozen=True)
class Lesson:
    """How a contender learns, whichever it is: the size of the model, and of its training."""

    d_model: int = 64
    """Width of the model."""
    n_heads: int = 4
    """Heads of every mixer."""
    hidden: int = 128
    """Channels of the SwiGLU."""
    init_std: float = 0.1
    """Standard deviation of the initial embedding and of linear maps; convolutions are drawn as PyTorch does."""
    steps: int = 1500
    """Most steps of AdamW; the learning rate rises over the first 5 %, stays, and falls to 0 over the last 20 %."""
    batch_size: int = 64
    """Fresh texts a step."""
    points: int = 15
    """Measurements of the accuracy, evenly spaced up to the end.  A run without a mistake ends at its measurement."""
    texts: int = 1024
    """Held-out texts to measure on, at least two, the same for all contenders and seeds."""


class Learner(nn.Module):
    """Blocks of mixers between an embedding and an output layer.

    Args:
        task: what it is to learn; decides the number of ids.
        mixers: one for each block, e.g. from `mixers.make_mixer`; all of one width.
        hidden: channels of the SwiGLU.
        init_std: of the initial embedding and linear maps.
        positions: whether a learned vector for each position of a text is added to the embedding.
    """

    def __init__(self, task: Task, mixers: list[nn.Module], hidden: int, init_std: float = 0.1,
                 positions: bool = False):
        super().__init__()
        width = mixers[0].d_model
        self.embedding = nn.Embedding(task.vocab_size, width)
        self.positions = nn.Embedding(task.length, width) if positions else None
        self.blocks = nn.ModuleList(Block(mixer, hidden) for mixer in mixers)
        self.norm = nn.LayerNorm(width)
        self.to_logits = nn.Linear(width, task.vocab_size, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=init_std)
                if getattr(module, "bias", None) is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logits `[n, vocab_size]` at the n positions with a target, and the targets, `[n]`."""
        x = self.embedding(batch.ids)
        if self.positions is not None:
            x = x + self.positions.weight[:x.shape[1]]
        for block in self.blocks:
            x = block(x)
        queried = batch.targets != IGNORED
        return self.to_logits(self.norm(x)[queried]), batch.targets[queried]


def make_contender(name: str, task: Task, lesson: Lesson, seed: int = 0) -> Learner:
    """Build a freshly initialised contender; the seed decides the weights.

    Raises:
        ValueError: there is no such contender, in one line.
    """
    require_known("contender", name, CONTENDERS)
    chosen = CONTENDERS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built = [make_mixer(mixer, lesson.d_model, lesson.n_heads, task.length, chosen.window or 1)
                 for mixer in chosen.mixers]
        return Learner(task, built, lesson.hidden, lesson.init_std, chosen.positions)


def learn(contender: str, task: Task, learning_rate: float, seed: int, lesson: Lesson | None = None,
          ablations: Mapping[str, Callable[["Learner"], AbstractContextManager]] | None = None) -> dict:
    """Train a contender once on fresh texts, and return what it learned.

    The seed decides the weights and the texts; held-out texts are the same for all.

    Args:
        contender: a key of `CONTENDERS`.
        learning_rate: peak learning rate.
        lesson: size of the model and of its training; None: the defaults.
        ablations: from `surgery`, by name; measured on the trained model, over the held-out texts in one batch.

    Returns:
        `accuracy` on held-out texts and `loss`, in nats per answer, at the end; `curve`, a list of [step,
        loss, accuracy]; `parameters`; `seconds`; `operated`, the accuracy under each ablation.  A run ends
        early when it makes no mistake on the held-out texts, and when it diverges, with a loss of None.

        Where the task has probes (`Task.probes`), `probes`: the accuracy on each.

        Where the task has distances (`Task.distances`), `by_distance` too: `distances`, in tokens, `answers`, how
        many there are at each, and the accuracy at each, `curve` for every point of the curve and `operated`
        under each ablation.

    Raises:
        ValueError: there is no such contender, in one line.
    """
    lesson = lesson or Lesson()
    started = time.perf_counter()
    model = make_contender(contender, task, lesson, seed)
    held_out, curve, near = task.draw(lesson.texts, Generator().manual_seed(0)), [], []
    far = task.distances(held_out)
    distances, counts = ([], []) if far is None else (x.tolist() for x in far.unique(return_counts=True))

    def by_distance(right: Tensor) -> list[float]:
        return [round(right[far == d].double().mean().item(), 4) for d in distances]

    measured = {math.ceil(lesson.steps * (i + 1) / lesson.points) for i in range(lesson.points)}
    for step, finite in taught(model, task, learning_rate, seed, lesson):
        if not finite:
            curve.append([step, None, 0.0])
            near.append([0.0] * len(distances))
            break
        if step in measured:
            losses, right = answers(model, held_out, lesson.batch_size)
            curve.append([step, *_means(losses, right)])
            near.append(by_distance(right))
            if curve[-1][2] == 1.0:
                break
    operated = {}
    for name, ablation in (ablations or {}).items():
        with ablation(model):
            operated[name] = answers(model, held_out, lesson.texts)
    run = {"accuracy": curve[-1][2], "loss": curve[-1][1], "curve": curve,
           "operated": {name: _means(*found)[1] for name, found in operated.items()},
           "parameters": sum(p.numel() for p in model.parameters())}
    if probes := task.probes():
        run["probes"] = {name: measure(model, probe, lesson.batch_size)[1] for name, probe in probes.items()}
    if far is not None:
        run["by_distance"] = {"distances": distances, "answers": counts, "curve": near,
                              "operated": {name: by_distance(right) for name, (_, right) in operated.items()}}
    return run | {"seconds": time.perf_counter() - started}


def taught(model: Learner, task: Task, learning_rate: float, seed: int, lesson: Lesson) -> Iterator[tuple[int, bool]]:
    """Train on fresh texts; after each step yield its number, and whether its gradient was finite.

    The seed decides the texts.  The learning rate rises over the first 5 % of the steps, and falls over the last 20 %.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    texts = Generator().manual_seed(1_000_003 * seed + 1)
    rise, fall = math.ceil(0.05 * lesson.steps), math.ceil(0.2 * lesson.steps)
    for step in range(1, lesson.steps + 1):
        optimizer.param_groups[0]["lr"] = learning_rate * min(step / rise, 1, (lesson.steps + 1 - step) / fall)
        loss = F.cross_entropy(*model(task.draw(lesson.batch_size, texts)))
        optimizer.zero_grad()
        loss.backward()
        finite = bool(nn.utils.clip_grad_norm_(model.parameters(), 1.0).isfinite())
        if finite:
            optimizer.step()
        yield step, finite


@torch.inference_mode()
def answers(model: Learner, texts: Batch, batch_size: int = 64) -> tuple[Tensor, Tensor]:
    """Return the loss of each answer, in nats, and whether it is right, bool: `[n]` each, in the order of the texts."""
    losses, right = [], []
    for ids, targets in zip(texts.ids.split(batch_size), texts.targets.split(batch_size), strict=True):
        logits, wanted = model(Batch(ids, targets))
        losses.append(F.cross_entropy(logits, wanted, reduction="none"))
        right.append(logits.argmax(-1) == wanted)
    return torch.cat(losses), torch.cat(right)


def measure(model: Learner, texts: Batch, batch_size: int = 64) -> tuple[float | None, float]:
    """Return loss, in nats per answer (None: not finite), and accuracy on some texts, rounded to five decimals."""
    return _means(*answers(model, texts, batch_size))


def _means(losses: Tensor, right: Tensor) -> tuple[float | None, float]:
    loss = losses.double().mean().item()
    return round(loss, 5) if math.isfinite(loss) else None, round(right.double().mean().item(), 5)


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
        require_once(self, ("contenders", "tasks", "learning_rates", "seeds"))
        for name in self.contenders:
            require_known("contender", name, CONTENDERS)
        for name in self.tasks:
            make_task(name)


def run_learn(config: LearnConfig, show: Callable[[str], None] = print) -> dict:
    """Run what is left of the grid, show a line for each run, write the record, and return it.

    Raises:
        ValueError: as `grid.run_grid`.
    """
    lesson = Lesson(**{field.name: getattr(config, field.name) for field in fields(Lesson)})
    tasks = {name: make_task(name) for name in config.tasks}

    def run(rows: Iterable[tuple]) -> list[dict]:
        facts = [dict(zip(("task", "contender", "learning_rate", "seed"), row, strict=True)) for row in rows]
        cells = [Cell("{}_{}_{:g}_{}".format(*row.values()), row,
                      vars(lesson) | {"sizes of the task": str(tasks[row["task"]])}) for row in facts]
        return run_grid(config.out, cells, partial(_run, lesson), _line, config.processes, show)

    first = config.seeds if config.every_rate else config.seeds[:1]
    runs = run(product(config.tasks, config.contenders, config.learning_rates, first))
    # The other seeds run only where the first one, or all at every rate, did best.
    runs += run((row["task"], row["contender"], row["learning_rate"], seed)
                for row in comparison(runs) for seed in config.seeds[len(first):])
    show(f"{'task':<16}{'contender':<24}{'rate':>8}{'accuracy':>10}  over seeds")
    for row in comparison(runs):
        show(f"{row['task']:<16}{row['contender']:<24}{row['learning_rate']:>8g}{row['mean']:>10.3f}  "
             f"{row['low']:.3f} to {row['high']:.3f}{', best rate at the edge' if row['edge'] else ''}")
    return record_grid("learn", config, {"runs": runs, "chance": {name: task.chance for name, task in tasks.items()},
                                         "tasks": {name: str(task) for name, task in tasks.items()}}, show)


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
