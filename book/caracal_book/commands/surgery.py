"""The command `surgery`: what the loss of a trained model owes to its components."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from caracal_min.data.batches import sequential_windows
from caracal_min.evaluation import bits_per_byte, bytes_of_targets
from caracal_min.precision import find_device

from ..experiments.ablated import loss_by_length, loss_by_octave, surgery
from ..measured import text_to_measure
from ..records import require_new, write_record
from ..rivals import load_model, weights_sha256

__all__ = ["SurgeryConfig", "run_surgery"]

_MULTIPLES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class SurgeryConfig:
    """Ablate a trained Caracal: the loss without each of its components, and its growth with the length."""

    model: str
    """Name of a model that comes with the package, or folder of a finished run or of a model."""
    data: str = "embedded"
    """Text to measure on, as in train: embedded, fineweb, a file, a folder of files, or one that tokenize wrote."""
    split: Literal["held_out", "all"] = "held_out"
    """The documents of the data that train holds out wherever they stand, or all of them, for a text that was never
    trained on."""
    context: int = 256
    """Tokens per window: the length of training."""
    windows: int = 128
    """Most windows, spread evenly over the text; and most windows of the longest length."""
    lags: tuple[int, ...] = (0, 1, 2, 4, 8, 16, 32, 64, 128)
    """Up to which the gate is kept."""
    batch_size: int = 16
    """Windows per forward pass."""
    out: Path | None = None
    """Record to write, a JSON file."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, ..."""


def run_surgery(config: SurgeryConfig) -> dict:
    """Print the losses under every ablation and by length, write a record to `config.out`, and return its results."""
    require_new(config.out)
    started, device = time.monotonic(), find_device(config.device)
    model = load_model(config.model).to(device)
    tokenizer = model.require_tokenizer()
    longest = _MULTIPLES[-1] * config.windows * config.context
    tokens, data = text_to_measure(config.data, tokenizer, config.split, longest + 1)
    windows = sequential_windows(tokens, config.context, config.windows)
    measured, length = windows[:, 1:].numel(), bytes_of_targets(windows, tokenizer)
    rows = [asdict(outcome) for outcome in surgery(model, windows, config.lags, batch_size=config.batch_size)]
    print(f"on {measured:,} tokens, in nats per token; the change in bits per byte:")
    for row in rows:
        row["change_in_bits_per_byte"] = bits_per_byte(row["change"], measured, length)
        print(f"{row['operation']:<28}{row['loss']:>9.4f}{row['change']:>+10.4f} ± {row['error']:.4f}"
              f"{row['change_in_bits_per_byte']:>+10.4f}")
    fitting = [m for m in _MULTIPLES if m * config.context < len(tokens)]
    few = max(1, config.windows // fitting[-1])
    at_once = config.batch_size * config.context
    lengths, octaves = {}, {}
    for name, cut in (("whole", False), ("gate cut at the context", True)):
        lengths[name] = loss_by_length(model, tokens, config.context, cut, fitting, few, at_once)
        octaves[name] = loss_by_octave(model, tokens, config.context, cut, fitting[-1] * config.context, few, at_once)
        for what, losses in (("length", lengths[name]), ("tokens seen", octaves[name])):
            print(f"{name}, by {what}: " + ", ".join(f"{length}: {loss:.4f}" for length, loss in losses.items()))
    results = {"model_sha256": weights_sha256(config.model), "model": asdict(model.config), "loss_by_length": lengths,
               "loss_by_octave": octaves, "rows": rows, "tokens": measured, "bytes": length}
    if config.out is not None:
        write_record(config.out, "surgery", asdict(config), results, data, time.monotonic() - started, device)
        print(f"record = {config.out}")
    return results
