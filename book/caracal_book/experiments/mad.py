"""Three tasks of MAD, "mechanistic architecture design": selective copying, compression, memorising.

Source: Poli et al. 2024, "Mechanistic Design and Scaling of Hybrid Architectures".  It trains on a fixed set of texts;
here every batch is drawn anew.
"""

from dataclasses import dataclass

import torch
from torch import Generator

from .task import IGNORED, Batch, Task, distinct, require

__all__ = ["Compression", "Memorise", "SelectiveCopy"]


@dataclass(frozen=True)
class SelectiveCopy(Task):
    """Symbols at random places among blanks, a signal, then blanks: the targets of these are the symbols, in order.

    Args:
        symbols: ids 0 to symbols - 1; then the blank and the signal.
        copied: symbols of a text.
        tokens: length of the text.

    Source: MAD (Poli et al. 2024): 14 symbols, 16 of them copied, 256 tokens; there no blank follows the last symbol.
    """

    symbols: int = 14
    copied: int = 16
    tokens: int = 256

    def __post_init__(self):
        require(self.symbols >= 2 and self.copied >= 1 and self.tokens > 2 * self.copied,
                f"symbols={self.symbols}, copied={self.copied}, tokens={self.tokens}; give at least 2 symbols and "
                "tokens > 2 copied")

    vocab_size = property(lambda self: self.symbols + 2)
    length = property(lambda self: self.tokens)
    chance = property(lambda self: 1 / self.symbols)

    def draw(self, batch: int, generator: Generator) -> Batch:
        """Return `batch` fresh texts and their targets."""
        ids = torch.full((batch, self.tokens), self.symbols)
        targets = torch.full_like(ids, IGNORED)
        targets[:, -self.copied:] = torch.randint(self.symbols, (batch, self.copied), generator=generator)
        room = self.tokens - self.copied - 1
        ids = ids.scatter(1, distinct(batch, room, self.copied, generator).sort(1).values, targets[:, -self.copied:])
        ids[:, room] = self.symbols + 1
        return Batch(ids, targets)


@dataclass(frozen=True)
class Compression(Task):
    """Random symbols and a signal; from the state of the signal, and a place, the symbol at that place is to be read.

    Args:
        symbols: ids 0 to symbols - 1; then the signal.
        tokens: length of the text.

    Source: MAD (Poli et al. 2024): 15 symbols, 32 tokens, an MLP of two layers that reads.
    """

    from_last = True
    symbols: int = 15
    tokens: int = 32

    def __post_init__(self):
        require(self.symbols >= 2 and self.tokens >= 2, f"symbols={self.symbols}, tokens={self.tokens}; "
                "give at least 2 of each")

    vocab_size = property(lambda self: self.symbols + 1)
    length = property(lambda self: self.tokens)
    chance = property(lambda self: 1 / self.symbols)

    def draw(self, batch: int, generator: Generator) -> Batch:
        """Return `batch` fresh texts and their targets."""
        ids = torch.randint(self.symbols, (batch, self.tokens), generator=generator)
        ids[:, -1] = self.symbols
        return Batch(ids, ids.where(ids < self.symbols, IGNORED))


@dataclass(frozen=True)
class Memorise(Task):
    """Keys, each followed by a blank, at which the target is the value of the key: the same in all texts.

    Args:
        keys: ids 0 to keys - 1; then as many values, and the blank.
        tokens: length of the text.

    Source: MAD (Poli et al. 2024): 127 keys, 32 tokens.
    """

    keys: int = 127
    tokens: int = 32

    def __post_init__(self):
        require(self.keys >= 2 and self.tokens >= 2 and self.tokens % 2 == 0,
                f"keys={self.keys}, tokens={self.tokens}; give at least 2 of each, and an even number of tokens")

    vocab_size = property(lambda self: 2 * self.keys + 1)
    length = property(lambda self: self.tokens)
    chance = property(lambda self: 1 / self.keys)

    def draw(self, batch: int, generator: Generator) -> Batch:
        """Return `batch` fresh texts and their targets."""
        table = self.keys + torch.randperm(self.keys, generator=Generator().manual_seed(0))
        keys = torch.randint(self.keys, (batch, self.tokens // 2), generator=generator)
        blank, ignored = torch.full_like(keys, 2 * self.keys), torch.full_like(keys, IGNORED)
        return Batch(torch.stack([keys, blank], dim=-1).flatten(1),
                     torch.stack([ignored, table[keys]], dim=-1).flatten(1))
