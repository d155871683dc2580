"""What a synthetic task is.  `tasks` has them by name."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

__all__ = ["IGNORED", "Batch", "Task", "distinct", "require"]

IGNORED = -100
"""The target of a position at which nothing is asked."""


class Batch(NamedTuple):
    """Texts and what is asked of them."""

    ids: Tensor
    """int64 `[B, L]`."""
    targets: Tensor
    """int64 `[B, L]`: the id to answer at each position, or `IGNORED`."""


@dataclass(frozen=True)
class Task:
    """What the tasks share.  Each is a frozen dataclass of its sizes; they are checked when it is made.

    Raises:
        ValueError: sizes that make no task.
    """

    from_last = False
    """Whether all answers are read from the state of the last token (`Compression`) and not each at its own."""

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
        """Return how many tokens before each question its answer stands: int64 `[n]`, in the order of the questions.

        None: the answers of this task stand in no one place.
        """
        return None

    def probes(self) -> dict[str, Batch]:
        """Return texts of the task, sorted by what they ask of a model, by name; the same at every call.

        Empty: this task has but one kind of text.
        """
        return {}


def distinct(batch: int, of: int, count: int, generator: Generator) -> Tensor:
    """Draw `count` different numbers below `of` for each row, in any order: int64 `[batch, count]`."""
    return torch.rand(batch, of, generator=generator).topk(count).indices


def require(fits: bool, message: str) -> None:
    """Raise ValueError with a message unless sizes fit."""
    if not fits:
        raise ValueError(message)
