"""The settings of a training run, `TrainConfig`, and the learning rate that follows from them."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil, cos, pi
from pathlib import Path
from typing import Any, Literal

from ..config import VARIANTS, CaracalConfig, Precision, find_preset, require_known

__all__ = ["TrainConfig", "learning_rate", "model_changes"]

# A resumed run may change these: paths, speed and output do not touch the curve.  The data is
# compared by its digest instead, so that a file can be moved.
_FREE = {"data", "validation", "out", "micro_batch_size", "eval_every", "checkpoint_minutes",
         "prompt", "device", "compile", "peak_flops", "timeout", "progress"}
_MAY_BE_ZERO = {"warmup", "final_fraction", "weight_decay", "beta1", "beta2", "seed",
                "checkpoint_minutes"}
# The paper has no models of these sizes; its rate and batch are for larger ones.
_RECIPES = {
    "nano": dict(data="embedded", tokenizer="byte", tokens=786_432, context=256, batch_size=4,
                 micro_batch_size=4, learning_rate=3e-3, precision="float32", eval_every=64),
    "micro": dict(tokenizer="gpt2:4096", tokens=31_000_000, context=256, batch_size=16,
                  micro_batch_size=16, optimizer="muon", learning_rate=3e-3, warmup=0.04,
                  final_fraction=0.0),
}


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training run.  The defaults are the paper's recipe (Section 5.1), for tiny to
    large; `TrainConfig.for_preset` has those of every preset, also of nano and micro.

    Raises:
        ValueError: an unknown preset, variant, optimizer or field of the model, a negative number,
            or a batch that is no multiple of the micro-batch.
    """

    preset: str = "tiny"
    """Size of the model: nano, micro, tiny, small, medium or large."""
    variant: str = "default"
    """Ablation of the paper: no-swa, no-swa-no-pc, pe, sslp, or a ratio of Fourier to attention
    layers, 5:1, 3:1, 2:1 or 1:1."""
    start: str | None = None
    """Trained model whose weights to start from: micro or the folder of a finished run, which on
    the command line bring their preset and tokenizer; or another folder, or "owner/name" on the
    hub, which need both options.  A resumed run no longer reads it.  None: weights are drawn."""
    model: tuple[str, ...] = ()
    """Fields of CaracalConfig that replace the preset's, as name=value: window_size=128
    gate_length=256 fourier_per_attention=None."""
    data: str = "fineweb"
    """embedded (Python's documentation), fineweb (streamed from the network), a parquet / jsonl /
    jsonl.xz / jsonl.gz file with column text, a txt file in UTF-8, a folder of such files, or one
    that tokenize wrote.  One document in 20, by a hash of its text, is never trained on; a txt file
    is cut into documents of some 4 KiB."""
    validation: str | None = None
    """Another source to validate on, all of it, that shares no document with data.  None: what is
    held out of data."""
    tokenizer: str = "gpt2"
    """byte, gpt2, gpt2:N (GPT-2's first N - 1 ids and an end of text), or a tokenizer.json."""
    out: Path | None = None
    """Folder of the run, for checkpoint, log and model; several machines need one that all of them
    see.  The same command resumes a run that was stopped.  None: everything stays in memory."""
    tokens: int = 10_000_000_000
    """Budget: tokens to train on.  A run may be extended: with a larger budget it is resumed, reads
    the same text on, and its learning rate jumps to where the longer schedule is at that step."""
    minutes: float | None = None
    """Budget: minutes to train for, which may grow too.  The budget that is used up first ends the
    run.  The learning rate then follows the time, so a resumed run has other rates than one that
    was never stopped."""
    corpus_tokens: int | None = None
    """Tokens to read from the source.  None: as many as the first budget, and at least 10 million,
    so that a short run is not left with too little text that is held out."""
    context: int = 512
    """Tokens per sequence."""
    reset_documents: bool = False
    """Read each document of a sequence as if it stood alone, when the loss is validated too; an end
    of text is the last token of a document.  Off: a sequence is one text, as in the paper."""
    batch_size: int = 1024
    """Sequences per step, over all processes."""
    micro_batch_size: int = 32
    """Sequences per forward pass of a process; a step accumulates their gradients."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """adamw, or muon: Muon for the matrices between layers, AdamW for the rest, at one learning
    rate."""
    learning_rate: float = 9e-4
    """Peak learning rate."""
    warmup: float = 0.0375
    """Fraction of the budget for the linear warm-up."""
    final_fraction: float = 0.1
    """Final learning rate of the cosine decay, as a fraction of the peak; the paper does not state
    it."""
    weight_decay: float = 0.1
    """Decoupled weight decay of matrices and short convolutions; vectors and long kernels have
    none."""
    beta1: float = 0.9
    """AdamW β₁."""
    beta2: float = 0.95
    """AdamW β₂."""
    clip: float = 1.0
    """Largest norm of the gradient; a larger one is scaled down to it."""
    seed: int = 0
    """Seed of the initial weights and of the order of the data."""
    eval_every: int = 100
    """Steps between validations."""
    eval_windows: int = 64
    """Sequences per validation."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints; the first comes after 30 seconds.  0: one after every step."""
    prompt: str = ""
    """Prompt for samples after steps 1, 2, 4, 8, ... and the last; empty: no samples."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, ..."""
    precision: Precision = "auto"
    """Autocast type of the matrix products: auto (the fastest that the device has units for),
    bfloat16, float16 (with a gradient scaler) or float32."""
    compile: Literal["no", "blocks", "model"] = "no"
    """What torch.compile compiles: nothing, each kind of block, or the whole model, which takes
    longer."""
    peak_flops: float | None = None
    """Peak operations per second of the device, for the utilisation (MFU).  None: known for common
    GPUs."""
    timeout: float = 10.0
    """Timeout of gloo and NCCL in minutes, where several processes train together."""
    progress: bool = True
    """Show a progress bar, or, where the output is no terminal, a line for each validation."""

    def __post_init__(self):
        # Python does not check a Literal: a misspelt optimizer would silently mean AdamW.
        require_known("variant", self.variant, VARIANTS)
        require_known("optimizer", self.optimizer, ("adamw", "muon"))
        for name, value in vars(self).items():
            # isinstance would take a bool for an int, and False for a zero.
            if type(value) not in (int, float):
                continue
            if value < 0 or value == 0 and name not in _MAY_BE_ZERO:
                raise ValueError(f"{name}={value}; give a positive number")
        self.rows_per_process(1)
        self.model_config(vocab_size=256)

    @classmethod
    def for_preset(cls, preset: str, **changes: Any) -> "TrainConfig":
        """Return the recipe of a preset with some fields changed.

        nano trains on bytes of the embedded corpus, in float32, so that machines differ by rounding
        alone: it is too small to gain by less.  micro trains on short tokens with Muon, and its
        rate falls to 0.  The sizes of the paper follow the paper.

        Example:
            >>> config = TrainConfig.for_preset("nano", tokens=4096)
            >>> config.data, config.steps
            ('embedded', 4)
        """
        recipe = _RECIPES.get(preset, {})
        return cls(**({"preset": preset} | recipe | changes))

    def model_config(self, vocab_size: int) -> CaracalConfig:
        """Return the shape of the model: the preset, changed by `variant` and `model`."""
        changes = VARIANTS[self.variant] | model_changes(self.model)
        # The tokenizer sets the vocabulary, so nobody else may.
        accepted = CaracalConfig.__annotations__.keys() - {"vocab_size"}
        if unknown := changes.keys() - accepted:
            raise ValueError(f"a model has no setting {min(unknown)!r}; accepted: "
                             f"{', '.join(sorted(accepted))}")
        preset = find_preset(self.preset)
        shape = replace(preset, vocab_size=vocab_size, **changes)
        longest = self.context
        # Learned positions are weights: the paper's number of them, even for a shorter context.
        if shape.positional_encoding == "learned":
            longest = max(longest, shape.max_positions)
        return replace(shape, max_positions=longest)

    @property
    def resume_settings(self) -> dict[str, Any]:
        """The settings that decide the curve: a run is resumed only under the same.

        When it is validated, and whether samples are drawn, changes none of its numbers.  On how
        many windows does, since then the curve would not be of one quantity.
        """
        settings = dict(vars(self))
        # Listing the free ones means that a new field is compared unless someone decides otherwise.
        for name in _FREE:
            del settings[name]
        return settings

    def rows_per_process(self, processes: int) -> int:
        """Return how many sequences of a batch each process takes."""
        # Every process does the same number of micro-batches, or the others would wait for it.
        together = self.micro_batch_size * processes
        if self.batch_size % together:
            raise ValueError(f"batch_size={self.batch_size} is no multiple of {together} "
                             "(micro_batch_size x processes); change one of them")
        return self.batch_size // processes

    @property
    def corpus_limit(self) -> int:
        """Tokens to read from the source: `corpus_tokens`, or what None there means."""
        # Short runs then read the same text as long ones, so they can be compared.
        return self.corpus_tokens or max(self.tokens, 10_000_000)

    @property
    def steps(self) -> int:
        """Steps that the token budget buys, at least one."""
        per_step = self.batch_size * self.context
        return max(1, self.tokens // per_step)

    def used(self, step: int, seconds: float, first: float = 0.0) -> float:
        """Return the part of the budget that is used up, 0 to 1 or more.

        Args:
            step: steps done.
            seconds: time used so far, of `minutes`.
            first: seconds that count nothing; then the budget is shorter by as much.
        """
        part = step / self.steps
        # The budget that is used up first ends the run, so it decides the schedule too.
        if self.minutes is not None:
            budget = 60 * self.minutes - first
            part = max(part, (seconds - first) / budget)
        return part


def model_changes(texts: Iterable[str]) -> dict[str, Any]:
    """Return names and values of some texts of the form name=value.

    Example:
        >>> model_changes(["window_size=128", "gate=single_stage", "fourier_per_attention=None"])
        {'window_size': 128, 'gate': 'single_stage', 'fourier_per_attention': None}
    """
    changes: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        # literal_eval reads numbers, True and None, and never runs code.
        try:
            changes[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):  # a bare word such as single_stage is a string
            changes[name] = value
    return changes


def learning_rate(step: int, config: TrainConfig, seconds: float = 0.0,
                  first: float = 0.0) -> float:
    """Return the learning rate of step 0, 1, ...: a linear warm-up, then a cosine.

    Args:
        step: steps done before this one.
        config: peak, warm-up, final fraction and budgets.
        seconds: time used so far.  Under a budget in minutes the schedule follows it where it is
            further ahead.
        first: seconds of the first step of each process, which are left out: a compiler may need
            more than the warm-up lasts.

    Source: Caracal, Section 5.1.
    """
    steps = config.steps
    peak = config.learning_rate
    # Under a budget in minutes the position lies between two steps.
    position = config.used(step, seconds, first) * steps
    warmup = ceil(config.warmup * steps)
    # Position + 1, because a rate of zero would waste the first step.
    if position < warmup:
        return peak * min(1.0, (position + 1) / warmup)
    progress = (position - warmup) / max(1, steps - warmup)
    # Without the bound, the rate of a run past its budget would rise again.
    angle = pi * min(1.0, progress)
    cosine = 0.5 * (1 + cos(angle))
    final = config.final_fraction
    return peak * (final + (1 - final) * cosine)
