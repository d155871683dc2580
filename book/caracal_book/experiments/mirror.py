"""Mirror, and texts of it that tell apart in which way a trained model answers.  `tasks` has the others."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Generator, Tensor

from .task import IGNORED, Batch, Task, require

__all__ = ["Mirror", "pieces_return"]


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
