"""A small model around any mixers, and how it learns a task: the same for all contenders but for the mixers::

    ids [B, L] -> embedding -> blocks (mixer, SwiGLU; pre-norm) -> norm -> logits at the positions with a target

`CONTENDERS` says which mixers stand in the two blocks; `learn` trains one of them once.
"""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from caracal_min.layers import Block

from .grid import require_known
from .mixers import make_mixer
from .task import IGNORED, Batch, Task

__all__ = ["CONTENDERS", "Contender", "Learner", "Lesson", "answers", "learn", "make_contender", "measure"]


class Contender(NamedTuple):
    """What stands in the two blocks, and what goes into them."""

    mixers: tuple[str, str]
    """Names of `mixers.MIXERS`, first block first."""
    window: int = 0
    """Keys that a window layer sees; 0: there is none."""
    positions: bool = False
    """Whether a learned vector for each position is added to the embedding, as in GPT-2 (absolute positions)."""


CONTENDERS: dict[str, Contender] = {
    "fourier": Contender(("fourier", "fourier")),
    "fourier-window": Contender(("fourier", "window"), 12),
    "fourier-short-window": Contender(("fourier", "window"), 4),
    "static-window": Contender(("static", "window"), 12),
    "window": Contender(("window", "window"), 12),
    "attention": Contender(("attention", "attention")),
    "attention-no-positions": Contender(("attention-no-positions", "attention-no-positions")),
    "attention-absolute": Contender(("attention-no-positions", "attention-no-positions"), positions=True),
    "attention-taps": Contender(("attention-taps", "attention-taps")),
    "attention-taps-absolute": Contender(("attention-taps-no-positions", "attention-taps-no-positions"),
                                         positions=True),
    "attention-taps-places": Contender(("attention-taps", "attention-taps"), positions=True),
    "static": Contender(("static", "static")),
    "gated-static": Contender(("gated-static", "gated-static")),
    "fourier-no-pc": Contender(("fourier-no-pc", "fourier-no-pc")),
    "fourier-single-stage": Contender(("fourier-single-stage", "fourier-single-stage")),
    "linear-attention": Contender(("linear-attention", "linear-attention")),
    "delta-rule": Contender(("delta-rule", "delta-rule")),
}
"""Contenders by name."""


@dataclass(frozen=True)
class Lesson:
    """How a contender learns, whichever it is: the size of the model, and of its training.

    Raises:
        ValueError: a field out of range, in one line.
    """

    d_model: int = 64
    """Width of the model."""
    n_heads: int = 4
    """Heads of every mixer."""
    hidden: int = 128
    """Channels of the SwiGLU."""
    init_std: float = 0.1
    """Standard deviation of the initial embedding and of linear maps; convolutions are drawn as PyTorch does."""
    steps: int = 1500
    """Most steps of AdamW; the learning rate rises over the first 5 %, stays, and falls to 0 over the last 20 %."""
    batch_size: int = 64
    """Fresh texts a step."""
    points: int = 15
    """Measurements of the accuracy, evenly spaced up to the end.  A run without a mistake ends at its measurement."""
    texts: int = 1024
    """Held-out texts to measure on, at least two, the same for all contenders and seeds."""

    def __post_init__(self):
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model={self.d_model} is not divisible by n_heads={self.n_heads}; "
                             "choose a width that is a multiple of the heads")


class Learner(nn.Module):
    """Blocks of mixers between an embedding and an output layer.

    Args:
        task: what it is to learn; decides the number of ids.
        mixers: one for each block, e.g. from `mixers.make_mixer`; all of one width.
        hidden: channels of the SwiGLU.
        init_std: of the initial embedding and linear maps.
        positions: whether a learned vector for each position of a text is added to the embedding.
    """

    def __init__(self, task: Task, mixers: list[nn.Module], hidden: int, init_std: float = 0.1,
                 positions: bool = False):
        super().__init__()
        width = mixers[0].d_model
        self.embedding = nn.Embedding(task.vocab_size, width)
        self.positions = nn.Embedding(task.length, width) if positions else None
        self.blocks = nn.ModuleList(Block(mixer, hidden) for mixer in mixers)
        self.norm = nn.LayerNorm(width)
        self.to_logits = nn.Linear(width, task.vocab_size, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=init_std)
                if getattr(module, "bias", None) is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logits `[n, vocab_size]` at the n positions with a target, and the targets, `[n]`."""
        x = self.embedding(batch.ids)
        if self.positions is not None:
            x = x + self.positions.weight[:x.shape[1]]
        for block in self.blocks:
            x = block(x)
        queried = batch.targets != IGNORED
        return self.to_logits(self.norm(x)[queried]), batch.targets[queried]


def make_contender(name: str, task: Task, lesson: Lesson, seed: int = 0) -> Learner:
    """Build a freshly initialised contender; the seed decides the weights.

    Raises:
        ValueError: there is no such contender, in one line.
    """
    require_known("contender", (name,), CONTENDERS)
    chosen = CONTENDERS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built = [make_mixer(mixer, lesson.d_model, lesson.n_heads, task.length, chosen.window or 1)
                 for mixer in chosen.mixers]
        return Learner(task, built, lesson.hidden, lesson.init_std, chosen.positions)


def learn(contender: str, task: Task, learning_rate: float, seed: int, lesson: Lesson | None = None,
          ablations: Mapping[str, Callable[["Learner"], AbstractContextManager]] | None = None) -> dict:
    """Train a contender once on fresh texts, and return what it learned.

    The seed decides the weights and the texts; held-out texts are the same for all.

    Args:
        contender: a key of `CONTENDERS`.
        learning_rate: peak learning rate.
        lesson: size of the model and of its training; None: the defaults.
        ablations: from `surgery`, by name; measured on the trained model, over the held-out texts in one batch.

    Returns:
        `accuracy` on held-out texts and `loss`, in nats per answer, at the end; `curve`, a list of [step,
        loss, accuracy]; `parameters`; `seconds`; `operated`, the accuracy under each ablation.  A run ends
        early when it makes no mistake on the held-out texts, and when it diverges, with a loss of None.

        Where the task has probes (`Task.probes`), `probes`: the accuracy on each.

        Where the task has distances (`Task.distances`), `by_distance` too: `distances`, in tokens, `answers`, how
        many there are at each, and the accuracy at each, `curve` for every point of the curve and `operated`
        under each ablation.

    Raises:
        ValueError: there is no such contender, in one line.
    """
    lesson = lesson or Lesson()
    started = time.perf_counter()
    model = make_contender(contender, task, lesson, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    texts = Generator().manual_seed(1_000_003 * seed + 1)
    held_out, curve = task.draw(lesson.texts, Generator().manual_seed(0)), []
    far, near = task.distances(held_out), []
    rise, fall = math.ceil(0.05 * lesson.steps), math.ceil(0.2 * lesson.steps)
    measured = {math.ceil(lesson.steps * (i + 1) / lesson.points) for i in range(lesson.points)}
    for step in range(1, lesson.steps + 1):
        optimizer.param_groups[0]["lr"] = learning_rate * min(step / rise, 1, (lesson.steps + 1 - step) / fall)
        loss = F.cross_entropy(*model(task.draw(lesson.batch_size, texts)))
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not torch.isfinite(norm):
            curve.append([step, None, 0.0])
            near.append([] if far is None else [0.0] * len(far.unique()))
            break
        optimizer.step()
        if step in measured:
            losses, right = answers(model, held_out, lesson.batch_size)
            curve.append([step, *_means(losses, right)])
            near.append(_by_distance(right, far))
            if curve[-1][2] == 1.0:
                break
    _, loss, accuracy = curve[-1]
    operated, operated_near = {}, {}
    for name, ablation in (ablations or {}).items():
        with ablation(model):
            losses, right = answers(model, held_out, lesson.texts)
        operated[name], operated_near[name] = _means(losses, right)[1], _by_distance(right, far)
    run = {"accuracy": accuracy, "loss": loss, "curve": curve, "operated": operated,
           "parameters": sum(p.numel() for p in model.parameters())}
    if probes := task.probes():
        run["probes"] = {name: measure(model, probe, lesson.batch_size)[1] for name, probe in probes.items()}
    if far is not None:
        distances, counts = far.unique(return_counts=True)
        run["by_distance"] = {"distances": distances.tolist(), "answers": counts.tolist(),
                              "curve": near, "operated": operated_near}
    return run | {"seconds": time.perf_counter() - started}


@torch.inference_mode()
def answers(model: Learner, texts: Batch, batch_size: int = 64) -> tuple[Tensor, Tensor]:
    """Return the loss of each answer, in nats, and whether it is right, bool: `[n]` each, in the order of the texts."""
    losses, right = [], []
    for ids, targets in zip(texts.ids.split(batch_size), texts.targets.split(batch_size), strict=True):
        logits, wanted = model(Batch(ids, targets))
        losses.append(F.cross_entropy(logits, wanted, reduction="none"))
        right.append(logits.argmax(-1) == wanted)
    return torch.cat(losses), torch.cat(right)


def measure(model: Learner, texts: Batch, batch_size: int = 64) -> tuple[float | None, float]:
    """Return loss, in nats per answer (None: not finite), and accuracy on some texts, rounded to five decimals."""
    return _means(*answers(model, texts, batch_size))


def _means(losses: Tensor, right: Tensor) -> tuple[float | None, float]:
    loss = losses.double().mean().item()
    return round(loss, 5) if math.isfinite(loss) else None, round(right.double().mean().item(), 5)


def _by_distance(right: Tensor, far: Tensor | None) -> list[float]:
    """Return the accuracy at each distance that occurs, from the smallest on, to four decimals."""
    return [] if far is None else [round(right[far == d].double().mean().item(), 4) for d in far.unique()]
