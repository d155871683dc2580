"""The command `evaluate`: losses on held-out text, and the tasks of the paper's Table 2."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..choices import Precision
from ..data.split import ALL
from ..training.settings import require_kinds, require_range, require_text, require_unicode
from .command import Command, on_device_with_record, say

if TYPE_CHECKING:
    from ..language_model import LanguageModel

__all__ = ["COMMAND", "EvaluateConfig", "run_evaluate"]

_MULTIPLES = (1, 2, 4, 8, 16)
_SAMPLING = {"max_new_tokens": 64, "temperature": 0.8}


@dataclass(frozen=True)
class EvaluateConfig:
    """Measure a trained model: loss on text, by position and by context length, and the tasks of the paper's Table 2.

    Raises:
        ValueError: a field out of range, in one line.
    """

    model: str
    """Name of a model that comes with the package, folder of a run or of a model, which train writes, or "owner/name"
    on the hub; of a run that has not ended, the last checkpoint is taken.  It may stand first, without --model."""
    data: str = "embedded"
    """Text to measure losses on, as in train: embedded, fineweb, a file, a folder of files, or one that tokenize
    wrote."""
    split: Literal["held_out", "all"] = "held_out"
    """The documents of the data that train holds out wherever they stand, one in 20 by a hash of the text; or all of
    them, for a text that was never trained on."""
    context: int = 512
    """Tokens per window; losses are measured at multiples of it up to 16, as far as the text reaches."""
    reset_documents: bool = False
    """Read each document of a window as if it stood alone, as train does with the same option."""
    tokens: int = 262_144
    """Most tokens to measure losses on."""
    ngrams: str | None = None
    """Text that the model was trained on: unigrams and bigrams are counted in what is not held out of it, and measured
    beside the model; 100 bytes of memory a token.  The command count has longer tables."""
    tasks: tuple[str, ...] = ()
    """Names of tasks, or all; none if left out: lambada_openai, hellaswag, arc_easy, arc_challenge, winogrande, boolq,
    piqa, social_iqa."""
    task_data: Path | None = None
    """Folder with a file for each task, such as piqa.jsonl, whose names and columns python -m pydoc
    caracal_min.evaluation.tasks lists; left out, they come from the hub."""
    prompts: tuple[str, ...] = ()
    """Texts that a Caracal continues by up to 64 tokens, drawn at temperature 0.8 with the seeds 0, 1, 2, ..."""
    limit: int | None = None
    """Items per task, the first ones, for a trial."""
    batch_size: int = 16
    """Sequences per forward pass; on tasks, the logits of all their tokens are held at once."""
    max_length: int = 2048
    """Most tokens of a task that the model sees at once, and no more than it was trained on."""
    out: Path | None = None
    """Record to write, a JSON file that is not there yet."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, ..."""
    precision: Precision = "auto"
    """Of the matrix products: auto (the fastest that the device has units for), bfloat16, float16 or float32."""
    tokenizer: str | None = None
    """byte, gpt2, gpt2:N, or the path of a tokenizer.json; left out: the one that lies beside the model."""
    gate_length: int | None = None
    """Cuts the gate of a Caracal after so many tokens, also of one trained without; left out: as it was trained."""

    def __post_init__(self):
        require_kinds(self)
        require_text(self, ("model", "data", "ngrams", "tokenizer"))
        require_range(self, ("context", "tokens", "batch_size", "max_length", "limit", "gate_length"), low=1)
        require_unicode(self, ("prompts",))
        if self.ngrams == self.data and self.split == "all":
            raise ValueError(f"ngrams={self.ngrams} is what is measured; count another text, or measure its held_out")
        if "" in self.prompts:
            raise ValueError("one of the prompts is empty; give at least one character")


def run_evaluate(config: EvaluateConfig) -> dict:
    """Print the losses and the table, write a record of them to `config.out`, and return its results.

    All that is to be read is looked at before the first loss is measured, and the tasks are read.

    Raises:
        ValueError, FileNotFoundError, ImportError: as `training.trained.load_trained`, `data.tokens_of` and
            `evaluation.tasks.load_tasks`; or what is held out cannot be known, of the data or of the model.
        FileExistsError: `config.out` is there already.
    """
    from ..data.corpus import require_readable
    from ..data.tokenizers import make_tokenizer
    from ..evaluation.measured import rule_of_training
    from ..precision import autocast, find_device, resolve_precision
    from ..record import require_new, write_record
    from ..training.trained import load_trained

    if config.out is not None:
        require_new(config.out)
    sources = [*filter(None, (config.data, config.ngrams))]
    device, started = find_device(config.device), time.monotonic()
    trained = load_trained(config.model, config.gate_length)
    say(trained.note)
    model, weights = trained.model.to(device), trained.sha256
    if config.tokenizer is not None:
        model.tokenizer = make_tokenizer(config.tokenizer)
    require_readable(model.require_tokenizer(), *sources)
    if config.prompts and not hasattr(model, "generate_text"):
        raise ValueError(f"{config.model} is a {type(model).__name__}; only caracal continues prompts")
    tasks = _tasks(config)
    rule = None if config.split == ALL else rule_of_training(config.model, trained.run, weights)
    results = {"parameters": model.num_parameters(), "model_sha256": weights}
    if trained.step is not None:
        results["checkpoint_step"] = trained.step
    print(f"{config.model}: {results['parameters']:,} parameters")
    dtype = resolve_precision(config.precision, device)
    results["precision"] = str(dtype).removeprefix("torch.")
    with autocast(device, dtype):
        results |= _losses(model, config)
    if config.split != ALL:
        results["text"]["model_rule"] = rule
    if config.prompts:
        results |= {"sampling": _SAMPLING, "samples": [
            {"prompt": prompt, "seed": seed, "text": model.generate_text(prompt, seed=seed, **_SAMPLING)}
            for seed, prompt in enumerate(config.prompts)]}
        print(*(sample["text"] for sample in results["samples"]), sep="\n\n")
    if tasks:
        from ..evaluation.tasks import evaluate_loaded, format_table

        results["table2"] = evaluate_loaded(model, tasks, config.task_data, config.limit, config.batch_size,
                                            config.max_length, str(device), config.precision)
        print(format_table(results["table2"]))
    if config.out is not None:
        write_record(config.out, "evaluate", asdict(config), {k: v for k, v in results.items() if k != "text"},
                     results["text"], time.monotonic() - started, device)
        print(f"record = {config.out}")
    return results


def _tasks(config: EvaluateConfig) -> dict:
    """Return the tasks by name, read from their files or from the hub."""
    if not config.tasks:
        return {}
    from ..evaluation.tasks import TASKS, load_tasks

    return load_tasks(tuple(TASKS) if config.tasks == ("all",) else config.tasks, config.task_data, config.limit)


def _losses(model: "LanguageModel", config: EvaluateConfig) -> dict:
    """Measure and print the losses, in nats per token."""
    import torch

    from ..data.batches import sequential_windows
    from ..evaluation.losses import loss_by_context_length, token_losses
    from ..evaluation.measured import (
        bits_per_byte,
        bytes_of_targets,
        gives_texts_back,
        text_to_count,
        text_to_measure,
    )
    from ..evaluation.ngrams import ngram_losses

    tokenizer = model.require_tokenizer()
    tokens, text = text_to_measure(config.data, tokenizer, config.split, config.tokens + 1)
    windows = sequential_windows(tokens, config.context)
    end_of_text = tokenizer.end_of_text if config.reset_documents else None
    losses = token_losses(model, windows, config.batch_size, "loss", end_of_text)
    by_position = losses.mean(0, dtype=torch.float64)
    learned = getattr(model.config, "positional_encoding", None) == "learned"
    longest = min(len(tokens) - 1, model.config.max_positions if learned else len(tokens))
    fitting = [m for m in _MULTIPLES if m * config.context <= longest]
    by_length = loss_by_context_length(model, tokens, config.context, fitting,
                                       batch_tokens=config.batch_size * config.context, progress=True,
                                       end_of_text=end_of_text)
    loss = losses.mean(dtype=torch.float64).item()
    length = bytes_of_targets(windows, tokenizer) if gives_texts_back(tokenizer) else None
    bits = None if length is None else bits_per_byte(loss, losses.numel(), length)
    measured = {"text": text, "loss": loss, "bits_per_byte": bits, "tokens": losses.numel(), "bytes": length,
                "loss_by_position": by_position.tolist(), "loss_by_context_length": by_length}
    print(f"loss = {loss:.4f} nats per token ({tokenizer.name}) on {losses.numel():,} tokens of {config.data}, "
          f"{config.split.replace('_', ' ')}")
    print(f"bits per byte = {bits:.4f}" if bits is not None else
          f"bits per byte: not known, since {tokenizer.name} does not give a text back as it was")
    starts = [0, *(2 ** i for i in range(config.context.bit_length()) if 2 ** i < config.context)]
    print("loss by tokens seen: " + ", ".join(
        f"{a + 1}-{b}: {by_position[a:b].mean():.3f}" for a, b in zip(starts, [*starts[1:], config.context],
                                                                       strict=True)))
    print("loss by context length: " + ", ".join(f"{n}: {loss:.4f}" for n, loss in by_length.items()))
    if config.ngrams is not None:
        counted, what = text_to_count(config.ngrams, tokenizer)
        found = ngram_losses(counted, windows.numpy(), tokenizer.vocab_size)
        measured["ngrams"] = what | found
        print(f"by counting {len(counted):,} tokens of {config.ngrams}: unigram {found['unigram']:.4f}, "
              f"bigram {found['bigram']:.4f}")
    if len(fitting) < len(_MULTIPLES):
        why = f"{len(tokens):,} tokens of text" if longest == len(tokens) - 1 else "the learned positions"
        print(f"  {why} do not reach {_MULTIPLES[len(fitting)] * config.context:,}")
    return measured


COMMAND = Command(EvaluateConfig, run_evaluate, on_device_with_record, first="model")
