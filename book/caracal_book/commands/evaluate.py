"""The command `evaluate`: the losses of a trained model on a text, as a record.

`python -m caracal_min evaluate` measures the same and prints it.
"""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch

from caracal_min.data import make_tokenizer, sequential_windows
from caracal_min.evaluation import bits_per_byte, bytes_of_targets, loss_by_context_length, token_losses
from caracal_min.precision import autocast, find_device, resolve_precision

from ..measured import text_to_measure
from ..records import require_new, write_record
from ..rivals import load_model, weights_sha256

__all__ = ["EvaluateConfig", "run_evaluate"]

_MULTIPLES = (1, 2, 4, 8, 16)
_SAMPLING = {"max_new_tokens": 64, "temperature": 0.8}


@dataclass(frozen=True)
class EvaluateConfig:
    """Measure a trained model: loss on a text, by position and by context length, and samples."""

    model: str
    """Name of a model that comes with the package, or folder of a finished run or of a model."""
    data: str = "embedded"
    """Text to measure on, as in train: embedded, fineweb, a file, a folder of files, or one that tokenize wrote."""
    split: Literal["held_out", "all"] = "held_out"
    """The documents of the data that train holds out wherever they stand, or all of them, for a text that was never
    trained on."""
    context: int = 512
    """Tokens per window; losses are measured at multiples of it up to 16, as far as the text reaches."""
    tokens: int = 262_144
    """Most tokens to measure losses on."""
    prompts: tuple[str, ...] = ()
    """Texts that a Caracal continues by up to 64 tokens, drawn at temperature 0.8 with the seeds 0, 1, 2, ..."""
    batch_size: int = 16
    """Windows per forward pass."""
    out: Path | None = None
    """Record to write, a JSON file."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, ..."""
    precision: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Of the matrix products; auto: the fastest that the device has units for."""
    tokenizer: str | None = None
    """byte, gpt2, gpt2:N, or the path of a tokenizer.json; left out: the one that lies beside the model."""
    gate_length: int | None = None
    """Cuts the gate after so many tokens; left out: as it was trained."""


def run_evaluate(config: EvaluateConfig) -> dict:
    """Print the losses, write a record of them to `config.out`, and return its results."""
    require_new(config.out)
    started, device = time.monotonic(), find_device(config.device)
    model = load_model(config.model, config.gate_length).to(device)
    if config.tokenizer is not None:
        model.tokenizer = make_tokenizer(config.tokenizer)
    tokenizer, dtype = model.require_tokenizer(), resolve_precision(config.precision, device)
    tokens, data = text_to_measure(config.data, tokenizer, config.split, config.tokens + 1)
    windows = sequential_windows(tokens, config.context)
    fitting = [m for m in _MULTIPLES if m * config.context < len(tokens)]
    with autocast(device, dtype):
        losses = token_losses(model, windows, config.batch_size, "loss")
        by_length = loss_by_context_length(model, tokens, config.context, fitting, progress=True,
                                           batch_tokens=config.batch_size * config.context)
        samples = [{"prompt": prompt, "seed": seed, "text": model.generate_text(prompt, seed=seed, **_SAMPLING)}
                   for seed, prompt in enumerate(config.prompts)]
    loss, length = losses.mean(dtype=torch.float64).item(), bytes_of_targets(windows, tokenizer)
    results = {"parameters": model.num_parameters(), "model_sha256": weights_sha256(config.model),
               "precision": str(dtype).removeprefix("torch."), "loss": loss,
               "bits_per_byte": bits_per_byte(loss, losses.numel(), length), "tokens": losses.numel(), "bytes": length,
               "loss_by_position": losses.mean(0, dtype=torch.float64).tolist(), "loss_by_context_length": by_length}
    if samples:
        results |= {"sampling": _SAMPLING, "samples": samples}
    print(f"loss = {loss:.4f} nats per token, {results['bits_per_byte']:.4f} bits per byte")
    print("by context length: " + ", ".join(f"{n}: {value:.4f}" for n, value in by_length.items()))
    print(*(sample["text"] for sample in samples), sep="\n\n")
    if config.out is not None:
        write_record(config.out, "evaluate", asdict(config), results, data, time.monotonic() - started, device)
    return results
