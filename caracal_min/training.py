"""The training loop: AdamW, warm-up and cosine, clipping, accumulation, and a run that survives a kill.

A run is a `TrainConfig`.  With `out` set it lives in a folder:

    checkpoint.safetensors   weights, optimiser state, random state, step (see `checkpoint`)
    log.jsonl                one line per step: step, tokens, loss, learning_rate, grad_norm, ...
    model/                   config.json and model.safetensors, written at the end

Starting the same configuration again continues from the checkpoint and follows the same curve.

Read next: `evaluation`.
"""

import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from tqdm import tqdm

from .checkpoint import load_checkpoint, save_checkpoint
from .config import PRESETS
from .corpus import Corpus, load_corpus
from .data import Batches
from .evaluation import held_out_loss
from .model import Caracal

__all__ = ["DivergedError", "TrainConfig", "Trainer", "learning_rate"]


class DivergedError(RuntimeError):
    """The loss or the gradient is not finite; the last good checkpoint is untouched."""


@dataclass(frozen=True)
class TrainConfig:
    """One training run.  The defaults are the paper's recipe (Section 5.1); `for_preset` adapts them.

    Raises:
        ValueError: a field out of range, in one line.
    """

    preset: str = "tiny"
    """Size of the model: nano, tiny, small, medium or large."""
    data: str = "fineweb"
    """embedded, fineweb, or a parquet / jsonl / jsonl.xz file with a text column."""
    tokenizer: str = "gpt2"
    """gpt2 or byte."""
    out: Path | None = None
    """Folder of the run; None keeps everything in memory."""
    tokens: int = 10_000_000_000
    """Budget: tokens to train on."""
    corpus_tokens: int | None = None
    """Tokens to read from the source; None reads as many as the budget."""
    context: int = 512
    """Tokens per sequence."""
    batch_size: int = 1024
    """Sequences per step: 1024 x 512 = 0.5M tokens."""
    micro_batch_size: int = 32
    """Sequences per forward pass; gradients of a step are accumulated over them."""
    learning_rate: float = 9e-4
    """Peak of the schedule."""
    warmup: float = 0.0375
    """Part of the steps in which the rate rises linearly."""
    final_rate: float = 0.1
    """Part of the peak at which the cosine ends; the paper does not state it."""
    weight_decay: float = 0.1
    """Of AdamW, on weights with two or more dimensions only."""
    beta1: float = 0.9
    beta2: float = 0.95
    clip: float = 1.0
    """Largest norm of the gradient."""
    seed: int = 0
    """Of the initial weights and of the order of the data."""
    eval_every: int = 100
    """Steps between measurements of the held-out loss."""
    eval_windows: int = 64
    """Windows per measurement."""
    checkpoint_every: int = 100
    """Steps between checkpoints."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, ..."""
    progress: bool = True
    """Show a progress bar."""

    def __post_init__(self):
        if self.preset not in PRESETS:
            raise ValueError(f"unknown preset {self.preset!r}; accepted: {', '.join(PRESETS)}")
        for name in ("tokens", "context", "batch_size", "micro_batch_size", "eval_every", "eval_windows",
                     "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; give a number >= 1")
        if self.batch_size % self.micro_batch_size:
            raise ValueError(f"batch_size={self.batch_size} is not a multiple of micro_batch_size="
                             f"{self.micro_batch_size}; change one of them")
        for name in ("learning_rate", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)}; give a number > 0")
        for name in ("warmup", "final_rate", "beta1", "beta2"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)}; give a number from 0 to 1")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay={self.weight_decay}; give a number >= 0")

    @classmethod
    def for_preset(cls, preset: str, **changes) -> "TrainConfig":
        """Return the recipe of a preset with some fields changed.

        nano trains on bytes of the embedded corpus; the sizes of the paper follow the paper.
        """
        recipe = {"preset": preset}
        if preset == "nano":
            recipe |= dict(data="embedded", tokenizer="byte", tokens=786_432, corpus_tokens=10_000_000, context=256,
                           batch_size=4, micro_batch_size=4, learning_rate=3e-3, eval_every=64)
        return replace(cls(), **(recipe | changes))

    @property
    def steps(self) -> int:
        """Steps that the token budget buys, at least one."""
        return max(1, self.tokens // (self.batch_size * self.context))


def learning_rate(step: int, config: TrainConfig) -> float:
    """Return the rate of step 0, 1, ...: a linear rise over `warmup`, then a cosine to `final_rate`.

    Source: Caracal, Section 5.1.
    """
    rising = math.ceil(config.warmup * config.steps)
    if step < rising:
        return config.learning_rate * (step + 1) / rising
    progress = (step - rising) / max(1, config.steps - rising)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return config.learning_rate * (config.final_rate + (1 - config.final_rate) * cosine)


class Trainer:
    """A run in progress: build it, `run` it, in parts if you like.

    Args:
        config: the run.
        corpus: tokens to train on; None reads `config.data`.

    Attributes:
        model: the `Caracal` in training.
        step: steps done.
        log: one dictionary per step done.

    Raises:
        ValueError: the folder holds a run with other settings or other data.
    """

    def __init__(self, config: TrainConfig, corpus: Corpus | None = None):
        self.config = config
        if corpus is None:
            corpus = load_corpus(config.data, config.tokenizer, config.corpus_tokens or config.tokens,
                                 progress=config.progress)
        self.corpus = corpus
        device = config.device
        self.device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
        torch.manual_seed(config.seed)
        self.model = Caracal.from_preset(config.preset).to(self.device)
        if corpus.vocab_size > self.model.config.vocab_size:
            raise ValueError(f"tokenizer {corpus.tokenizer!r} has {corpus.vocab_size} ids, preset {config.preset!r} "
                             f"has {self.model.config.vocab_size}; choose a tokenizer and a preset that fit")
        matrices = [p for p in self.model.parameters() if p.ndim >= 2]
        vectors = [p for p in self.model.parameters() if p.ndim < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            lr=config.learning_rate, betas=(config.beta1, config.beta2), fused=True)
        self.batches = Batches(corpus.train, config.context, config.batch_size, config.seed)
        self.step, self.log, self.stop_requested = 0, [], False
        if config.out is not None:
            self._resume()

    def run(self, until: int | None = None) -> list[dict]:
        """Train up to step `until` (default: the end of the budget) and return the whole log.

        Each entry holds step, tokens, loss (before the step's update), learning_rate, grad_norm, seconds, and, on
        measured steps, validation_loss (after the update), in nats per token.

        Raises:
            DivergedError: a loss or gradient that is not finite; no checkpoint is written over the last good one.
        """
        end = self.config.steps if until is None else min(until, self.config.steps)
        with tqdm(total=end, initial=self.step, unit="step", desc=f"training {self.config.preset}",
                  disable=not self.config.progress) as bar:
            while self.step < end and not self.stop_requested:
                entry = self._train_step()
                last = self.step == self.config.steps
                if last or self.step % self.config.eval_every == 0:
                    entry["validation_loss"] = held_out_loss(
                        self.model, self.corpus.validation, self.config.context, self.config.eval_windows)
                    bar.set_postfix(validation=f"{entry['validation_loss']:.3f}", refresh=False)
                self._record(entry)
                if last or self.step % self.config.checkpoint_every == 0:
                    self.checkpoint()
                bar.update()
        if self.stop_requested:
            self.checkpoint()
        if self.step == self.config.steps and self.config.out is not None:
            self.model.save_pretrained(self.config.out / "model")
        return self.log

    def checkpoint(self) -> None:
        """Write the state of the run into its folder, atomically; without a folder do nothing."""
        if self.config.out is not None:
            save_checkpoint(self.config.out, self.model, self.optimizer, self._facts())

    def _train_step(self) -> dict:
        started = time.perf_counter()
        rate = learning_rate(self.step, self.config)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        inputs, targets = self.batches[self.step]
        parts = self.config.batch_size // self.config.micro_batch_size
        total = 0.0
        for x, y in zip(inputs.chunk(parts), targets.chunk(parts), strict=True):
            loss = self._loss(x, y) / parts
            loss.backward()
            total += loss.item()
        norm = clip_grad_norm_(self.model.parameters(), self.config.clip).item()
        if not (math.isfinite(total) and math.isfinite(norm)):
            raise DivergedError(self._diverged(total, norm, rate))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return {"step": self.step, "tokens": self.step * self.config.batch_size * self.config.context, "loss": total,
                "learning_rate": rate, "grad_norm": norm, "seconds": time.perf_counter() - started}

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return self.model(x.to(self.device), y.to(self.device))[1]

    def _diverged(self, loss: float, norm: float, rate: float) -> str:
        out = self.config.out
        kept = "no checkpoint was asked for (set out)" if out is None else f"the last good checkpoint is in {out}"
        return (f"loss {loss} and gradient norm {norm} at step {self.step + 1} with learning rate {rate:.2e}; {kept}; "
                "start again with a lower learning_rate or a longer warmup")

    def _record(self, entry: dict) -> None:
        self.log.append(entry)
        if self.config.out is not None:
            with open(self.config.out / "log.jsonl", "a") as file:
                file.write(json.dumps(entry) + "\n")

    def _facts(self) -> dict:
        """What must be equal for a run to go on, and where it stands."""
        settings = {k: v for k, v in vars(self.config).items() if k not in ("out", "progress", "device")}
        return {"step": self.step, "settings": settings, "corpus": self.corpus.digest}

    def _resume(self) -> None:
        self.config.out.mkdir(parents=True, exist_ok=True)
        self.step = load_checkpoint(self.config.out, self.model, self.optimizer, self._facts())
        log = self.config.out / "log.jsonl"
        lines = log.read_text().splitlines()[:self.step] if log.exists() else []
        self.log = [json.loads(line) for line in lines]
        log.write_text("".join(line + "\n" for line in lines))
