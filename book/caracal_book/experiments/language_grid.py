"""Language models of one recipe, each at several learning rates and with several seeds: how they run in a grid.

Every contender runs at every learning rate with the first seed, and at the rate of its lowest held-out loss with the
others.  The runs that choose the rate may be shorter, with a fraction of the tokens; then the first seed runs at the
best rate too.  The best rate of short runs need not be that of long ones.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from caracal_min.data.batches import Corpus
from caracal_min.training.config import TrainConfig
from caracal_min.training.trainer import DivergedError, Trainer

from .grid import Cell, Grid
from .race_results import standings

__all__ = ["run_rates_then_seeds", "train"]


def run_rates_then_seeds(grid: Grid, contenders: Iterable[str], settings: dict, function: Callable[[dict], dict],
                         processes: int = 1) -> list[dict]:
    """Run contenders at every rate with the first seed, then at their best rates with the others, and return all runs.

    Args:
        grid: of a configuration with learning_rates, seeds and sweep_part, the fraction of the tokens for the runs that
            choose the rate; 1 (or one rate alone): these are runs of the first seed.
        settings: shared by all runs.
        function: from contender, learning_rate, seed and sweep (whether the run only chooses the rate) to the result.
        processes: runs at a time.
    """
    config, contenders = grid.config, list(contenders)
    first, *others = config.seeds
    apart = config.sweep_part < 1 and len(config.learning_rates) > 1

    def cell(contender: str, rate: float, seed: int, sweep: bool) -> Cell:
        return Cell(f"{'sweep_' * sweep}{contender}_{rate:g}_{seed}",
                    {"contender": contender, "learning_rate": rate, "seed": seed, "sweep": sweep}, settings)

    runs = grid.run([cell(name, rate, first, apart) for rate in config.learning_rates for name in contenders],
                    function, _line, processes)
    best = {row["contender"]: row["learning_rate"] for row in standings(runs)}
    return runs + grid.run([cell(name, best[name], seed, False) for seed in (config.seeds if apart else others)
                            for name in contenders if best[name] is not None], function, _line, processes)


def train(recipe: TrainConfig, corpus: Corpus, build: Callable[[], nn.Module],
          examine: Callable[[Any], Mapping] | None = None) -> dict:
    """Train a model to the end of its budget, and return what came of it.

    Args:
        recipe: of the run; without a folder, since a grid resumes by whole runs.
        build: makes the model, freshly initialised from torch's random state, which the seed decides.
        examine: from the trained model to more results, unless the run diverged.

    Returns:
        parameters, steps, tokens; loss, held-out, in nats per token, None after a divergence, which `diverged` then
        describes; seconds_per_step, the median, and seconds of all training steps; precision; curve, an entry for each
        measurement: step, tokens, loss (mean of training since the entry before), validation_loss, seconds so far.
    """
    torch.manual_seed(recipe.seed)
    diverged = None
    with Trainer(recipe, corpus, build()) as trainer:
        try:
            trainer.run()
        except DivergedError as error:
            diverged = str(error).partition(";")[0]
        log, times, curve = trainer.log, [entry["seconds"] for entry in trainer.log], _curve(trainer.log)
        found = {} if examine is None or diverged else dict(examine(trainer.model))
        return found | {
            "parameters": trainer.model.num_parameters(), "steps": len(log), "tokens": log[-1]["tokens"] if log else 0,
            "diverged": diverged, "loss": None if diverged else curve[-1]["validation_loss"],
            "seconds_per_step": statistics.median(times) if times else 0.0, "seconds": sum(times),
            "precision": str(trainer.precision).removeprefix("torch."), "curve": curve}


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


def _line(run: dict) -> str:
    loss = "diverged" if run["loss"] is None else f"{run['loss']:.4f} nats"
    return (f"{run['contender']}, learning rate {run['learning_rate']:g}, seed {run['seed']}"
            f"{', sweep' * run['sweep']}: {loss} in {run['seconds'] / 60:.1f} minutes")
