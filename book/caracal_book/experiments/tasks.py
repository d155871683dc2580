"""Synthetic tasks that tell mixers apart.  Every batch is drawn anew, so only the rule can be learned::

    Recall    pairs of key and value, then keys: what was the value?     look-up by content
    Mirror    is the second half the first one backwards?                pairs by the sum of positions

`TASKS` has them by name, at sizes that two cores train on in minutes.  A task has `vocab_size` ids, texts of `length`
tokens, `chance`, which is the accuracy of a guess, and `draw`.  Targets are -100 where there is no query.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from .grid import require_known
from .mirror import Mirror
from .task import IGNORED, Batch, Task, distinct, require

__all__ = ["TASKS", "Recall", "make_task"]


@dataclass(frozen=True)
class Recall(Task):
    """Multi-query associative recall: k1 v1 k2 v2 ..., then keys again; the target of each is its value.

    Keys of a text differ, and so do its values; each key is queried once, and the answers are not part of the text.
    A model that knows which values the text has, but not their keys, reaches 1 / pairs: `chance`.

    Args:
        pairs: of key and value.
        keys, values: to draw from; ids 0 to keys - 1, and those after.
        tokens: length of the text.  None: the keys are queried one after the other, in any order.  Otherwise the
            queries stand at positions at even distances, drawn by a power law that favours early ones, and other
            positions hold random ids, as in Zoology.

    Source: Arora et al. 2023 ("Zoology"): 4 pairs in 64 tokens to 64 in 512, 8,192 ids, the power 0.01.
    """

    pairs: int = 4
    keys: int = 32
    values: int = 32
    tokens: int | None = None

    def __post_init__(self):
        require(1 <= self.pairs <= min(self.keys, self.values), f"pairs={self.pairs} do not fit {self.keys} keys and "
                f"{self.values} values, which a text does not repeat")
        require(self.tokens is None or self.tokens % 2 == 0 and self.tokens >= 4 * self.pairs,
                f"tokens={self.tokens}; give an even number >= {4 * self.pairs}, or None")

    vocab_size = property(lambda self: self.keys + self.values)
    length = property(lambda self: 3 * self.pairs if self.tokens is None else self.tokens)
    chance = property(lambda self: 1 / self.pairs)

    def draw(self, batch: int, generator: Generator) -> Batch:
        """Return `batch` fresh texts and their targets."""
        keys = distinct(batch, self.keys, self.pairs, generator)
        values = self.keys + distinct(batch, self.values, self.pairs, generator)
        shown = torch.stack([keys, values], dim=-1).flatten(1)
        rest = torch.randint(self.vocab_size, (batch, self.length - shown.shape[1]), generator=generator)
        if self.tokens is None:
            queries = distinct(batch, self.pairs, self.pairs, generator)
        else:
            weight = torch.arange(1, rest.shape[1] // 2 + 1, dtype=torch.float64) ** (0.01 - 1)
            queries = 2 * torch.multinomial(weight.expand(batch, -1), self.pairs, generator=generator)
        answers = torch.full_like(rest, IGNORED).scatter(1, queries, values)
        return Batch(torch.cat([shown, rest.scatter(1, queries, keys)], dim=1),
                     torch.cat([torch.full_like(shown, IGNORED), answers], dim=1))

    def distances(self, texts: Batch) -> Tensor | None:
        """Return how many tokens before each query its value stands; None where the queries follow at once."""
        if self.tokens is None:
            return None
        text, query = (texts.targets != IGNORED).nonzero(as_tuple=True)
        shown = texts.ids[text, 1:2 * self.pairs:2] == texts.targets[text, query, None]
        return query - 1 - 2 * shown.int().argmax(1)


TASKS = {
    "recall": Recall(),
    "mirror": Mirror(),
    "mirror-anywhere": Mirror(before=8),
    "mirror-anywhere-wait": Mirror(before=8, wait=8),
    "recall-far": Recall(tokens=32),
}
"""The tasks by name, at sizes for a CPU."""


def make_task(name: str) -> Task:
    """Return a task by name.  Raises ValueError, in one line, if there is no such task."""
    require_known("task", (name,), TASKS)
    return TASKS[name]
