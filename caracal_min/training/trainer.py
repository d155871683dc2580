"""The training loop: warm-up and cosine, clipping, accumulation, and a run that survives a kill.

A run is a `TrainConfig`.  With `out` set it lives in a folder (`folder`), in which one process at a time works.
The same configuration again goes on, on the same curve.  Started by `torchrun`, several processes follow that of one.
"""

import math
import time
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from ..allocator import keep_freed_memory
from ..data.batches import Batches, require_window
from ..data.corpus import Corpus, load_corpus, require_readable
from ..data.tokenizers import make_tokenizer
from ..evaluation.losses import held_out_loss
from ..language_model import LanguageModel
from ..packing import micro_batches
from ..precision import autocast, resolve_precision
from ..record import write_record
from .checkpoint import Checkpoint, not_finite
from .distributed import Group
from .flops import flops_per_token, peak_flops
from .folder import RunFolder
from .optimizer import make_optimizer
from .recipe import TrainConfig, learning_rate
from .run_log import RunLog, progress_bar, require_tensorboard
from .run_record import data_of, model_of, process_from, settings_of, stretches_before
from .stopping import StoppedError, stopping_signals
from .trained import initial_model, load_trained

__all__ = ["DivergedError", "Trainer"]

_SAMPLE = 64  # tokens drawn to see the model learn


class DivergedError(RuntimeError):
    """A loss, a gradient, a weight or a moment is not finite; the last good checkpoints are untouched."""


class Trainer:
    """A run in progress: build it, `run` it, in parts if you like, and close it, or use it in a `with` statement.

    Args:
        config: the run.
        corpus: tokens to train on; None reads `config.data`.
        model: one of your own to train, which is moved to the run's device; None builds what `config` describes.

    Attributes:
        model: the `Caracal`, or the baseline, in training.
        step: steps done.
        seconds: time spent in `run`, that of an earlier process included.

    Raises:
        ValueError: the folder holds a run with other settings or other data, or one that is damaged; processes that see
            different ones; a batch that they cannot share; a device that is not here; a model with fewer ids than the
            tokenizer.
        OSError: the folder cannot be written, has no room for the run, or another process works in it.
        LostProcessError: another process of the group does not answer.
    """

    def __init__(self, config: TrainConfig, corpus: Corpus | None = None, model: LanguageModel | None = None):
        self.config, self.group = config, Group(config.device, config.timeout)
        self._folder: RunFolder | None = None
        try:
            self._build(corpus, model)
        except BaseException:
            self.close()
            raise

    def _build(self, corpus: Corpus | None, model: LanguageModel | None) -> None:
        config, self.device = self.config, self.group.device
        self.precision = resolve_precision(config.precision, self.device)
        if self.device.type == "cpu":
            keep_freed_memory()
        share = config.share(self.group.world_size)
        self._tokenizer = make_tokenizer(config.tokenizer if corpus is None else corpus.tokenizer)
        self._end_of_documents = config.end_of_documents(self._tokenizer)
        if corpus is None:  # what would stop the run is found before anything slow
            require_readable(config.tokenizer, *filter(None, (config.data, config.validation)),
                             shards=None if config.out is None else config.out / "shards")
        if config.tensorboard:
            require_tensorboard()
        self._folder = None if config.out is None else RunFolder(config.out, self.group.is_main)
        checkpoint = self._folder and self._folder.checkpoints.read()
        # What the run started from may have gone on or be gone by now; its own checkpoint has all that it needs.
        begun = checkpoint is not None and checkpoint.facts.get("start") == config.start
        start = None if begun or config.start is None else load_trained(config.start)
        self._stretches = checkpoint.facts["stretches"] if begun else stretches_before(start)
        self._settings = settings_of(config, self.precision, self._tokenizer, self._stretches, model)
        if checkpoint is not None:
            checkpoint.require_settings(self._settings)
        torch.manual_seed(config.seed)
        self.model = initial_model(config, self._tokenizer, model, start).to(self.device)
        self.optimizer = make_optimizer(self.model, config)
        if self._folder is not None:
            self._folder.require_space(self.model.num_parameters())
            self._folder.keep_tokenizer(self._tokenizer, begins=checkpoint is None)
        self.corpus = self.group.main_first(self._load_corpus) if corpus is None else corpus
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == torch.float16)
        self.batches = Batches(self.corpus.train, config.context, share, config.seed, self.group.rank,
                               self.group.world_size)
        require_window(self.corpus.validation, config.context, " that are held out")
        with self.group.waiting():
            self._resume(checkpoint)
            self._loss = self.group.loss_of(self.model.compile_for(config.compile))
        self._flops = flops_per_token(self.model, config.context)
        self._peak = config.peak_flops or peak_flops(self.device)

    @property
    def log(self) -> list[dict[str, Any]]:
        """One dictionary per step done: see `run`."""
        return self._log.entries

    @property
    def finished(self) -> bool:
        """Whether a budget is used up."""
        return self.step >= self.config.steps or self.config.time_used(self.seconds) >= 1

    def run(self, until: int | None = None) -> list[dict[str, Any]]:
        """Train up to step `until` (default: the end of the budget) and return the whole log.

        Each entry holds step, tokens, loss (before the step's update), learning_rate, grad_norm, seconds,
        tokens_per_second; loss_scale in float16, where a step whose scaled gradient overflows is skipped and has no
        grad_norm; mfu, where the operations are known; on measured steps validation_loss (after the update); on steps
        1, 2, 4, ... a sample, if there is a prompt.  Losses are in nats per token.  A finished run is left as it is.

        Raises:
            DivergedError: a loss, gradient, weight or moment that is not finite; nothing of it is kept.
            StoppedError: SIGINT (Ctrl-C), SIGTERM or SIGHUP came; the step was ended, and there is a checkpoint of it.
            LostProcessError: another process of the group does not answer.
            OSError: a file cannot be written.
        """
        end = self.config.steps if until is None else min(until, self.config.steps)
        before, started, stop = self.seconds, time.perf_counter(), 0.0
        bar = progress_bar(self.config, self.group.is_main, end, self.step, self.seconds)
        with self.group.waiting(), stopping_signals() as signals, bar:
            while self.step < end and not self.finished and not stop:
                if self._folder is not None:
                    self._folder.require_held()
                entry = self._train_step()
                earlier = self.seconds
                self.seconds, stop = self.group.max(before + time.perf_counter() - started, bool(signals))
                self._first += (self.seconds - earlier) * self._begins
                self._begins = False
                with torch.compiler.set_stance("force_eager"):  # kernels are built for the shapes of training alone
                    self._evaluate(entry)
                if "validation_loss" in entry:
                    bar.set_postfix(step=self.step, validation=f"{entry['validation_loss']:.3f}", refresh=False)
                if self.group.is_main:
                    self._log.add(entry)
                if (stop or self.finished or self.step == end
                        or self.seconds - self._kept_at >= 60 * self.config.checkpoint_minutes):
                    self.checkpoint()
                bar.update((self.step if self.config.minutes is None else min(round(self.seconds), bar.total)) - bar.n)
        if self.finished and self._folder is not None and self.group.is_main and not self._folder.complete:
            self._log.close()
            self._leave()
        if stop:
            raise StoppedError(f"{', '.join(signals) or 'a signal to another process'} after step {self.step}")
        return self.log

    def checkpoint(self) -> None:
        """Write the state of the run into its folder, atomically; without a folder only look at it.

        Raises:
            DivergedError: something in it is not finite; the earlier checkpoints are untouched.
            OSError: it cannot be written, or the folder is no longer this run's.
        """
        self._require_finite()
        if self._folder is not None and self.group.is_main:
            self._folder.require_held()
            self._folder.checkpoints.save(self.model, self.optimizer, self._facts(), self._log.lines)
        self._kept_at = self.seconds

    def close(self) -> None:
        """Free the folder for other processes and leave the group."""
        if self._folder is not None:
            self._folder.close()
        self.group.close()

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _train_step(self) -> dict:
        started = time.perf_counter()
        rate = learning_rate(self.step, self.config, self.seconds, self._first)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        parts = self._ahead.pop(self.step, None) or self._load_batch(self.step)
        total = torch.zeros((), device=self.device)
        for i, ((x, y), times) in enumerate(parts):
            if self.group.world_size > 1:
                self._loss.require_backward_grad_sync = i == len(parts) - 1
            with autocast(self.device, self.precision):
                loss = self._loss(x, y) / times
            self.scaler.scale(loss).backward()
            total += loss.detach()
        if self.step + 1 < self.config.steps:  # while a GPU is still at the gradients
            self._ahead[self.step + 1] = self._load_batch(self.step + 1)
        self.scaler.unscale_(self.optimizer)
        norm = clip_grad_norm_(self.model.parameters(), self.config.clip)
        loss, norm, scale = self.group.mean(total).item(), norm.item(), self.scaler.get_scale()
        # A scaled gradient may overflow: the scaler then skips the step and halves the scale, down to no scale at all.
        overflow = self.scaler.is_enabled() and scale > 1 and not math.isfinite(norm)
        if not (math.isfinite(loss) and (math.isfinite(norm) or overflow)):
            raise DivergedError(self._diverged(f"loss {loss} and gradient norm {norm}", self.step + 1))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.step += 1
        tokens, seconds = self.config.batch_size * self.config.context, time.perf_counter() - started
        entry = {"step": self.step, "tokens": self.step * tokens, "loss": loss, "learning_rate": rate,
                 "grad_norm": None if overflow else norm, "seconds": seconds, "tokens_per_second": tokens / seconds}
        entry |= {"loss_scale": scale} if self.scaler.is_enabled() else {}
        if self._flops and self._peak:
            entry["mfu"] = entry["tokens_per_second"] * self._flops / (self._peak * self.group.world_size)
        return entry

    def _load_batch(self, step: int) -> list[tuple[Tensor, float]]:
        """Return the `micro_batches` of a step on the device; the copy to a GPU is not awaited."""
        parts = micro_batches(torch.stack(self.batches[step]), self.config.micro_batch_size, self._end_of_documents,
                              few_shapes=self.config.compile != "no")
        pinned = [(x.pin_memory() if self.device.type == "cuda" else x, times) for x, times in parts]
        return [(x.to(self.device, non_blocking=True), times) for x, times in pinned]

    def _evaluate(self, entry: dict) -> None:
        """Add the held-out loss and a sample to the entry of a step that asks for them."""
        if self.finished or self.step % self.config.eval_every == 0:
            with autocast(self.device, self.precision):
                loss = held_out_loss(self.model, self.corpus.validation, self.config.context, self.config.eval_windows,
                                     end_of_text=self._end_of_documents)
            if not math.isfinite(loss):
                raise DivergedError(self._diverged(f"validation loss {loss}", self.step))
            entry["validation_loss"] = loss
        if self.config.prompt and self.group.is_main and (self.finished or self.step.bit_count() == 1):
            self._require_finite()
            prompt = torch.tensor([self._tokenizer.encode(self.config.prompt)], device=self.device)
            drawn = self.model.generate(prompt, _SAMPLE, temperature=0.8, seed=self.config.seed)[0]
            entry["sample"] = self._tokenizer.decode(drawn.tolist())

    def _require_finite(self) -> None:
        if name := not_finite(self.model, self.optimizer):
            raise DivergedError(self._diverged(f"{name} is not finite", self.step))

    def _diverged(self, what: str, step: int) -> str:
        out, rate = self.config.out, learning_rate(step - 1, self.config, self.seconds, self._first)
        kept = "no checkpoint was asked for (set out)" if out is None else f"the last good checkpoint is in {out}"
        return (f"{what} at step {step} with learning rate {rate:.2e}; {kept}; "
                "start again with a lower learning_rate or a longer warmup")

    def _load_corpus(self) -> Corpus:
        config = self.config
        shards = None if config.out is None or config.data == "embedded" else config.out / "shards"
        return load_corpus(config.data, config.tokenizer, max_tokens=config.corpus_limit, validation=config.validation,
                           shards=shards, progress=config.progress and self.group.is_main)

    def _leave(self) -> None:
        """Write what a finished run leaves: the model with its tokenizer, and the record."""
        self.model.save_pretrained(self._folder.model)
        results = {"parameters": self.model.num_parameters(), "steps": self.step, "tokens": self.log[-1]["tokens"],
                   "epochs": self.batches.epochs(self.step), "processes": self.group.world_size,
                   "precision": self._settings["precision"], "flops_per_token": self._flops, "peak_flops": self._peak,
                   "curve": self._log.curve(), "start_sha256": self._settings["start"],
                   "stretches": self._stretches, **model_of(self._folder)}
        write_record(self._folder.record, "train", vars(self.config), results,
                     data_of(self.corpus, self.config.validation), self.seconds, self.device, self._processes)

    def _facts(self) -> dict:
        """What must be equal for a run to go on, and where it stands."""
        return {"step": self.step, "seconds": self.seconds, "first": self._first, "settings": self._settings,
                "corpus": self.corpus.digest, "scaler": self.scaler.state_dict(), "parts": self._processes,
                "start": self.config.start, "stretches": self._stretches}

    def _resume(self, checkpoint: Checkpoint | None) -> None:
        self.step, self.seconds, self._first, self._processes, self._ahead, log = 0, 0.0, 0.0, [], {}, b""
        self._begins = True
        if checkpoint is not None:
            log, facts = checkpoint.restore(self.model, self.optimizer, self.corpus.digest), checkpoint.facts
            self.step, self.seconds, self._first, self._processes = (
                facts[name] for name in ("step", "seconds", "first", "parts"))
            self.scaler.load_state_dict(facts["scaler"])
        if self._folder is not None and self._folder.complete and not self.finished:
            raise ValueError(f"{self.config.out} holds the record of a finished run, but no checkpoint of its end; its "
                             "model is as it was: choose another folder to train anew")
        self._log = RunLog(self.config.out if self.group.is_main else None, log,
                           self.config.tensorboard and not self.finished)
        for note in filter(None, (checkpoint and checkpoint.note, self._log.note) if self.group.is_main else ()):
            print(note)
        self._processes = [*self._processes, process_from(self.step, checkpoint, self.corpus, self.group)]
        self._kept_at = self.seconds
