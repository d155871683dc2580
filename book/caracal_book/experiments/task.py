"""What a synthetic task is.  `tasks` has them by name."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

__all__ = ["IGNORED", "Batch", "Task", "distinct", "require"]

IGNORED = -100
"""The target of a position without a query."""


class Batch(NamedTuple):
    """Texts and their targets."""

    ids: Tensor
    """int64 `[B, L]`."""
    targets: Tensor
    """int64 `[B, L]`: the id to predict at each position, or `IGNORED`."""


@dataclass(frozen=True)
class Task:
    """Base class of the tasks.  Each is a frozen dataclass of its sizes, which are checked when it is made.

    Raises:
        ValueError: sizes that make no task.
    """

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        raise NotImplementedError

    @property
    def length(self) -> int:
        """Tokens of a text, L."""
        raise NotImplementedError

    @property
    def chance(self) -> float:
        """Accuracy of a guess."""
        raise NotImplementedError

    def draw(self, batch: int, generator: Generator) -> Batch:
        """Return `batch` fresh texts and their targets; the generator alone decides which."""
        raise NotImplementedError

    def distances(self, texts: Batch) -> Tensor | None:
        """Return how many tokens before each query its answer stands: int64 `[n]`, in the order of the queries.

        None: the runs of this task do not tell answers apart by their distance.
        """
        return None

    def probes(self) -> dict[str, Batch]:
        """Return texts of the task by their kind, each a different test of a model; the same at every call.

        Empty: this task has one kind of text.
        """
        return {}


def distinct(batch: int, of: int, count: int, generator: Generator) -> Tensor:
    """Draw `count` different numbers below `of` for each row, in any order: int64 `[batch, count]`."""
    return torch.rand(batch, of, generator=generator).topk(count).indices


def require(fits: bool, message: str) -> None:
    """Raise ValueError with a message unless sizes fit."""
    if not fits:
        raise ValueError(message)
