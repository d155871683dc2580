"""What a training run is: `TrainConfig`, and the learning rate that follows from it."""

import ast
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ..choices import Precision, check_kind
from ..data.tokenizers import Tokenizer, require_tokenizer_name
from .settings import require_kinds, require_range, require_text, require_unicode

__all__ = ["TrainConfig", "learning_rate", "model_changes"]

# What may be another when a run goes on.  The text is compared by the hash of its tokens, not by where it lies.
_FREE = {"data", "validation", "out", "progress", "device", "compile", "peak_flops", "tensorboard", "micro_batch_size",
         "timeout", "checkpoint_minutes", "eval_every", "prompt"}
_POSITIVE = ("tokens", "corpus_tokens", "context", "batch_size", "micro_batch_size", "eval_every", "eval_windows")


@dataclass(frozen=True)
class TrainConfig:
    """A training run, from its beginning or from where it was stopped.  tiny to large have the paper's recipe (Section
    5.1), nano and micro one of their own.

    Raises:
        ValueError: a field out of range, in one line.
    """

    preset: str = "tiny"
    """Size of the model: nano, micro, tiny, small, medium or large."""
    architecture: str = "caracal"
    """caracal, or a baseline of the paper: llama, mamba, mamba2, jamba."""
    variant: str = "default"
    """Ablation of the paper, for caracal: no-swa, no-swa-no-pc, pe, sslp, or a ratio of Fourier to attention layers,
    5:1, 3:1, 2:1 or 1:1."""
    start: str | None = None
    """Trained model to start from, of the same size, architecture and tokenizer: folder of a run or of a model, or
    "owner/name" on the hub.  A run that goes on no longer needs it.  None: weights are drawn with the seed."""
    model: tuple[str, ...] = ()
    """Fields of CaracalConfig that replace the preset's, as name=value: window_size=128 gate_length=256
    fourier_per_attention=None.  For a baseline: d_model, n_layers and n_heads."""
    data: str = "fineweb"
    """embedded (Python's documentation), fineweb (streamed from the network), a parquet / jsonl / jsonl.xz /
    jsonl.gz file with column text, a txt file in UTF-8, a folder of such files, or one that tokenize wrote.  One
    document in 20, by a hash of its text, is never trained on; a txt file is cut into documents of some 4 KiB."""
    validation: str | None = None
    """Another source to validate on, all of it, that shares no document with data.  None: what is held out of data."""
    tokenizer: str = "gpt2"
    """byte, gpt2, or gpt2:N, GPT-2's first N - 1 ids and an end of text; the model has as many ids as it."""
    out: Path | None = None
    """Folder of the run, for checkpoints, log, model and record; several machines need one that all of them see.  The
    same command resumes a run that was stopped.  None: everything stays in memory."""
    tokens: int = 10_000_000_000
    """Budget: tokens to train on."""
    minutes: float | None = None
    """Budget: minutes to train for.  The run and its schedule end with the budget that is used up first."""
    corpus_tokens: int | None = None
    """Tokens to read from the source.  None: as many as the budget; for nano 10 million, or more with the budget."""
    context: int = 512
    """Tokens per sequence."""
    reset_documents: bool = False
    """Read each document of a sequence as if it stood alone, when the loss is validated too; an end of text is the last
    token of a document.  Off: a sequence is one text, as in the paper."""
    batch_size: int = 1024
    """Sequences per step, over all processes."""
    micro_batch_size: int = 32
    """Sequences per forward pass of a process; a step accumulates their gradients."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """adamw, or muon: Muon for the matrices between layers, AdamW for the rest, at one learning rate."""
    learning_rate: float = 9e-4
    """Peak learning rate."""
    warmup: float = 0.0375
    """Fraction of the budget for the linear warm-up."""
    final_fraction: float = 0.1
    """Final learning rate of the cosine decay, as a fraction of the peak; the paper does not state it."""
    weight_decay: float = 0.1
    """Decoupled weight decay of matrices and short convolutions; vectors, long kernels and Mamba's A_log have none."""
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
    """Minutes between checkpoints; 0: one after every step.  The last step, and a signal, write one too."""
    prompt: str = ""
    """Prompt for samples after steps 1, 2, 4, 8, ... and the last; empty: no samples."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, ..."""
    precision: Precision = "auto"
    """Autocast type of the matrix products: auto (the fastest that the device has units for), bfloat16, float16 (with a
    gradient scaler) or float32."""
    compile: Literal["no", "blocks", "model"] = "no"
    """What torch.compile compiles: nothing, each kind of block, or the whole model, which takes longer."""
    peak_flops: float | None = None
    """Peak operations per second of the device, for the utilisation (MFU).  None: known for common GPUs."""
    tensorboard: bool = False
    """Write TensorBoard event files too."""
    timeout: float = 10.0
    """Timeout of gloo and NCCL in minutes, where several processes train together."""
    progress: bool = True
    """Show a progress bar."""

    def __post_init__(self):
        require_kinds(self)
        check_kind(self.architecture, self.preset, self.variant, model_changes(self.model))
        require_tokenizer_name(self.tokenizer)
        require_text(self, ("data", "validation", "start"))
        require_unicode(self, ("prompt",))
        require_range(self, _POSITIVE, low=1)
        self.share(1)
        require_range(self, ("learning_rate", "clip", "minutes", "peak_flops"), above=0)
        require_range(self, ("timeout",), above=0, high=1e6)
        require_range(self, ("warmup", "final_fraction"), low=0, high=1)
        require_range(self, ("beta1", "beta2"), low=0, below=1)
        require_range(self, ("weight_decay", "seed", "checkpoint_minutes"), low=0)
        if self.prompt and self.architecture != "caracal":
            raise ValueError(f"prompt={self.prompt!r} with architecture={self.architecture!r}; "
                             "samples while training are drawn from caracal only")

    @classmethod
    def for_preset(cls, preset: str, **changes: Any) -> "TrainConfig":
        """Return the recipe of a preset with some fields changed.

        nano trains on bytes of the embedded corpus, in float32, so that machines differ by rounding alone: it is too
        small to gain by less.  micro trains on short tokens with Muon, and its rate falls to 0.  The sizes of the paper
        follow the paper.

        Example:
            >>> config = TrainConfig.for_preset("nano", tokens=4096)
            >>> config.data, config.steps
            ('embedded', 4)
        """
        recipe = {"preset": preset}
        if preset == "nano":
            recipe |= dict(data="embedded", tokenizer="byte", tokens=786_432, context=256, precision="float32",
                           batch_size=4, micro_batch_size=4, learning_rate=3e-3, eval_every=64)
        elif preset == "micro":
            recipe |= dict(tokenizer="gpt2:4096", tokens=31_000_000, context=256, batch_size=16, micro_batch_size=16,
                           optimizer="muon", learning_rate=3e-3, warmup=0.04, final_fraction=0.0)
        return replace(cls(), **(recipe | changes))

    @property
    def resume_settings(self) -> dict[str, Any]:
        """The settings that decide the curve: a run is resumed only under the same.

        When it is validated, and whether samples are drawn, changes none of its numbers.  On how many windows does,
        since then the curve would not be of one quantity.
        """
        return {name: value for name, value in vars(self).items() if name not in _FREE}

    def share(self, processes: int) -> int:
        """Return how many sequences of a batch each process takes; ValueError if they are no whole micro-batches."""
        together = self.micro_batch_size * processes
        if self.batch_size % together:
            times = f"micro_batch_size x processes = {together}" if processes > 1 else f"micro_batch_size={together}"
            raise ValueError(f"batch_size={self.batch_size} is not a multiple of {times}; change one of them")
        return self.batch_size // processes

    def end_of_documents(self, tokenizer: Tokenizer) -> int | None:
        """Return the id that ends a document where documents are reset, else None.

        Raises:
            ValueError: the tokenizer has no such id.
        """
        if self.reset_documents and getattr(tokenizer, "end_of_text", None) is None:
            raise ValueError(f"reset_documents=True, and the tokenizer {tokenizer.name} has no end_of_text to find "
                             "documents by; give it one, or reset_documents=False")
        return tokenizer.end_of_text if self.reset_documents else None

    @property
    def corpus_limit(self) -> int:
        """Tokens to read from the source: `corpus_tokens`, or what None there means."""
        return self.corpus_tokens or max(self.tokens, 10_000_000 if self.preset == "nano" else 1)

    @property
    def steps(self) -> int:
        """Steps that the token budget buys, at least one."""
        return max(1, self.tokens // (self.batch_size * self.context))

    def time_used(self, seconds: float, first: float = 0.0) -> float:
        """Return the part of the budget in minutes that some seconds are, without the first ones; 0 without one."""
        return 0.0 if self.minutes is None else (seconds - first) / max(60 * self.minutes - first, 1e-9)


def model_changes(texts: Iterable[str]) -> dict[str, Any]:
    """Return names and values of some texts of the form name=value.

    Raises:
        ValueError: one has another form, or names what another has named.

    Example:
        >>> model_changes(["window_size=128", "gate=single_stage", "fourier_per_attention=None"])
        {'window_size': 128, 'gate': 'single_stage', 'fourier_per_attention': None}
    """
    changes: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name in changes:
            raise ValueError(f"model={text!r}; give fields of CaracalConfig once each, as name=value")
        try:
            changes[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):  # a word
            changes[name] = value
    return changes


def learning_rate(step: int, config: TrainConfig, seconds: float = 0.0, first: float = 0.0) -> float:
    """Return the learning rate of step 0, 1, ...: linear over `warmup`, then a cosine to `final_fraction` of the peak.

    Under a budget in minutes the schedule follows the time used, `seconds`, where that is further ahead.  `first` of
    them are left out, those of the first step of each process: a compiler may need more than the warm-up lasts.

    Source: Caracal, Section 5.1.
    """
    place = max(step, config.time_used(seconds, first) * config.steps)
    rising = math.ceil(config.warmup * config.steps)
    if place < rising:
        return config.learning_rate * min(1.0, (place + 1) / rising)
    progress = (place - rising) / max(1, config.steps - rising)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return config.learning_rate * (config.final_fraction + (1 - config.final_fraction) * cosine)
