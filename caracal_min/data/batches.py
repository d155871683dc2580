"""A corpus to train on, and its batches: a fixed endless order, or windows one after another."""

from __future__ import annotations  # PyTorch is imported when the first batch is cut

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..tokenizer import Tokenizer, make_tokenizer
from .shards import encode, id_type, is_shards, open_shards, sha256_of, tokenize
from .sources import ALL, HELD_OUT, RULE, documents, is_held_out

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Batches", "Corpus", "load_corpus", "sequential_windows", "tokens_of"]


@dataclass
class Corpus:
    """Tokens to train on and tokens to measure on, which share no document.

    `train` and `validation` are ids `[T]`, uint16 or uint32, in memory or memory-mapped.  `rule`
    says what was held out: `sources.RULE`, or None where the caller split the text.  A tokenizer
    may be given by its name.
    """

    source: str
    tokenizer: Tokenizer
    train: np.ndarray
    validation: np.ndarray
    rule: str | None = None

    def __post_init__(self):
        self.tokenizer = make_tokenizer(self.tokenizer)
        train = len(self.train)
        held_out = len(self.validation)
        # One document in 20 is held out, so a few documents may leave a split empty.
        if not train or not held_out:
            raise ValueError(f"{self.source} has {train} tokens to train on and {held_out} that "
                             "are held out, one document in 20; give more documents (in another "
                             "folder), or validation text")

    @classmethod
    def from_texts(
            cls, texts: Iterable[str], tokenizer: str | Path | Tokenizer = "byte", validation:
            Iterable[str] | None = None, source: str = "texts"
    ) -> Corpus:
        """Return the corpus of some documents.

        Args:
            texts: the documents; those that `sources.RULE` holds out are not trained on.
            tokenizer: as `make_tokenizer` takes it.
            validation: documents to measure on; None takes what is held out of `texts`.
            source: what records call the corpus.

        Raises:
            TypeError: one text, whose characters would be documents.
            ValueError: nothing to train on, or nothing that is held out.

        Example:
            >>> corpus = Corpus.from_texts([f"document {i}" for i in range(100)])
            >>> len(corpus.train), len(corpus.validation)
            (1166, 24)
        """
        if isinstance(texts, str) or isinstance(validation, str):
            raise TypeError("texts and validation are lists of texts, one for each document")
        encoder = make_tokenizer(tokenizer)
        encoded = encode(texts, encoder)
        train, held_out = _split(encoded, encoder)
        # All of a validation text is measured on, whatever the rule says of its documents.
        if validation is not None:
            encoded = encode(validation, encoder)
            held_out = np.concatenate([ids for _, ids in encoded])
        return cls(source, encoder, train, held_out, RULE)

    @property
    def vocab_size(self) -> int:
        """Number of ids of the tokenizer."""
        return self.tokenizer.vocab_size

    @property
    def digest(self) -> str:
        """SHA-256 over both splits, in hexadecimal: what a run that goes on compares."""
        return sha256_of(self.train, self.validation)


def load_corpus(
        source: str | Path = "embedded", tokenizer: str | Path | Tokenizer = "byte", max_tokens: int
        | None = None, progress: bool = True, validation: str | Path | None = None, shards: str |
        Path | None = None
) -> Corpus:
    """Read and tokenize a corpus, in which the end of text follows every document.

    Args:
        source: as `data.documents` takes it, or a folder of shards.
        tokenizer: as `make_tokenizer` takes it; shards must have been made with the same.
        max_tokens: tokens to train on: stop after the document that reaches them.  What is held
            out on the way comes on top.  None reads everything.
        progress: show a bar in a terminal or notebook.
        validation: another source, all of which is measured on, and of which the first has no
            document; None takes what `sources.RULE` holds out of the first.  Either way that is not
            trained on.
        shards: a folder into which the source is tokenized first (`tokenize`), to be read from
            there; None reads into memory.  Once it is complete, the source may be gone.

    Raises:
        FileNotFoundError, ImportError: as `data.documents`.
        ValueError: as `data.documents`; nothing to train on, or nothing that is held out; shards of
            another tokenizer, or incomplete ones.
    """
    source = str(source)
    encoder = make_tokenizer(tokenizer)
    # First, so that a path that is wrong is found before hours of streaming.
    measured = None
    if validation is not None:
        measured = tokens_of(validation, encoder, progress=progress)
    if shards is not None and not is_shards(source):
        tokenize(source, shards, encoder, max_tokens, progress)
        source = str(shards)
        max_tokens = None  # the budget has been spent while tokenizing
    if is_shards(source):
        train, held_out = open_shards(source, encoder)
        train = train[:max_tokens]  # a view, so nothing is read yet
    else:
        texts = documents(source)
        title = progress and f"reading {source}"
        encoded = encode(texts, encoder, max_tokens, title=title)
        train, held_out = _split(encoded, encoder)
    if measured is not None:
        held_out = measured
    return Corpus(source, encoder, train, held_out, RULE)


def tokens_of(
        source: str | Path, tokenizer: str | Path | Tokenizer, split: str = ALL, max_tokens: int |
        None = None, progress: bool = True
) -> np.ndarray:
    """Return the tokens of a split of a source, `[T]`, uint16 or uint32.

    Args:
        source, tokenizer, progress: as in `load_corpus`.
        split: "train", "held_out" or "all", by `sources.RULE`.
        max_tokens: stop after the document that reaches this many tokens of the split; all of
            shards come.

    Raises:
        ValueError: it has no tokens, and as `load_corpus`.
        FileNotFoundError, ImportError: as `load_corpus`.
    """
    encoder = make_tokenizer(tokenizer)
    if is_shards(source):
        train, held_out = open_shards(source, encoder)
        if split == ALL:
            return np.concatenate([train, held_out])
        return held_out if split == HELD_OUT else train
    texts = documents(source)
    title = progress and f"reading {source}"
    if split != ALL:
        # Twenty times less to encode, where only held-out documents are wanted.
        wanted = split == HELD_OUT
        texts = (text for text in texts if is_held_out(text) == wanted)
    encoded = encode(texts, encoder, max_tokens, ALL, title)
    parts = [ids for _, ids in encoded]
    # A small file may have no document that the rule holds out.
    if not parts:
        raise ValueError(f"{source} has no document of the split {split!r}; give more text")
    return np.concatenate(parts)


def _split(encoded: Iterable[tuple[bool, np.ndarray]], tokenizer: Tokenizer) -> list[np.ndarray]:
    """Return what is trained on and what is held out, each in the order of the documents."""
    # An empty part gives a split without documents its dtype.
    empty = np.empty(0, id_type(tokenizer))
    splits = [empty], [empty]
    for held_out, ids in encoded:
        splits[held_out].append(ids)
    return [np.concatenate(parts) for parts in splits]


@dataclass
class Batches:
    """Training batches in a fixed, shuffled, endless order: `batches[i]` depends on nothing but i.

    Each epoch cuts the tokens into windows of `context` + 1 at an offset of its own and permutes
    them; no window repeats within an epoch.  To resume, go on with the next i.

    Args:
        tokens: ids `[T]`.
        context: tokens of a sequence, L.
        batch_size: sequences of a batch of this process, B.
        seed: of the offsets and permutations.
        rank, world_size: of `world_size` processes that train together, process `rank` takes rows
            rank * batch_size and on of what one process would read with all their rows.

    `batches[i]` is a pair of int64 tensors `[B, L]`: inputs, and targets, the same shifted by one.

    The permutation takes 4 bytes a window: 10B tokens at context 512 are 19.5M windows, 78 MB.

    Raises:
        ValueError: the tokens are fewer than one batch.

    Example:
        >>> x, y = Batches(np.arange(100), context=4, batch_size=2)[0]
        >>> bool((y == x + 1).all())
        True
    """

    tokens: np.ndarray
    context: int
    batch_size: int
    seed: int = 0
    rank: int = 0
    world_size: int = 1

    def __post_init__(self):
        rows = self.batch_size * self.world_size
        # One window fewer than fit, so that every offset below `context` leaves room for all.
        self.windows = (len(self.tokens) - self.context) // self.context
        self.per_epoch = self.windows // rows
        if self.per_epoch < 1:
            raise ValueError(f"{len(self.tokens)} tokens are fewer than a batch of {rows} windows "
                             f"of {self.context}; give more text, or a smaller batch or context")
        self._epoch = -1  # no permutation has been drawn yet

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        epoch, position = divmod(i, self.per_epoch)
        if epoch != self._epoch:
            generator = np.random.default_rng([self.seed, epoch])
            self._epoch = epoch
            self._offset = int(generator.integers(self.context))
            # The smallest integers that count the windows: there may be millions.
            dtype = np.min_scalar_type(self.windows)
            self._order = np.arange(self.windows, dtype=dtype)
            generator.shuffle(self._order)
        # Each process takes its rows of the one batch that all of them read.
        first = (position * self.world_size + self.rank) * self.batch_size
        chosen = self._order[first:first + self.batch_size]
        # Widened before the product, which may exceed what counts the windows.
        starts = self._offset + self.context * chosen.astype(np.int64)
        ids = _windows(self.tokens, starts, self.context)
        return ids[:, :-1], ids[:, 1:]

    def epochs(self, n: int) -> float:
        """Return how many passes over the tokens n batches are."""
        return n / self.per_epoch


def sequential_windows(tokens: np.ndarray, context: int, limit: int | None = None) -> Tensor:
    """Cut tokens into windows one after another, for evaluation.

    Args:
        tokens: ids `[T]`.
        context: tokens of a window, L.
        limit: most windows to return, spread evenly over the text; None returns all.

    Returns:
        int64 `[W, L + 1]`: L inputs and, shifted by one, L targets; windows overlap by one token.

    Raises:
        ValueError: fewer than L + 1 tokens.
    """
    count = (len(tokens) - 1) // context
    if count < 1:
        raise ValueError(f"the text to validate on has {len(tokens)} tokens, fewer than a window "
                         f"of {context} + 1; give more of it, or a smaller context")
    chosen = np.arange(count)
    # Spread over the text, because neighbouring windows tell much the same.
    if limit is not None and limit < count:
        chosen = np.linspace(0, count - 1, limit).astype(int)
    return _windows(tokens, context * chosen, context)


def _windows(tokens: np.ndarray, starts: np.ndarray, context: int) -> Tensor:
    """Return the `context` + 1 tokens from each start on, int64 `[W, L + 1]`."""
    import torch

    # Slices of a memory-mapped array read from the disk only what is used.
    rows = [tokens[start:start + context + 1] for start in starts]
    ids = np.stack(rows)
    # PyTorch's embeddings and losses take int64.
    return torch.from_numpy(ids.astype(np.int64))
