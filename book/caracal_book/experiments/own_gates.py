"""When does a model that learns palindromes need the gates of its own text?  The control of a question about language.

On web text, what another text's gates cost falls during training, relative to what it costs to have no convolution
(`ladder`, `surgery`).  On palindromes only a text's own gates can give the answer, so there it must not fall.  The same
model, texts and recipe as in `learner.learn`, stopped along the way to measure three accuracies on the same texts.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Generator

from ..records import require_new, write_record
from .grid import one_thread
from .learner import Lesson, make_contender, measure, taught
from .surgery import gate_of_another, gate_up_to
from .tasks import make_task

__all__ = ["OwnGatesConfig", "run_own_gates"]


@dataclass(frozen=True)
class OwnGatesConfig:
    """Train a model on palindromes, and measure along the way what another text's gates cost it."""

    out: Path = Path("runs/own_gates.json")
    """Record to write."""
    contender: str = "fourier"
    """Name of a contender of `learn`."""
    task: str = "mirror"
    """Name of a task of `learn`."""
    learning_rate: float = 1e-3
    """Peak learning rate."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the weights and of the texts."""
    steps: tuple[int, ...] = (25, 50, 100, 200, 400, 800)
    """Steps after which it is measured; the last ends the training."""
    schedule: int = 4000
    """Steps that the learning rate is planned for."""


@one_thread()
def run_own_gates(config: OwnGatesConfig, show: Callable[[str], None] = print) -> dict:
    """Train with each seed, write the record, and return it.

    Raises:
        FileExistsError: the record is there.
    """
    require_new(config.out)
    began = time.monotonic()
    runs = [_run(config, seed) for seed in config.seeds]
    for run in runs:
        for point in run["along"]:
            show(f"seed {run['seed']}, step {point['step']}: {point['accuracy']}")
    return write_record(config.out, "learn", asdict(config),
                        {"runs": runs, "chance": {config.task: make_task(config.task).chance}}, None,
                        time.monotonic() - began, torch.device("cpu"))


def _run(config: OwnGatesConfig, seed: int) -> dict:
    task, lesson, began = make_task(config.task), Lesson(steps=config.schedule), time.perf_counter()
    model, along = make_contender(config.contender, task, lesson, seed), []
    held_out = task.draw(lesson.texts, Generator().manual_seed(0))
    for step, _ in taught(model, task, config.learning_rate, seed, lesson):
        if step in config.steps:
            along.append({"step": step, "accuracy": {}, "loss": {}})
            for name, change in (("whole", nullcontext()), ("gate of another text", gate_of_another(model)),
                                 ("gate up to lag 0", gate_up_to(model, 0))):
                with change:
                    along[-1]["loss"][name], along[-1]["accuracy"][name] = measure(model, held_out)
        if step == config.steps[-1]:
            break
    last = along[-1]
    return {"task": config.task, "contender": config.contender, "learning_rate": config.learning_rate, "seed": seed,
            "accuracy": last["accuracy"]["whole"],
            "curve": [[point["step"], point["loss"]["whole"], point["accuracy"]["whole"]] for point in along],
            "along": along, "parameters": sum(p.numel() for p in model.parameters()),
            "seconds": time.perf_counter() - began}
