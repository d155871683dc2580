"""Synthetic tasks that tell mixers apart.  Every batch is drawn anew: nothing can be learned by heart but the rule.

A task has `vocab_size` ids, texts of `length` tokens, `chance`, which is the accuracy of a guess among the answers that
stay open to somebody who cannot do what is asked, and `draw`.  Targets are -100 where nothing is asked.

    Recall         pairs of key and value, then keys: what was the value?          look-up by content
    Mirror         is the second half the first one backwards?                     pairs by the sum of positions
    Induction      what followed the marker, the last time?                        look-up, one step on
    SelectiveCopy  write down, in order, what stood between blanks                 order without distance
    Compression    write down the whole text from its last state alone             how much a state holds
    Memorise       a fixed table of keys and values                                what the weights hold

`TASKS` has them by name, at sizes that two cores train on in minutes.  Mirror stands in `mirror`, the last three in
`mad`.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from .mad import Compression, Memorise, SelectiveCopy
from .mirror import Mirror
from .task import IGNORED, Batch, Task, distinct, require

__all__ = ["TASKS", "Induction", "Recall", "make_task"]


@dataclass(frozen=True)
class Recall(Task):
    """Multi-query associative recall: k1 v1 k2 v2 ..., then keys again; the target of each is its value.

    Keys of a text differ, and so do its values; each key is asked for once, and the answers are not written down.
    A model that knows which values the text has, and not whose they are, reaches 1 / pairs: `chance`.

    Args:
        pairs: of key and value.
        keys, values: to draw from; ids 0 to keys - 1, and those after.
        tokens: length of the text.  None: the keys are asked one after the other, in any order.  Otherwise they
            stand at places at even distances, drawn by a power law that favours early ones, and other places hold
            random ids, as in Zoology.

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
            places = distinct(batch, self.pairs, self.pairs, generator)
        else:
            weight = torch.arange(1, rest.shape[1] // 2 + 1, dtype=torch.float64) ** (0.01 - 1)
            places = 2 * torch.multinomial(weight.expand(batch, -1), self.pairs, generator=generator)
        answers = torch.full_like(rest, IGNORED).scatter(1, places, values)
        return Batch(torch.cat([shown, rest.scatter(1, places, keys)], dim=1),
                     torch.cat([torch.full_like(shown, IGNORED), answers], dim=1))

    def distances(self, texts: Batch) -> Tensor:
        """Return how many tokens before each question its value is shown."""
        text, place = (texts.targets != IGNORED).nonzero(as_tuple=True)
        shown = texts.ids[text, 1:2 * self.pairs:2] == texts.targets[text, place, None]
        return place - 1 - 2 * shown.int().argmax(1)


@dataclass(frozen=True)
class Induction(Task):
    """Random symbols with a marker among them, and the marker again at the end: what followed it the first time?

    Args:
        symbols: ids 0 to symbols - 1; the marker comes after.
        tokens: length of the text.

    Source: the induction head of Fu et al. 2022 ("Hungry Hungry Hippos"): 20 ids, 30 tokens.
    """

    symbols: int = 19
    tokens: int = 30

    def __post_init__(self):
        require(self.symbols >= 2 and self.tokens >= 4, f"symbols={self.symbols}, tokens={self.tokens}; "
                "give at least 2 symbols and 4 tokens")

    vocab_size = property(lambda self: self.symbols + 1)
    length = property(lambda self: self.tokens)
    chance = property(lambda self: 1 / self.symbols)

    def draw(self, batch: int, generator: Generator) -> Batch:
        """Return `batch` fresh texts and their targets."""
        ids = torch.randint(self.symbols, (batch, self.tokens), generator=generator)
        place = torch.randint(self.tokens - 2, (batch, 1), generator=generator)
        targets = torch.full_like(ids, IGNORED)
        targets[:, -1:] = ids.gather(1, place + 1)
        ids = ids.scatter(1, place, self.symbols)
        ids[:, -1] = self.symbols
        return Batch(ids, targets)


TASKS = {
    "recall": Recall(),
    "mirror": Mirror(),
    "mirror-anywhere": Mirror(before=8),
    "mirror-anywhere-wait": Mirror(before=8, wait=8),
    "induction": Induction(),
    "selective-copy": SelectiveCopy(14, 4, 32),
    "compression": Compression(15, 16),
    "memorise": Memorise(63, 16),
    "recall-far": Recall(tokens=32),
    "recall-zoology": Recall(4, 128, 128, tokens=64),
}
"""The tasks by name, at sizes for a CPU.  As published, selective-copy copies 16 in 256 tokens, compression and
memorise have 32 tokens, memorise 127 keys, recall-zoology 8,192 ids."""


def make_task(name: str) -> Task:
    """Return a task by name.  Raises ValueError, in one line, if there is no such task."""
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; accepted: {', '.join(TASKS)}")
    return TASKS[name]
