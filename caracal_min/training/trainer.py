"""The training loop: AdamW, warm-up and cosine, clipping, accumulation, and a run that survives a kill.

A run is a `TrainConfig`.  With `out` set it lives in a folder:

    checkpoint.safetensors   weights, optimiser state, random state, step (see `checkpoint`)
    log.jsonl                one line per step: step, tokens, loss, learning_rate, grad_norm, ...
    tensorboard/             the same as curves, if wanted
    shards/                  the corpus as token shards, if it is neither the embedded one nor shards already
    model/                   config.json and model.safetensors, written at the end
    record.json              what was run, where, on what, and its curve, written at the end (see `record`)

Starting the same configuration again continues from the checkpoint and follows the same curve.  Started by `torchrun`,
several processes share each batch and follow the curve of one.
"""

import math
import time

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from ..allocator import keep_freed_memory
from ..data.batches import Batches
from ..data.corpus import Corpus, load_corpus
from ..data.tokenizers import make_tokenizer
from ..evaluation.losses import held_out_loss
from ..files import file_sha256
from ..language_model import LanguageModel
from ..precision import autocast, resolve_precision
from ..recorded.record import write_record
from ..zoo.registry import make_model
from .checkpoint import load_checkpoint, save_checkpoint
from .distributed import Group
from .flops import flops_per_token, peak_flops
from .recipe import TrainConfig, learning_rate
from .run_log import RunLog

__all__ = ["DivergedError", "Trainer"]

_MAY_CHANGE = {"out", "progress", "device", "compile", "peak_flops", "tensorboard", "micro_batch_size"}
_SAMPLE = 64  # tokens drawn to see the model learn


class DivergedError(RuntimeError):
    """The loss or the gradient is not finite; the last good checkpoint is untouched."""


class Trainer:
    """A run in progress: build it, `run` it, in parts if you like.

    Args:
        config: the run.
        corpus: tokens to train on; None reads `config.data`.

    Attributes:
        model: the `Caracal`, or the baseline, in training.
        step: steps done.
        seconds: time spent in `run`, that of an earlier process included.

    Raises:
        ValueError: the folder holds a run with other settings or other data; a batch that the processes cannot share.
    """

    def __init__(self, config: TrainConfig, corpus: Corpus | None = None):
        self.config, self.group = config, Group(config.device)
        self.device = self.group.device
        self.precision = resolve_precision(config.precision, self.device)
        if self.device.type == "cpu":
            keep_freed_memory()
        together = config.micro_batch_size * self.group.world_size
        if config.batch_size % together:
            raise ValueError(f"batch_size={config.batch_size} is not a multiple of micro_batch_size x processes = "
                             f"{together}; change one of them")
        self.corpus = self._load_corpus() if corpus is None else corpus
        torch.manual_seed(config.seed)
        self.model: LanguageModel = make_model(config.architecture, config.preset, config.variant,
                                               self.corpus.vocab_size, config.context).to(self.device)
        matrices = [p for p in self.model.parameters() if p.ndim >= 2]
        vectors = [p for p in self.model.parameters() if p.ndim < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            lr=config.learning_rate, betas=(config.beta1, config.beta2), fused=True)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == torch.float16)
        self.batches = Batches(self.corpus.train, config.context, config.batch_size // self.group.world_size,
                               config.seed, self.group.rank, self.group.world_size)
        self.step, self.seconds, self.stop_requested = 0, 0.0, False
        self._resume()
        self._loss = self.group.wrap(_Loss(self.model.compile_for(config.compile)))
        self._flops = flops_per_token(self.model, config.context)
        self._peak = config.peak_flops or peak_flops(self.device)

    @property
    def log(self) -> list[dict]:
        """One dictionary per step done: see `run`."""
        return self._log.entries

    @property
    def finished(self) -> bool:
        """Whether a budget is used up."""
        return self.step >= self.config.steps or self.config.time_used(self.seconds) >= 1

    def run(self, until: int | None = None) -> list[dict]:
        """Train up to step `until` (default: the end of the budget) and return the whole log.

        Each entry holds step, tokens, loss (before the step's update), learning_rate, grad_norm, seconds,
        tokens_per_second; loss_scale in float16, where a step whose scaled gradient overflows is skipped and has no
        grad_norm; mfu, where the operations of the model and the device are known; on measured steps
        validation_loss (after the update); on steps 1, 2, 4, ... a sample, if the run has a prompt.  Losses are in
        nats per token.

        Raises:
            DivergedError: a loss or gradient that is not finite; no checkpoint is written over the last good one.
        """
        end = self.config.steps if until is None else min(until, self.config.steps)
        before, started = self.seconds, time.perf_counter()
        with self._bar(end) as bar:
            while self.step < end and not self.finished and not self.stop_requested:
                entry = self._train_step()
                seconds, stop = self.group.max(before + time.perf_counter() - started, self.stop_requested)
                self.seconds, self.stop_requested = seconds, bool(stop)
                with torch.compiler.set_stance("force_eager"):  # kernels are built for the shapes of training alone
                    self._evaluate(entry)
                if "validation_loss" in entry:
                    bar.set_postfix(step=self.step, validation=f"{entry['validation_loss']:.3f}", refresh=False)
                if self.group.is_main:
                    self._log.add(entry)
                if self.finished or self.step % self.config.checkpoint_every == 0:
                    self.checkpoint()
                bar.update((self.step if self.config.minutes is None else min(round(self.seconds), bar.total)) - bar.n)
        if self.stop_requested and not self.finished:
            self.checkpoint()
        if self.finished and self.config.out is not None and self.group.is_main:
            self._log.close()
            self.model.save_pretrained(self.config.out / "model")
            self._write_record()
        return self.log

    def checkpoint(self) -> None:
        """Write the state of the run into its folder, atomically; without a folder do nothing."""
        if self.config.out is not None and self.group.is_main:
            save_checkpoint(self.config.out, self.model, self.optimizer, self._facts())

    def _train_step(self) -> dict:
        started = time.perf_counter()
        rate = learning_rate(self.step, self.config, self.seconds)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        inputs, targets = self.batches[self.step]
        parts = len(inputs) // self.config.micro_batch_size
        total = torch.zeros((), device=self.device)
        for i, (x, y) in enumerate(zip(inputs.chunk(parts), targets.chunk(parts), strict=True)):
            if self.group.world_size > 1:
                self._loss.require_backward_grad_sync = i == parts - 1
            with autocast(self.device, self.precision):
                loss = self._loss(x.to(self.device), y.to(self.device)) / parts
            self.scaler.scale(loss).backward()
            total += loss.detach()
        self.scaler.unscale_(self.optimizer)
        norm = clip_grad_norm_(self.model.parameters(), self.config.clip)
        loss, norm, scale = self.group.mean(total).item(), norm.item(), self.scaler.get_scale()
        # A scaled gradient may overflow: the scaler then skips the step and halves the scale, down to no scale at all.
        overflow = self.scaler.is_enabled() and scale > 1 and not math.isfinite(norm)
        if not (math.isfinite(loss) and (math.isfinite(norm) or overflow)):
            raise DivergedError(self._diverged(loss, norm, rate))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        tokens, seconds = self.config.batch_size * self.config.context, time.perf_counter() - started
        entry = {"step": self.step, "tokens": self.step * tokens, "loss": loss, "learning_rate": rate,
                 "grad_norm": None if overflow else norm, "seconds": seconds, "tokens_per_second": tokens / seconds}
        if self.scaler.is_enabled():
            entry["loss_scale"] = scale
        if self._flops and self._peak:
            entry["mfu"] = entry["tokens_per_second"] * self._flops / (self._peak * self.group.world_size)
        return entry

    def _bar(self, end: int):
        """Return a bar of steps, or of seconds under a budget in minutes."""
        from tqdm import tqdm

        options = dict(desc=f"training {self.config.preset}", disable=not (self.config.progress and self.group.is_main))
        if self.config.minutes is None:
            return tqdm(total=end, initial=self.step, unit="step", **options)
        return tqdm(total=round(60 * self.config.minutes), initial=round(self.seconds), unit="s", **options)

    def _evaluate(self, entry: dict) -> None:
        """Add the held-out loss and a sample to the entry of a step that asks for them."""
        if self.finished or self.step % self.config.eval_every == 0:
            with autocast(self.device, self.precision):
                entry["validation_loss"] = held_out_loss(self.model, self.corpus.validation, self.config.context,
                                                         self.config.eval_windows)
        if self.config.prompt and self.group.is_main and (self.finished or self.step.bit_count() == 1):
            tokenizer = make_tokenizer(self.corpus.tokenizer)
            prompt = torch.tensor([tokenizer.encode(self.config.prompt)], device=self.device)
            drawn = self.model.generate(prompt, _SAMPLE, temperature=0.8, seed=self.config.seed)
            entry["sample"] = tokenizer.decode(drawn[0].tolist())

    def _diverged(self, loss: float, norm: float, rate: float) -> str:
        out = self.config.out
        kept = "no checkpoint was asked for (set out)" if out is None else f"the last good checkpoint is in {out}"
        return (f"loss {loss} and gradient norm {norm} at step {self.step + 1} with learning rate {rate:.2e}; {kept}; "
                "start again with a lower learning_rate or a longer warmup")

    def _load_corpus(self) -> Corpus:
        config = self.config
        shards = None if config.out is None or config.data == "embedded" else config.out / "shards"
        options = dict(max_tokens=config.corpus_tokens or config.tokens, validation=config.validation, shards=shards)
        if self.group.is_main:
            corpus = load_corpus(config.data, config.tokenizer, progress=config.progress, **options)
        self.group.barrier()
        if not self.group.is_main:
            corpus = load_corpus(config.data, config.tokenizer, progress=False, **options)
        return corpus

    def _write_record(self) -> None:
        corpus, weights = self.corpus, self.config.out / "model" / "model.safetensors"
        data = {"source": corpus.source, "validation": self.config.validation, "tokenizer": corpus.tokenizer,
                "train_tokens": len(corpus.train), "validation_tokens": len(corpus.validation),
                "sha256": corpus.digest}
        results = {"parameters": self.model.num_parameters(), "steps": self.step, "tokens": self.log[-1]["tokens"],
                   "epochs": self.batches.epochs(self.step), "processes": self.group.world_size,
                   "precision": str(self.precision).removeprefix("torch."), "flops_per_token": self._flops,
                   "peak_flops": self._peak, "curve": self._log.curve(),
                   "model_sha256": file_sha256(weights)}
        write_record(self.config.out / "record.json", "train", vars(self.config), results, data, self.seconds,
                     self.device)

    def _facts(self) -> dict:
        """What must be equal for a run to go on, and where it stands."""
        settings = {name: value for name, value in vars(self.config).items() if name not in _MAY_CHANGE}
        settings["precision"] = str(self.precision).removeprefix("torch.")
        return {"step": self.step, "seconds": self.seconds, "settings": settings, "corpus": self.corpus.digest,
                "scaler": self.scaler.state_dict()}

    def _resume(self) -> None:
        if self.config.out is not None:
            self.config.out.mkdir(parents=True, exist_ok=True)
            stored = load_checkpoint(self.config.out, self.model, self.optimizer, self._facts())
            self.step, self.seconds = stored["step"], stored["seconds"]
            self.scaler.load_state_dict(stored["scaler"])
        self._log = RunLog(self.config.out if self.group.is_main else None, self.step, self.config.tensorboard)


class _Loss(nn.Module):
    """The loss as a module, for what wraps modules: DistributedDataParallel."""

    def __init__(self, model: LanguageModel):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return self.model.loss(tokens, targets)
