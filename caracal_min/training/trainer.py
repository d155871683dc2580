"""The training loop: schedule, accumulation, clipping, validation, samples, and checkpoints.

With `out` set a run has a folder, and the same configuration resumes it where it was stopped::

    checkpoint.pt   the state of the run (see `checkpoint`)
    log.jsonl       a line for each step: loss, gradient norm, tokens per second, ...
    tokenizer/      what the text is encoded with
    shards/         the text as ids, unless it is the embedded one or shards already
    model/          configuration, weights and tokenizer, at the end
    run.json        settings, data and curve of the run, at the end
"""

import json
import platform
import signal
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from math import ceil, isfinite
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from tqdm.auto import tqdm

from .. import __version__
from ..config import CaracalConfig
from ..data.batches import Batches, Corpus, load_corpus, sequential_windows
from ..evaluation import evaluating, held_out_loss
from ..files import writing
from ..model import Caracal
from ..packing import micro_batches
from ..precision import autocast, resolve_precision
from ..tokenizer import make_tokenizer, save_tokenizer, tokenizer_sha256
from .checkpoint import check_resume, load_checkpoint, load_run, restore, save_checkpoint
from .config import TrainConfig, learning_rate
from .distributed import Group
from .flops import flops_per_token, peak_flops
from .optimizer import make_optimizer

__all__ = ["DivergedError", "StoppedError", "Trainer"]


class DivergedError(RuntimeError):
    """A loss or gradient is not finite; the last checkpoint is untouched."""


class StoppedError(KeyboardInterrupt):
    """SIGINT (Ctrl-C) or SIGTERM came; the step was completed, and a checkpoint was written."""


class Trainer:
    """A training run: build it, `run` it, in parts if you like, and close it, or use `with`.

    Args:
        config: settings of the run.
        corpus: tokens to train on; None reads `config.data`.
        model: model of your own, which is moved to the device of the run; None builds what
            `config` describes.  It has the `loss`, `hidden`, `unembed`, `device`, `num_parameters`,
            `compile_loss`, `save_pretrained`, `config` and `tokenizer` of a `Caracal`; with
            reset_documents, `hidden` takes `documents`; samples need `generate`.  A tokenizer that
            it has reads `config.data`; weights that it has give way to those of `config.start`.

    Attributes:
        model: the model in training.
        corpus, batches: the text, and the batch of each step, `batches[step]`.
        step: steps done.
        seconds: time spent in `run`, before the run was resumed included.
        log: a dictionary for each step done: see `run`.
        history: a dictionary for each start or resumption: from which step, and its budget.

    Raises:
        ValueError: the folder holds a run with other settings or other data; the model's tokenizer
            is not that of the corpus; a batch that the processes cannot share.
    """

    def __init__(self, config: TrainConfig, corpus: Corpus | None = None,
                 model: nn.Module | None = None):
        out = config.out and Path(config.out)
        group = Group(config.device, config.timeout)
        device = group.device
        self.config = config
        self.out = out
        self.group = group
        self.device = device
        self.precision = resolve_precision(config.precision, device)
        rows = config.rows_per_process(group.world_size)
        # Ids mean nothing without their tokenizer, so a corpus or a trained model brings its own.
        model_tokenizer = getattr(model, "tokenizer", None)
        if corpus:
            tokenizer = corpus.tokenizer
        else:
            tokenizer = model_tokenizer or make_tokenizer(config.tokenizer)
        _require_same_tokenizer(model_tokenizer, tokenizer, "the model")
        self.tokenizer = tokenizer
        # Sequences are cut into documents after this id; None keeps each sequence whole.
        self.end_of_text = tokenizer.end_of_text if config.reset_documents else None

        # Weights are drawn on the CPU right after seeding, so that they are equal on any device.
        torch.manual_seed(config.seed)
        model = model or Caracal(config.model_config(tokenizer.vocab_size))
        self.model = model.to(device)
        self.optimizer = make_optimizer(model, config)
        # Small gradients underflow in float16, but not in bfloat16.
        scaled = self.precision == torch.float16
        self.scaler = torch.amp.GradScaler(device.type, enabled=scaled)

        # Steps that a GPU may still compute while Python launches the next one: 0 on a CPU, which
        # computes at once, and in float16, whose scaler waits anyway.
        self.max_pending = 0 if device.type == "cpu" or scaled else 1

        # The settings are compared before the text is read, which may take hours.
        is_caracal = isinstance(model.config, CaracalConfig)
        model_config = vars(model.config) if is_caracal else None
        settings = config.resume_settings | {
            "precision": str(self.precision).removeprefix("torch."),
            "tokenizer": tokenizer.name,
            "model_config": model_config,
        }
        # A checkpoint holds plain values, which JSON makes: a path as text, a tuple as a list.
        self.settings = json.loads(json.dumps(settings, default=str))
        state = load_checkpoint(out) if out else None
        limit = config.corpus_limit
        if state:
            check_resume(state, self.settings, out)
            # More text would change the order of the data, and with it the curve: an extended
            # run reads as much as its first budget, the tokens of history[0], asked for.
            first_budget = state["history"][0]["tokens"]
            limit = replace(config, tokens=first_budget).corpus_limit
        elif config.start:
            trained, _ = load_run(config.start)
            _require_same_tokenizer(trained.tokenizer, tokenizer, config.start)
            model.load_state_dict(trained.state_dict())
        # A saved model has to encode prompts, so its tokenizer is saved with it.
        model.tokenizer = tokenizer
        if corpus is None:
            shards = None
            # The embedded text is encoded in seconds, so only other text is stored as ids.
            if out and config.data != "embedded":
                shards = out / "shards"
            progress = config.progress and group.is_main
            corpus = group.main_first(lambda: load_corpus(
                config.data, tokenizer, limit, progress, config.validation, shards))
        self.corpus = corpus
        # Validation text shorter than a window raises here, not after the first hundred steps.
        sequential_windows(corpus.validation, config.context, 1)
        self.batches = Batches(corpus.train, config.context, rows, config.seed, group.rank,
                               group.world_size)

        self.settings["data_sha256"] = corpus.digest
        self.step = 0
        self.seconds = 0.0
        self.first_step_seconds = 0.0
        self._saved_at = None
        self.log = []
        self.history = []
        self._written = 0
        if state:
            # Compared again, because the digest of the text is known only now.
            check_resume(state, self.settings, out)
            restore(state, self)
            self._saved_at = self.seconds
        elif out and group.is_main:
            save_tokenizer(tokenizer, out / "tokenizer")
        self.history.append({
            "from_step": self.step,
            "processes": group.world_size,
            "tokens": config.tokens,
            "minutes": config.minutes,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        })
        model.compile_loss(config.compile)
        self._loss = group.loss_of(model)
        flops = flops_per_token(model, config.context)
        peak = config.peak_flops or peak_flops(device)
        self._mfu_per_speed = None
        # Where either is unknown, the log has no utilisation (MFU).
        if flops and peak:
            self._mfu_per_speed = flops / (peak * group.world_size)

    @property
    def finished(self) -> bool:
        """Whether a budget is used up."""
        return self.used >= 1

    @property
    def used(self) -> float:
        """Fraction of the budget that is used up, 0 to 1 or more."""
        return self.config.used(self.step, self.seconds)

    def run(self, until: int | None = None) -> list[dict[str, Any]]:
        """Train up to step `until` (default: the end of the budget) and return the whole log.

        An entry has step, tokens (seen so far), loss (nats per token), learning_rate, grad_norm
        (before clipping; None where a scaled gradient overflowed and the step was skipped), seconds
        and tokens_per_second; loss_scale in float16; mfu where the device's peak is known;
        validation_loss every `eval_every` steps and at the end; sample after steps 1, 2, 4, 8, ...
        and at the end, if there is a prompt.

        On a GPU the loss of a step is read after the next step was launched, so that the GPU never
        waits for Python; the log has all entries, in order.  A finished run is left as it is.

        Raises:
            DivergedError: a loss or gradient that is not finite.
            StoppedError: SIGINT or SIGTERM came; a second one does not wait for the step.
        """
        config = self.config
        is_main = self.group.is_main
        last_step = config.steps if until is None else until
        self._launched = []
        self._stopped = False
        # A resumed run continues its clock, as if it had never been stopped.
        self._step_started = time.perf_counter()
        self._run_started = self._step_started - self.seconds
        done = self.step >= last_step or self.finished
        run_file = self.out / "run.json" if self.out and is_main else None
        # run.json promises a finished model, which an extended run has only at its new end.
        if run_file and not done:
            run_file.unlink(missing_ok=True)
        # With disable=None tqdm shows no bar unless the output is a terminal.
        bar = tqdm(total=1, initial=self.used, desc=config.preset,
                   disable=None if config.progress and is_main else True,
                   bar_format="{l_bar}{bar}| {elapsed}<{remaining}, {postfix}")
        with _stopping_signals() as self._signals, bar:
            try:
                while not done:
                    self._train_step()
                    self._log_steps(self.max_pending)
                    finished = self.finished
                    done = finished or self._stopped or self.step >= last_step
                    validate = finished or self.step % config.eval_every == 0
                    sample = config.prompt and (finished or self.step.bit_count() == 1)
                    save = done or self._checkpoint_is_due()
                    # These need the weights of this step, so it must no longer be pending.
                    pause = validate or sample or save
                    if pause:
                        self._log_steps()
                        self._evaluate(self.log[-1], validate, sample)
                    self._write_log(bar)
                    if save:
                        self.checkpoint()
                    # The pause must not count as time of the next step.
                    if pause:
                        self._step_started = time.perf_counter()
            finally:
                # An exception in one step must not lose the entry of the step before.
                self._log_steps()
                self._write_log(bar)
        if run_file and self.finished and not run_file.exists():
            self._finish(run_file)
        if self._stopped:
            raise StoppedError(f"a signal came; stopped after step {self.step}")
        return self.log

    def checkpoint(self) -> None:
        """Write the state of the run into its folder, atomically."""
        self._saved_at = self.seconds
        if self.out and self.group.is_main:
            save_checkpoint(self.out, self)

    def close(self) -> None:
        """Leave the group of processes."""
        self.group.close()

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _train_step(self):
        """Launch a step.  Only the gradient scaler of float16 waits for a GPU here."""
        config = self.config
        scaler = self.scaler
        rate = learning_rate(self.step, config, self.seconds, self.first_step_seconds)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        self.optimizer.zero_grad()
        # A compiled model is compiled again for each new shape, so there are few of them.
        parts = micro_batches(
            torch.stack(self.batches[self.step]), config.micro_batch_size, self.end_of_text,
            few_shapes=config.compile != "no"
        )
        total = torch.zeros((), device=self.device)
        on_gpu = self.device.type == "cuda"
        for i, (pair, targets_in_batch_per_part) in enumerate(parts, 1):
            # Only from pinned memory does a copy to the GPU overlap with computing.
            if on_gpu:
                pair = pair.pin_memory()
            x, y = pair.to(self.device, non_blocking=on_gpu)
            # DDP's own switch, without effect on one process: average in the last pass only.
            self._loss.require_backward_grad_sync = i == len(parts)
            with autocast(self.device, self.precision):
                loss = self._loss(x, y) / targets_in_batch_per_part
            scaler.scale(loss).backward()
            total += loss.detach()
        # Clipping compares the norm with `clip`, so the scale has to be divided out before.
        scaler.unscale_(self.optimizer)
        norm = clip_grad_norm_(self.model.parameters(), config.clip)
        scale = scaler.get_scale()
        scaler.step(self.optimizer)
        scaler.update()
        self.step += 1
        # Processes that stopped at different steps would wait for each other for ever, so they
        # share one clock and one flag.  torch.tensor(seconds, device=...) would wait for the GPU;
        # full_like does not.
        seconds = time.perf_counter() - self._run_started
        clock = torch.full_like(total, seconds)
        stop = torch.full_like(total, len(self._signals))
        means = self.group.mean(torch.stack([total, norm, clock, stop]))
        self._launched.append((self.step, rate, scale, means))

    def _log_steps(self, max_pending=0):
        """Wait for the launched steps, except the last `max_pending`, and log them."""
        while len(self._launched) > max_pending:
            step, rate, scale, means = self._launched.pop(0)
            loss, norm, clock, stop = means.tolist()
            now = time.perf_counter()
            seconds = now - self._step_started
            self._step_started = now
            # A compiler works during the first step, which the schedule leaves out.
            if step == self.history[-1]["from_step"] + 1:
                self.first_step_seconds += clock - self.seconds
            self.seconds = clock
            self._stopped = stop > 0
            # A scaled gradient may overflow: the scaler skips that step and halves its scale,
            # which helps until the scale is 1.
            overflowed = not isfinite(norm)
            if not isfinite(loss) or overflowed and scale <= 1:
                self._launched.clear()
                raise DivergedError(f"loss {loss} and gradient norm {norm} at step {step} with "
                                    f"learning rate {rate:.2e}; start again with a lower "
                                    "learning_rate or a longer warmup")
            tokens = self.config.batch_size * self.config.context
            speed = tokens / seconds
            entry = {
                "step": step,
                "tokens": step * tokens,
                "loss": loss,
                "learning_rate": rate,
                "grad_norm": None if overflowed else norm,
                "seconds": seconds,
                "tokens_per_second": speed,
            }
            if self.scaler.is_enabled():
                entry["loss_scale"] = scale
            if self._mfu_per_speed:
                entry["mfu"] = speed * self._mfu_per_speed
            self.log.append(entry)

    def _checkpoint_is_due(self):
        interval = 60 * self.config.checkpoint_minutes
        # The first comes early, so that a short run can be resumed too.
        if self._saved_at is None:
            return self.seconds >= min(interval, 30)
        return self.seconds - self._saved_at >= interval

    def _evaluate(self, entry, validate, sample):
        """Add the held-out loss, a sample, or both to the entry of a step."""
        config = self.config
        model = self.model
        compiler_stance = nullcontext()
        # Validation and sampling have other shapes, for which compiling would take minutes.
        if config.compile != "no":
            compiler_stance = torch.compiler.set_stance("force_eager")
        with compiler_stance, evaluating(model):
            if validate:
                with autocast(self.device, self.precision):
                    entry["validation_loss"] = held_out_loss(
                        model, self.corpus.validation, config.context, config.eval_windows,
                        end_of_text=self.end_of_text
                    )
            if sample and self.group.is_main:
                ids = self.tokenizer.encode(config.prompt)
                prompt = torch.tensor([ids], device=self.device)
                # One seed for all steps, so that samples differ by the weights alone.
                drawn = model.generate(prompt, 64, temperature=0.8, seed=config.seed)
                entry["sample"] = self.tokenizer.decode(drawn[0].tolist())

    def _write_log(self, bar):
        """Write new entries to log.jsonl, and update the progress bar."""
        new = self.log[self._written:]
        if not new or not self.group.is_main:
            return
        if self.out:
            # A resumed run repeats the steps after its checkpoint, so the old log is replaced.
            mode = "a" if self._written else "w"
            with open(self.out / "log.jsonl", mode, encoding="utf-8") as file:
                for entry in new:
                    file.write(json.dumps(entry) + "\n")
        self._written = len(self.log)
        held_out = new[-1].get("validation_loss")
        if held_out is not None:
            loss = new[-1]["loss"]
            line = f"step {self.step}, loss {loss:.3f} in training, {held_out:.3f} held out"
            bar.set_postfix_str(line)
            # Where there is no bar, as in a log file, the line is printed.
            if bar.disable and self.config.progress:
                print(line, flush=True)
        bar.update(min(1, self.used) - bar.n)

    def _finish(self, path):
        """Write the model, then run.json, which marks the run as finished."""
        self.model.save_pretrained(self.out / "model")
        corpus = self.corpus
        log = self.log
        # The digest tells whether another run read the same text.
        data = {
            "source": str(corpus.source),
            "tokenizer": self.tokenizer.name,
            "digest": corpus.digest,
            "train_tokens": len(corpus.train),
            "validation_tokens": len(corpus.validation),
        }
        versions = {
            "caracal_min": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        }
        device = self.device.type
        if device == "cuda":
            device = torch.cuda.get_device_name(self.device)
        # A plot needs about a thousand points, but every validation loss and sample.
        stride = ceil(len(log) / 1000)
        curve = [
            entry for entry in log
            if entry["step"] % stride == 0
            or entry is log[-1]
            or "validation_loss" in entry
            or "sample" in entry
        ]
        run = {
            "config": vars(self.config),
            "tokens": log[-1]["tokens"],
            "steps": self.step,
            "epochs": self.batches.epochs(self.step),
            "seconds": self.seconds,
            "parameters": self.model.num_parameters(),
            "precision": self.settings["precision"],
            "device": device,
            "versions": versions,
            "data": data,
            "history": self.history,
            "curve": curve,
        }
        # Written last and renamed at the end, so that its presence means a finished run.
        with writing(path) as partial:
            partial.write_text(json.dumps(run, default=str) + "\n", encoding="utf-8")


@contextmanager
def _stopping_signals():
    """Collect SIGINT and SIGTERM in a list while the body runs, instead of ending the process."""
    received = []

    def collect(number, _):
        # Whoever presses Ctrl-C twice does not want to wait for the step.
        if received:
            raise KeyboardInterrupt
        received.append(number)

    old_handlers = {}
    # Python sets signal handlers in its main thread only; in others a run ignores signals.
    if current_thread() is main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            old_handlers[number] = signal.signal(number, collect)
    try:
        yield received
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)


def _require_same_tokenizer(model_tokenizer, text_tokenizer, model_name):
    """Refuse weights that were trained on other ids."""
    if model_tokenizer and tokenizer_sha256(model_tokenizer) != tokenizer_sha256(text_tokenizer):
        raise ValueError(f"{model_name} was trained with the tokenizer {model_tokenizer.name}, and "
                         f"the text is read with {text_tokenizer.name}, whose ids mean other text; "
                         "give the same tokenizer, and the preset of that model")
