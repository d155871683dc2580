"""Synthetic tasks that tell mixers apart.  Every batch is drawn anew: nothing can be learned by heart but the rule.

A task has `vocab_size` ids, texts of `length` tokens, `chance`, which is the accuracy of a guess among the answers that
stay open to somebody who cannot do what is asked, and `draw`.  Targets are -100 where nothing is asked.

    Recall         pairs of key and value, then keys: what was the value?          look-up by content
    Mirror         is the second half the first one backwards?                     pairs by the sum of positions
    Induction      what followed the marker, the last time?                        look-up, one step on
    SelectiveCopy  write down, in order, what stood between blanks                 order without distance
    Compression    write down the whole text from its last state alone             how much a state holds
    Memorise       a fixed table of keys and values                                what the weights hold

`TASKS` has them by name, at sizes that two cores train on in minutes.  The last three stand in `mad`.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Generator, Tensor

from .mad import Compression, Memorise, SelectiveCopy
from .task import IGNORED, Batch, Task, distinct, require

__all__ = ["TASKS", "Induction", "Mirror", "Recall", "make_task", "pieces_return"]


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
class Mirror(Task):
    """Is the text a palindrome?  u, then w, then a question mark, at which the target is yes or no; then padding.

    w is u backwards.  In half of the texts two symbols of w, an even distance apart, are swapped.  So both kinds have
    the same symbols, in pairs, and the same ones at even places and at odd places.

    That matters: a static kernel adds up h_k e(x), e the vector of the symbol at lag k.  Where the kernel is
    antisymmetric about the middle, a palindrome gives 0, so one kernel solves one length.  For all lengths at once it
    must be (-1)^k, and with that the swap gives 0 too.  With one wrong symbol in place of the swap it does not.

    Args:
        symbols: ids 0 to symbols - 1; then no, yes, the question mark, the padding and the mark of `before`.
        shortest, longest: half-lengths, drawn evenly.
        wrong: "swap", or "symbol": one symbol of w is replaced, which a static kernel finds.
        before: 0: u begins at place 0.  Otherwise 0 to `before` random symbols stand in front, and then a mark.
        wait: tokens of padding between w and the question mark.
    """

    symbols: int = 8
    shortest: int = 4
    longest: int = 16
    wrong: str = "swap"
    before: int = 0
    wait: int = 0

    def __post_init__(self):
        require(self.symbols >= 2 and 3 <= self.shortest <= self.longest,
                f"symbols={self.symbols}, half-lengths {self.shortest} to {self.longest}; give at least 2 symbols, "
                "and 3 <= shortest <= longest")
        require(self.wrong in ("swap", "symbol"), f"wrong={self.wrong!r}; accepted: swap, symbol")
        require(self.before >= 0 and self.wait >= 0, f"before={self.before}, wait={self.wait}; give numbers >= 0")

    vocab_size = property(lambda self: self.symbols + 4 + (self.before > 0))
    length = property(lambda self: 2 * self.longest + 1 + self.wait + (self.before + 1 if self.before else 0))
    chance = property(lambda self: 0.5)

    def draw(self, batch: int, generator: Generator) -> Batch:
        """Return `batch` fresh texts and their targets."""
        half = torch.randint(self.shortest, self.longest + 1, (batch, 1), generator=generator)
        u = torch.randint(self.symbols, (batch, self.longest), generator=generator)
        # Two places of u of one parity, with different symbols: in right texts too, so that nothing else differs.
        i = torch.randint(1 << 30, (batch, 1), generator=generator) % (half - 2)
        j = i + 2 * (1 + torch.randint(1 << 30, (batch, 1), generator=generator) % ((half - 1 - i) // 2))
        other = 1 + torch.randint(self.symbols - 1, (batch, 1), generator=generator)
        u = u.scatter(1, j, (u.gather(1, i) + other) % self.symbols)
        right = torch.randint(2, (batch, 1), generator=generator).bool()
        if self.wrong == "swap":
            spoiled = u.scatter(1, i, u.gather(1, j)).scatter(1, j, u.gather(1, i))
        else:
            spoiled = u.scatter(1, i, (u.gather(1, i) + other) % self.symbols)
        place = torch.arange(2 * self.longest + 1 + self.wait).expand(batch, -1)
        asked = place == 2 * half + self.wait
        ids = torch.where(place < half, u.gather(1, place.clamp(max=self.longest - 1)),
                          torch.where(right, u, spoiled).gather(1, (2 * half - 1 - place).clamp(0, self.longest - 1)))
        ids = torch.where(place < 2 * half, ids, torch.where(asked, self.symbols + 2, self.symbols + 3))
        texts = Batch(ids, torch.where(asked, self.symbols + right.long(), IGNORED))
        return self._moved(texts, generator) if self.before else texts

    def probes(self) -> dict[str, Batch]:
        """Return palindromes, and wrong texts by the pieces that return: 256 of each kind, or as many as turn up.

        A piece of k symbols returns if it stands somewhere in u w backwards.  In a palindrome all pieces do.  In the
        wrong texts of "pieces of 1" they do only if they are single symbols, in those of "pieces of 2" pairs return as
        well, and in those of "pieces of 3" triples, too: who looks pieces up takes these for palindromes.

        Empty where other symbols stand before the mark, or a symbol is replaced in place of a swap.
        """
        return {} if self.before or self.wrong != "swap" else _probes(self)

    def _moved(self, texts: Batch, generator: Generator) -> Batch:
        """Return texts, shorter by `before + 1`, behind 0 to `before` random symbols and the mark: `[batch, L]`."""
        batch, length = texts.ids.shape
        mark = torch.randint(self.before + 1, (batch, 1), generator=generator)
        other = torch.randint(self.symbols, (batch, self.length), generator=generator)
        place = torch.arange(self.length) - mark - 1  # in the text without them
        ids = texts.ids.gather(1, place.clamp(0, length - 1))
        ids = torch.where(place < length, ids, self.symbols + 3)
        ids = torch.where(place > -1, ids, torch.where(place == -1, self.symbols + 4, other))
        targets = texts.targets.gather(1, place.clamp(0, length - 1))
        return Batch(ids, torch.where((place > -1) & (place < length), targets, IGNORED))


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
    generator, kinds = Generator().manual_seed(0), {}
    for _ in range(draws):
        batch = task.draw(4096, generator)
        right = (batch.targets == task.symbols + 1).any(1)
        pairs, triples = (pieces_return(batch.ids, task.symbols, size) for size in (2, 3))
        for name, of_kind in (("palindromes", right), ("pieces of 1", ~right & ~pairs),
                              ("pieces of 2", ~right & pairs & ~triples), ("pieces of 3", ~right & triples)):
            kinds.setdefault(name, []).append(Batch(batch.ids[of_kind], batch.targets[of_kind]))
        if min(sum(len(part.ids) for part in parts) for parts in kinds.values()) >= texts:
            break
    found = {name: Batch(*(torch.cat(part)[:texts] for part in zip(*parts, strict=True)))
             for name, parts in kinds.items()}
    return {name: batch for name, batch in found.items() if len(batch.ids)}


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
