"""One run of the race: a `Trainer` run of any model, what is kept of it, and what a folder of runs holds."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from caracal_min.data.corpus import Corpus
from caracal_min.files import writing
from caracal_min.language_model import LanguageModel
from caracal_min.record import seal
from caracal_min.training.recipe import TrainConfig
from caracal_min.training.trainer import DivergedError, Trainer

__all__ = ["RaceRun", "read_result", "read_state", "require_no_fewer", "runs_of"]

_RESULT = "result.json"


class RaceRun(Trainer):
    """A run of a model that is not in the zoo.  It leaves a result, and neither weights nor a record of its own.

    Args:
        config: the run; its preset, architecture and variant count for nothing.
        corpus: tokens to train on.
        build: makes the model, freshly initialised from torch's random state.

    Errors as `training.Trainer`.
    """

    def __init__(self, config: TrainConfig, corpus: Corpus, build: Callable[[], LanguageModel]):
        torch.manual_seed(config.seed)
        super().__init__(config, corpus, build())

    def _leave(self) -> None:
        pass

    def to_the_end(self, facts: Mapping, look: Callable[[LanguageModel], Mapping] | None = None) -> dict:
        """Train to the end of the budget, write the result, remove the checkpoints, and return the result.

        Args:
            facts: who ran, at which rate, with which seed: they become part of the result.
            look: what it finds in the trained model, unless the run diverged, does too.

        Returns:
            the facts; parameters, steps, tokens; loss, held-out, in nats per token, None after a divergence, which
            diverged then describes; seconds_per_step, the median; seconds of all training steps; curve, an entry for
            each measurement: step, tokens, loss (mean of training since the entry before), validation_loss, seconds
            of the training steps so far.

        Raises:
            OSError: a file cannot be written.
        """
        diverged = None
        try:
            self.run()
        except DivergedError as error:
            diverged = str(error)
        times, curve = [entry["seconds"] for entry in self.log], _curve(self.log)
        found = {} if look is None or diverged else look(self.model)
        result = seal({**facts, **found, "parameters": self.model.num_parameters(), "steps": len(self.log),
                       "tokens": self.log[-1]["tokens"] if self.log else 0, "diverged": diverged,
                       "loss": None if diverged else curve[-1]["validation_loss"],
                       "seconds_per_step": statistics.median(times) if times else 0.0, "seconds": sum(times),
                       "precision": str(self.precision).removeprefix("torch."), "curve": curve})
        folder = self.config.out
        with writing(folder / _RESULT) as partial:
            partial.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
        for checkpoint in folder.glob("checkpoint*.safetensors"):
            checkpoint.unlink()
        return result


def read_result(folder: Path) -> dict | None:
    """Return the result of a run in this folder; None if it is not over.

    Raises:
        ValueError: the file is not as it was written.
    """
    path = folder / _RESULT
    if not path.exists():
        return None
    try:
        result = json.loads(path.read_text())
        if result["digest"] == seal(result)["digest"]:
            return result
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    raise ValueError(f"{path} is not as it was written; restore it, or remove it to run this again")


def read_state(path: Path, shared: Mapping, what: str, holds: Mapping[str, type]) -> dict:
    """Return what a folder of runs says of them all: under `shared` the settings, and what else it holds.

    Args:
        shared: the settings of now, as JSON has them.
        what: what the runs are, for the message.
        holds: names beside `shared`, and the type of each.

    Raises:
        ValueError: it cannot be read, or the settings are others; in one line.
    """
    try:
        state = json.loads(path.read_text())
        before = dict(state["shared"])
        for name, kind in holds.items():
            if not isinstance(state[name], kind):
                raise TypeError(f"{name} is a {type(state[name]).__name__}")
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is damaged ({error}); start anew in another folder") from None
    for name, now in shared.items():
        if before.get(name) != now:
            other = "other data" if name == "corpus" else f"{name}={before.get(name)!r}, now {now!r}"
            raise ValueError(f"{path.parent} holds {what} with {other}; go on with the same, or give another folder")
    return state


def runs_of(record: Path) -> list[dict]:
    """Return the runs that a record holds; none where there is no record."""
    return json.loads(record.read_text())["results"]["runs"] if record.exists() else []


def require_no_fewer(record: Path, config: object, names: Sequence[str]) -> None:
    """Raise ValueError, in one line, if a record has runs of values that a configuration leaves out of some fields."""
    if not record.exists():
        return
    before = json.loads(record.read_text())["config"]
    for name in names:
        if lost := [value for value in before[name] if value not in getattr(config, name)]:
            raise ValueError(f"{record} holds runs with {name} {' '.join(map(str, lost))}, which are left out here; "
                             "name them too, or give another folder")


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
