"""The command `count`: what tables of tokens in a row, counted in a text, predict of another."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch

from caracal_min.data.batches import sequential_windows
from caracal_min.evaluation import bits_per_byte, bytes_of_targets
from caracal_min.tokenizer import make_tokenizer

from ..measured import text_to_count, text_to_measure
from ..ngrams import ngram_losses
from ..records import require_new, write_record

__all__ = ["CountConfig", "run_count"]


@dataclass(frozen=True)
class CountConfig:
    """Count tokens in a row in a text, and measure how well the tables predict another: what a model has to beat."""

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


def run_count(config: CountConfig) -> dict:
    """Print the losses of all tables, write a record to `config.out`, and return its results.

    Raises:
        ValueError: what is measured would be counted, too.
    """
    require_new(config.out)
    started, tokenizer = time.monotonic(), make_tokenizer(config.tokenizer)
    # A text of which a part is counted may be measured on the other part alone.
    same = Path(config.train).resolve() == Path(config.data).resolve()
    if same and (config.train_split, config.split) != ("train", "held_out"):
        raise ValueError(f"{config.train} ({config.train_split}) holds what is measured, {config.data} "
                         f"({config.split}); take train and held_out, or measure on another text")
    tokens, data = text_to_measure(config.data, tokenizer, config.split, config.tokens + 1)
    windows = sequential_windows(tokens, config.context, config.windows)
    counted, what = text_to_count(config.train, tokenizer, config.train_split, config.train_tokens)
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
