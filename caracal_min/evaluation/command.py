"""The command `evaluate`: losses on held-out text, and the tasks of the paper's Table 2."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from huggingface_hub import hf_hub_download

from ..data.batches import sequential_windows
from ..data.corpus import require_rule, tokens_of
from ..data.split import ALL, TRAIN
from ..data.tokenizers import Tokenizer, tokenizer_for
from ..data.write_shards import fingerprint
from ..files import file_sha256
from ..language_model import LanguageModel
from ..precision import Precision, autocast, resolve_precision
from ..recorded.record import require_new, write_record
from ..zoo.registry import load_model
from .losses import loss_by_context_length, token_losses
from .measured import rule_of_training, sha256_of_tokens, text_to_measure
from .ngrams import ngram_losses
from .table2 import format_table

__all__ = ["EvaluateConfig", "run_evaluate"]

_MULTIPLES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class EvaluateConfig:
    """Measure a trained model: loss on text, by position and by context length, and the tasks of the paper's Table 2.

    Raises:
        ValueError: a field out of range, in one line.
    """

    model: str
    """Folder that `train` wrote (its `model` subfolder), or "owner/name" on the hub."""
    data: str = "embedded"
    """Text to measure losses on: as in `train`: embedded, fineweb, a file or a folder of files, or token shards.  A
    document, or a line of JSON with one, has at most 16 MiB."""
    split: Literal["held_out", "all"] = "held_out"
    """The documents of `data` that `train` holds out wherever they stand, one in 20 by a hash of the text; or all of
    them, for a text that was never trained on."""
    context: int = 512
    """Tokens per window; losses are measured at multiples of it up to 16, as far as the text reaches."""
    tokens: int = 262_144
    """Most tokens to measure losses on."""
    ngrams: str | None = None
    """Text that the model was trained on, or token shards of it: unigram and bigram models are counted on what is not
    held out of it, and measured beside the model; 24 bytes of memory a token."""
    tasks: tuple[str, ...] = ()
    """Names of tasks, or all; none if left out."""
    task_data: Path | None = None
    """Folder with local copies of the tasks (see caracal_min.evaluation.tasks); left out, they come from the hub."""
    limit: int | None = None
    """Items per task, the first ones, for a trial."""
    batch_size: int = 16
    """Sequences per forward pass."""
    max_length: int = 2048
    """Most tokens of a task that the model sees at once."""
    out: Path | None = None
    """Record to write, a JSON file that is not there yet."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, ..."""
    precision: Precision = "auto"
    """Of the matrix products: auto (the fastest that the device has units for), bfloat16, float16 or float32."""
    gate_length: int | None = None
    """Cuts the gate of a Caracal after so many tokens, also of one trained without; left out: as it was trained."""

    def __post_init__(self):
        for name in ("context", "tokens", "batch_size", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; give a number >= 1")
        for name in ("limit", "gate_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}; give a number >= 1, or leave it out")
        resolve_precision(self.precision, "cpu")


def run_evaluate(config: EvaluateConfig) -> dict:
    """Print the losses and the table, write a record of them to `config.out`, and return its results.

    Raises:
        ValueError, FileNotFoundError, ImportError: as `zoo.load_model`, `data.tokens_of` and
            `tasks.evaluate_tasks`; or what is held out cannot be known, of the data or of the model.
        FileExistsError: `config.out` is there already.
    """
    if config.out is not None:
        require_new(config.out)
    if config.split != ALL:
        for source in filter(None, (config.data, config.ngrams)):
            require_rule(source)
    device = ("cuda" if torch.cuda.is_available() else "cpu") if config.device == "auto" else config.device
    tasks = _tasks(config) if config.tasks else ()
    model, weights = load_model(config.model, config.gate_length).to(device).eval(), _weights(config.model)
    rule = None if config.split == ALL else rule_of_training(config.model, weights)
    results, started = {"parameters": model.num_parameters(), "model_sha256": weights}, time.monotonic()
    print(f"{config.model}: {results['parameters']:,} parameters")
    dtype = resolve_precision(config.precision, device)
    results["precision"] = str(dtype).removeprefix("torch.")
    with autocast(device, dtype):
        results |= _losses(model, config)
    if config.split != ALL:
        results["text"]["model_rule"] = rule
    if tasks:
        from .tasks import evaluate_tasks

        results["table2"] = evaluate_tasks(model, tasks, config.task_data, config.limit, config.batch_size,
                                           config.max_length, device, config.precision)
        print(format_table(results["table2"]))
    if config.out is not None:
        write_record(config.out, "evaluate", asdict(config), {k: v for k, v in results.items() if k != "text"},
                     results["text"], time.monotonic() - started, torch.device(device))
        print(f"record = {config.out}")
    return results


def _weights(folder_or_repo: str) -> str:
    """Return the hash of the weights, the one that the record of their training run has."""
    local = Path(folder_or_repo) / "model.safetensors"
    return file_sha256(local if local.is_file() else Path(hf_hub_download(folder_or_repo, local.name)))


def _tasks(config: EvaluateConfig) -> tuple[str, ...]:
    """Return the names of the tasks, after a check of names and files, before anything slow is done."""
    from .tasks import TASKS, require_tasks

    names = tuple(TASKS) if config.tasks == ("all",) else config.tasks
    require_tasks(names, config.task_data)
    return names


def _losses(model: LanguageModel, config: EvaluateConfig) -> dict:
    """Measure and print the losses, in nats per token."""
    tokenizer = tokenizer_for(model.config.vocab_size)
    tokens, text = text_to_measure(config.data, tokenizer, config.split, config.tokens + 1)
    windows = sequential_windows(tokens, config.context)
    losses = token_losses(model, windows, config.batch_size, "loss")
    by_position = losses.mean(0, dtype=torch.float64)
    learned = getattr(model.config, "positional_encoding", None) == "learned"
    longest = min(len(tokens) - 1, model.config.max_positions if learned else len(tokens))
    fitting = [m for m in _MULTIPLES if m * config.context <= longest]
    by_length = loss_by_context_length(model, tokens, config.context, fitting,
                                       batch_tokens=config.batch_size * config.context, progress=True)
    measured = {"text": text,
                "loss": losses.mean(dtype=torch.float64).item(), "loss_by_position": by_position.tolist(),
                "loss_by_context_length": by_length}
    print(f"loss = {measured['loss']:.4f} nats per token ({tokenizer.name}) on {losses.numel():,} tokens of "
          f"{config.data}, {config.split.replace('_', ' ')}")
    starts = [0, *(2 ** i for i in range(config.context.bit_length()) if 2 ** i < config.context)]
    print("loss by tokens seen: " + ", ".join(
        f"{a + 1}-{b}: {by_position[a:b].mean():.3f}" for a, b in zip(starts, [*starts[1:], config.context],
                                                                       strict=True)))
    print("loss by context length: " + ", ".join(f"{n}: {loss:.4f}" for n, loss in by_length.items()))
    if config.ngrams is not None:
        counted, what = _counted(config.ngrams, tokenizer)
        found = ngram_losses(counted, windows.numpy(), tokenizer.vocab_size)
        measured["ngrams"] = what | found
        print(f"by counting {len(counted):,} tokens of {config.ngrams}: unigram {found['unigram']:.4f}, "
              f"bigram {found['bigram']:.4f}")
    if len(fitting) < len(_MULTIPLES):
        why = f"{len(tokens):,} tokens of text" if longest == len(tokens) - 1 else "the learned positions"
        print(f"  {why} do not reach {_MULTIPLES[len(fitting)] * config.context:,}")
    return measured


def _counted(source: str, tokenizer: Tokenizer) -> tuple[np.ndarray, dict]:
    """Return the tokens of a text that may have been trained on, all if nobody marked them, and a record's words."""
    files, part = fingerprint(source), TRAIN
    try:
        require_rule(source)
    except ValueError:
        part = ALL
    tokens = tokens_of(source, tokenizer.name, part)[:]
    return tokens, {"source": source, "files": files, "split": part, "tokens": len(tokens),
                    "sha256": sha256_of_tokens(tokens)}
