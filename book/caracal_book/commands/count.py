"""The command `count`: what tables of tokens in a row, counted in a text, predict of another."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch

from caracal_min.commands import Command
from caracal_min.data.batches import sequential_windows
from caracal_min.data.corpus import require_readable
from caracal_min.data.tokenizers import make_tokenizer
from caracal_min.evaluation.measured import bits_per_byte, bytes_of_targets, text_to_count, text_to_measure
from caracal_min.evaluation.ngrams import ngram_losses
from caracal_min.record import require_new, require_recordable, write_record
from caracal_min.training.settings import require_kinds, require_range, require_text

__all__ = ["COMMAND", "CountConfig", "prepare_count", "run_count"]


@dataclass(frozen=True)
class CountConfig:
    """Count tokens in a row in a text, and measure how well the tables predict another: what a model has to beat.

    Raises:
        ValueError: a field out of range, in one line.
    """

    train: str = "embedded"
    """Text to count in, as in train: embedded, fineweb, a file, a folder of files, or one that tokenize wrote."""
    train_split: Literal["train", "all"] = "train"
    """The documents of it that train does not hold out, or all of them."""
    train_tokens: int = 20_000_000
    """Most tokens to count, the first ones."""
    data: str = "embedded"
    """Text to measure on."""
    split: Literal["held_out", "all"] = "held_out"
    """The documents of the data that train holds out wherever they stand, or all of them, for a text in which nothing
    was counted."""
    tokenizer: str = "byte"
    """What both are read as: byte, gpt2, gpt2:N, or the path of a tokenizer.json."""
    longest: int = 5
    """Tokens in a row of the longest table; each table takes some 20 bytes of memory for each token counted."""
    context: int = 512
    """Tokens per window, as in evaluate: at its beginning a table sees no more than a model does."""
    tokens: int = 262_144
    """Most tokens to measure on."""
    windows: int | None = None
    """Most windows of these tokens, spread evenly, as training measures; None: all."""
    out: Path | None = None
    """Record to write, a JSON file that is not there yet."""

    def __post_init__(self):
        require_kinds(self)
        require_text(self, ("train", "data", "tokenizer"))
        require_range(self, ("longest",), low=2)
        require_range(self, ("context", "tokens", "train_tokens", "windows"), low=1)
        if self.longest > self.context + 1:
            raise ValueError(f"longest={self.longest} with context={self.context}; a window has no more than "
                             f"{self.context + 1} tokens in a row, give at most that")


def prepare_count(config: CountConfig) -> CountConfig:
    """Return the configuration after a check that `out`, if given, can take a record.

    Raises:
        FileExistsError, ImportError, OSError: as `caracal_min.record.require_new` and `require_recordable`.
    """
    if config.out is not None:
        require_new(config.out)
        require_recordable(config.out)
    return config


def run_count(config: CountConfig) -> dict:
    """Print the losses of all tables, write a record to `config.out`, and return its results.

    Raises:
        ValueError, FileNotFoundError, ImportError: as `data.tokens_of` and `evaluation.ngrams.ngram_losses`; or what is
            held out cannot be known, or what is measured would be counted.
    """
    started = time.monotonic()
    tokenizer = make_tokenizer(config.tokenizer)
    require_readable(tokenizer, config.train, config.data)
    tokens, data = text_to_measure(config.data, tokenizer, config.split, config.tokens + 1)
    windows = sequential_windows(tokens, config.context, config.windows)
    counted, what = text_to_count(config.train, tokenizer, config.train_split, config.train_tokens)
    files = [{file["sha256"] for file in text["files"]} for text in (what, data)]
    same = config.train == config.data or files[0] & files[1]
    if same and (what["split"], data["split"]) != ("train", "held_out"):
        raise ValueError(f"{config.train} ({what['split']}) holds what is measured, {config.data} ({data['split']}); "
                         "take train and held_out, or measure on another text")
    losses = {name: float(loss) for name, loss in
              ngram_losses(counted, windows.numpy(), tokenizer.vocab_size, config.longest).items()}
    measured, length = windows[:, 1:].numel(), bytes_of_targets(windows, tokenizer)
    bits = {name: bits_per_byte(loss, measured, length) for name, loss in losses.items()}
    print(f"by counting {len(counted):,} tokens of {config.train}, in nats per token and in bits per byte on "
          f"{measured:,} tokens, {length:,} bytes, of {config.data}:")
    for name, loss in losses.items():
        print(f"{name:<10}{loss:>9.4f}{bits[name]:>9.4f}")
    results = {"counted": what, "losses": losses, "tokens": measured, "bytes": length, "bits_per_byte": bits}
    if config.out is not None:
        write_record(config.out, "count", asdict(config), results, data, time.monotonic() - started,
                     torch.device("cpu"))
        print(f"record = {config.out}")
    return results


COMMAND = Command(CountConfig, run_count, prepare_count)
