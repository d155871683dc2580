"""Synthetic tasks that tell mixers apart.  Every batch is drawn anew, so only the rule can be learned::

    Recall    pairs of key and value, then keys: what was the value?     look-up by content
    Mirror    is the second half the first one backwards?                pairs by the sum of positions

`TASKS` has them by name, at sizes that two cores train on in minutes.  Targets are -100 where there is no query.
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from caracal_min.config import require_known

__all__ = ["IGNORED", "TASKS", "Batch", "Mirror", "Recall", "Task", "make_task", "pieces_return"]

IGNORED = -100
"""The target of a position without a query."""


class Batch(NamedTuple):
    """Texts and their targets."""

    ids: Tensor
    """int64 `[B, L]`."""
    targets: Tensor
    """int64 `[B, L]`: the id to predict at each position, or `IGNORED`."""


class Task:
    """Base class of the tasks.  Each is a frozen dataclass of its sizes, which are checked when it is made.

    A task has `vocab_size` ids, texts of `length` tokens, `chance`, which is the accuracy of a guess, and
    `draw(batch, generator)`, which returns fresh texts and their targets; the generator alone decides which.
    """

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


@dataclass(frozen=True)
class Mirror(Task):
    """Is the text a palindrome?  u, then w, then a question mark, at which the target is yes or no; then padding.

    w is u backwards.  In half of the texts two symbols of w, an even distance apart, are swapped.  So both kinds have
    the same symbols, in pairs, and the same ones at even positions and at odd positions.

    That matters: a static kernel adds up h_k e(x), e the vector of the symbol at lag k.  Where the kernel is
    antisymmetric about the middle, a palindrome gives 0, so one kernel solves one length.  For all lengths at once it
    must be (-1)^k, and with that the swap gives 0 too.  With one wrong symbol in place of the swap it does not.

    Args:
        symbols: ids 0 to symbols - 1; then no, yes, the question mark, the padding and the mark of `before`.
        shortest, longest: half-lengths, drawn evenly.
        wrong: "swap", or "symbol": one symbol of w is replaced, which a static kernel finds.
        before: 0: u begins at position 0.  Otherwise 0 to `before` random symbols stand in front, and then a mark.
        wait: tokens of padding between w and the question mark.
    """

    symbols: int = 8
    shortest: int = 4
    longest: int = 16
    wrong: str = "swap"
    before: int = 0
    wait: int = 0

    def __post_init__(self):
        require(3 <= self.shortest <= self.longest and self.wrong in ("swap", "symbol"),
                f"half-lengths {self.shortest} to {self.longest}, wrong={self.wrong!r}; give 3 <= shortest <= longest, "
                "and swap or symbol")

    vocab_size = property(lambda self: self.symbols + 4 + (self.before > 0))
    length = property(lambda self: 2 * self.longest + 1 + self.wait + (self.before + 1 if self.before else 0))
    chance = property(lambda self: 0.5)

    def draw(self, batch: int, generator: Generator) -> Batch:
        """Return `batch` fresh texts and their targets."""
        half = torch.randint(self.shortest, self.longest + 1, (batch, 1), generator=generator)
        u = torch.randint(self.symbols, (batch, self.longest), generator=generator)
        # Two positions of u of one parity, with different symbols: in right texts too, so that nothing else differs.
        i = torch.randint(1 << 30, (batch, 1), generator=generator) % (half - 2)
        j = i + 2 * (1 + torch.randint(1 << 30, (batch, 1), generator=generator) % ((half - 1 - i) // 2))
        other = 1 + torch.randint(self.symbols - 1, (batch, 1), generator=generator)
        u = u.scatter(1, j, (u.gather(1, i) + other) % self.symbols)
        right = torch.randint(2, (batch, 1), generator=generator).bool()
        if self.wrong == "swap":
            spoiled = u.scatter(1, i, u.gather(1, j)).scatter(1, j, u.gather(1, i))
        else:
            spoiled = u.scatter(1, i, (u.gather(1, i) + other) % self.symbols)
        position, last = torch.arange(2 * self.longest + 1 + self.wait).expand(batch, -1), self.longest - 1
        query = position == 2 * half + self.wait
        ids = torch.where(position < half, u.gather(1, position.clamp(max=last)),
                          torch.where(right, u, spoiled).gather(1, (2 * half - 1 - position).clamp(0, last)))
        ids = torch.where(position < 2 * half, ids, torch.where(query, self.symbols + 2, self.symbols + 3))
        texts = Batch(ids, torch.where(query, self.symbols + right.long(), IGNORED))
        return self._moved(texts, generator) if self.before else texts

    def probes(self) -> dict[str, Batch]:
        """Return palindromes, and wrong texts by the pieces that return: 256 of each kind, or as many as turn up.

        A piece of k symbols returns if it stands somewhere in u w backwards.  In a palindrome all pieces do.  In the
        wrong texts of "pieces of 1" only single symbols do; in those of "pieces of 2" bigrams return as well, and in
        those of "pieces of 3" trigrams too: a model that looks pieces up takes these for palindromes.  The kinds differ
        in nothing else: they have the same lengths, and the wrong ones the same distances of their swaps.

        Empty where other symbols stand before the mark, or a symbol is replaced in place of a swap.
        """
        return {} if self.before or self.wrong != "swap" else _probes(self)

    def _moved(self, texts: Batch, generator: Generator) -> Batch:
        """Return texts, shorter by `before + 1`, behind 0 to `before` random symbols and the mark: `[batch, L]`."""
        batch, length = texts.ids.shape
        mark = torch.randint(self.before + 1, (batch, 1), generator=generator)
        other = torch.randint(self.symbols, (batch, self.length), generator=generator)
        position = torch.arange(self.length) - mark - 1  # in the text without them
        ids = texts.ids.gather(1, position.clamp(0, length - 1))
        ids = torch.where(position < length, ids, self.symbols + 3)
        ids = torch.where(position > -1, ids, torch.where(position == -1, self.symbols + 4, other))
        targets = texts.targets.gather(1, position.clamp(0, length - 1))
        return Batch(ids, torch.where((position > -1) & (position < length), targets, IGNORED))


def pieces_return(texts: Tensor, symbols: int, size: int) -> Tensor:
    """Return whether each piece of a text stands somewhere in it backwards: bool `[B]`.

    Args:
        texts: ids `[B, L]`; only those below `symbols` count, which stand in front.
        size: symbols of a piece.
    """
    pieces = texts.unfold(1, size, 1)
    whole = (pieces < symbols).all(-1)
    powers = symbols ** torch.arange(size)
    forwards, backwards = (pieces * powers).sum(-1), (pieces.flip(-1) * powers).sum(-1)
    found = ((forwards[:, :, None] == backwards[:, None]) & whole[:, None]).any(-1)
    return (found | ~whole).all(-1)


@cache
def _probes(task: Mirror, texts: int = 256, draws: int = 64) -> dict[str, Batch]:
    generator, found = Generator().manual_seed(0), []
    for _ in range(draws):
        batch = task.draw(4096, generator)
        right = (batch.targets == task.symbols + 1).any(1)
        bigrams, trigrams = (pieces_return(batch.ids, task.symbols, size) for size in (2, 3))
        kind = torch.where(right, 0, 1 + bigrams.long() + trigrams)  # trigrams return only where bigrams do
        found.append((batch.ids, batch.targets, kind, *_half_and_distance(batch.ids, task)))
        if sum((batch[2] == 3).sum() for batch in found) >= texts:
            break
    ids, targets, kind, half, distance = (torch.cat(each) for each in zip(*found, strict=True))
    rarest = (kind == 3).nonzero()[:texts, 0]
    probes = {}
    for number, name in enumerate(("palindromes", "pieces of 1", "pieces of 2", "pieces of 3")):
        pools, taken = {}, []
        for row in (kind == number).nonzero()[:, 0].tolist():
            pools.setdefault((half[row].item(), distance[row].item()), []).append(row)
        for row in rarest.tolist():
            pool = pools.get((half[row].item(), distance[row].item() if number else 0))
            taken += [pool.pop(0)] if pool else []
        if taken:
            probes[name] = Batch(ids[taken], targets[taken])
    return probes


def _half_and_distance(ids: Tensor, task: Mirror) -> tuple[Tensor, Tensor]:
    """Return the length of u and how far apart the swapped symbols stand, 0 in a palindrome: int64 `[B]` each."""
    half = (ids < task.symbols).sum(1) // 2
    position = torch.arange(task.longest).expand(len(ids), -1)
    mirrored = ids.gather(1, (2 * half[:, None] - 1 - position).clamp(min=0))
    wrong = ((ids[:, :task.longest] != mirrored) & (position < half[:, None])).long()
    last = task.longest - 1 - wrong.flip(1).argmax(1)
    return half, torch.where(wrong.any(1), last - wrong.argmax(1), 0)


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
    require_known("task", name, TASKS)
    return TASKS[name]
