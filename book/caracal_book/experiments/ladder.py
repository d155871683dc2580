"""The gate ladder: one hybrid, whose long kernel alone differs from rung to rung::

    none            lag 0 alone, so no long convolution: short convolutions and windows mix tokens
    written         the text writes its kernel, as published
    written-fading   that, times exp(-i / c), with a learned reach c for each channel
    exchanged       that, and each text has the kernel of the text before it in the batch, in training too
    learned         a kernel for each channel, the same for all texts, as large at first as a written one
    learned-fading   that, times exp(-i / c)
    products-fading  q * (h conv (k * v)): h a learned, fading kernel, q and k written token by token, as in Hyena
    relative-fading  weight k is the mean of b_i . a_(i-k) over the tokens i so far: written by the text, wherever it
                     begins, and one kernel for each head and output; after Orchid's equivariant kernel, and causal

All rungs share sizes, text, batches, seeds and recipe (nano with Muon), and the weights that they have in common start
alike.  Every rung runs at every rate with the first seed, then at its best rate with the others.  Each run that ends is
a line of `runs.jsonl`, so a stop loses the run in progress alone, and the same command does what is left.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from caracal_min.config import CaracalConfig, find_preset
from caracal_min.convolution import causal_conv_fft
from caracal_min.data.batches import Corpus, load_corpus, sequential_windows
from caracal_min.evaluation import token_losses
from caracal_min.layers import MultiHeadFourier
from caracal_min.model import Caracal
from caracal_min.training import DivergedError, TrainConfig, Trainer

from ..measured import data_of
from ..records import code, machine, write_record
from .grid import one_thread, standings

__all__ = ["RUNGS", "LadderConfig", "Rung", "make_rung", "run_ladder"]


class Rung(MultiHeadFourier):
    """A Fourier layer with another kernel; whole texts only.

    Args:
        size: of the model.
        length: tokens of the training length; a learned kernel ends there.
        cut: the kernel has lag 0 alone.
        learned: the kernel is a parameter and not written by the text.
        fading: it is multiplied by exp(-i / c); c starts from 1 to `length`, growing geometrically with the channel.
        exchanged: each text has the kernel of the text before it in the batch.
        products: v is multiplied by k before, and r by q after the convolution.
        relative: the kernel is the running autocorrelation of the text, in each head.

    Attributes:
        writes: whether the text writes a kernel of more than one lag.
        alter: what is done to the kernel `[B, ..., L]` before it fades; None: nothing.  For ablations.
    """

    features = 8  # of a and of b, for each head

    def __init__(self, size: CaracalConfig, length: int, cut: bool = False, learned: bool = False,
                 fading: bool = False, exchanged: bool = False, products: bool = False, relative: bool = False):
        super().__init__(size.d_model, size.n_heads, gate_length=1 if cut else None)
        width = size.d_model
        self.exchanged = exchanged
        self.writes = not (cut or learned)
        self.alter: Callable[[Tensor], Tensor] | None = None
        self.kernel = self.log_reach = self.to_products = self.to_pair = None
        if learned or relative:
            self.gate_length = 0  # the base class then computes no gate
            self.to_gate = self.gate_mix = None
        if learned:
            # A fresh written gate has this size: SiLU halves small numbers.
            written = size.init_std ** 2 * (width * width / size.n_heads) ** 0.5 / 2
            self.kernel = nn.Parameter(written * torch.randn(width, length))
        if fading:
            reaches = size.n_heads if relative else width
            self.log_reach = nn.Parameter(torch.linspace(0, torch.tensor(float(length)).log().item(), reaches))
        if products:
            self.to_products = nn.Linear(width, 2 * width)
            nn.init.normal_(self.to_products.weight, std=size.init_std)
            nn.init.ones_(self.to_products.bias)  # at first q = k = 1, nearly: a convolution of v
        if relative:
            self.to_pair = nn.Linear(width, 2 * size.n_heads * self.features, bias=False)
            nn.init.normal_(self.to_pair.weight, std=size.init_std)

    def streams(self, x: Tensor, conv_state: Tensor | None = None, start: int = 0) -> tuple[Tensor, Tensor]:
        """Return v and the kernel, `[B, D, L]` each; a kernel that ends is shorter."""
        v, g = super().streams(x, conv_state, start)
        if self.kernel is not None:
            g = self.kernel[:, :v.shape[-1]].expand(len(v), -1, -1)
        if self.exchanged:
            g = g.roll(1, 0)
        return v, self._altered(g)

    def _altered(self, kernel: Tensor) -> Tensor:
        """Alter a kernel `[B, ..., L]`, and let it fade."""
        if self.alter is not None:
            kernel = self.alter(kernel)
        if self.log_reach is None:
            return kernel
        lag = torch.arange(kernel.shape[-1], device=kernel.device)
        fade = torch.exp(-lag / self.log_reach.exp()[:, None])
        return kernel * (fade if kernel.ndim == 3 else fade[:, None])

    def forward(self, x: Tensor, cache: None = None, lengths: None = None) -> Tensor:
        """Mix `[B, L, D]`."""
        if self.to_products is None and self.to_pair is None:
            return super().forward(x, cache, lengths)
        normed = self.norm(self.pre_conv(nn.functional.pad(x, (0, 0, self.kernel_size - 1, 0)).mT).mT)
        if self.to_products is not None:
            q, k = self.to_products(normed).mT.chunk(2, dim=1)
            v, h = self.streams(x)
            return self.to_out((q * causal_conv_fft(k * v, h)).mT)
        a, b, v = (part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
                   for part in (*self.to_pair(normed).chunk(2, dim=-1), self.to_value(normed)))
        t = torch.arange(x.shape[1])
        lag = (t[:, None] - t).clamp(min=0)  # of token j at output t, and the other way round
        past = (t[:, None] >= t).to(x.dtype)
        products = (b @ a.mT).gather(-1, lag.expand(len(x), self.n_heads, -1, -1)) * past
        kernel = self._altered(products.cumsum(-2) / (t[:, None] + 1))  # (B, H, L, lags)
        weights = kernel.gather(-1, lag.expand_as(kernel)) * past
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))


RUNGS: dict[str, dict] = {
    "none": {"cut": True},
    "written": {},
    "written-fading": {"fading": True},
    "exchanged": {"fading": True, "exchanged": True},
    "learned": {"learned": True},
    "learned-fading": {"learned": True, "fading": True},
    "products-fading": {"learned": True, "fading": True, "products": True},
    "relative-fading": {"relative": True, "fading": True},
}
"""Rungs by name, as options of `Rung`."""


def make_rung(name: str, size: CaracalConfig, length: int) -> Caracal:
    """Build a freshly initialised model of a rung; torch's random state decides the weights."""
    model = Caracal(size)
    # Forked, so that what follows draws the same numbers for every rung.
    with torch.random.fork_rng(devices=[]):
        for block in model.blocks:
            if isinstance(block.mixer, MultiHeadFourier):
                weights = block.mixer.state_dict()
                block.mixer = Rung(size, length, **RUNGS[name])
                block.mixer.load_state_dict(weights, strict=False)
    return model


@dataclass(frozen=True)
class LadderConfig:
    """Train one hybrid with different long kernels under one rule, and see what it loses with another text's."""

    out: Path = Path("runs/ladder")
    """Folder of the lines and of the record; the same command goes on."""
    rungs: tuple[str, ...] = ("none", "written", "written-fading", "learned-fading", "exchanged")
    """Names of rungs."""
    learning_rates: tuple[float, ...] = (3e-3, 6e-3, 1.5e-3)
    """Peak learning rates that are tried with the first seed."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the weights and of the order of the data; the best learning rate runs with all of them."""
    tokens: int = 393_216
    """Bytes of the embedded text that each run trains on."""
    eval_every: int = 16
    """Steps between points of the curve."""
    windows: int = 128
    """Held-out windows of the final loss; a quarter of them for the curve, half for the ablations."""
    until: str = ""
    """Time of day, HH:MM in UTC, from which on no run is started."""

    def recipe(self, learning_rate: float, seed: int) -> TrainConfig:
        """Return the settings of a run: nano's own, with Muon."""
        return TrainConfig.for_preset("nano", optimizer="muon", tokens=self.tokens, learning_rate=learning_rate,
                                      seed=seed, eval_every=self.eval_every, eval_windows=self.windows // 4,
                                      device="cpu", progress=False)


@one_thread()
def run_ladder(config: LadderConfig, show: Callable[[str], None] = print) -> dict | None:
    """Run what is left, a line for each run, write the record of all, and return it; None if there is no run.

    Raises:
        ValueError: the lines are of other code, or the record is there.
    """
    recipe = config.recipe(config.learning_rates[0], config.seeds[0])
    corpus = load_corpus(recipe.data, recipe.tokenizer, max_tokens=recipe.corpus_limit, progress=False)
    path = config.out / "runs.jsonl"
    runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    process = {"from_step": len(runs), "started": _now(), "code": code(), "machines": [machine(torch.device("cpu"))]}
    if any(run["process"]["code"]["sha256"] != process["code"]["sha256"] for run in runs):
        raise ValueError(f"{path} holds runs of other code; give another folder, since a ladder is of one trainer")

    def run(name: str, rate: float, seed: int) -> None:
        facts = {"contender": name, "learning_rate": rate, "seed": seed, "sweep": False}
        done = any(facts.items() <= run.items() for run in runs)
        if done or config.until and time.strftime("%H:%M", time.gmtime()) >= config.until:
            return
        runs.append(json.loads(json.dumps(facts | _train(config, corpus, facts) | {"process": process})))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as lines:
            lines.write(json.dumps(runs[-1]) + "\n")
        show(f"{_now()} {name}, rate {rate:g}, seed {seed}: {runs[-1]['loss']} nats in {runs[-1]['seconds']:.0f} s")

    first, *others = config.seeds
    for rate in config.learning_rates:
        for name in config.rungs:
            run(name, rate, first)
    for seed in others:
        for row in standings(runs):
            if row["contender"] in config.rungs and row["learning_rate"] is not None:
                run(row["contender"], row["learning_rate"], seed)
    if not runs:
        return None
    parts = [*{run["process"]["started"]: run["process"] for run in runs}.values()]
    kept = [{name: value for name, value in run.items() if name != "process"} for run in runs]
    return write_record(config.out / "record.json", "forms", vars(config),
                        {"runs": kept, "standings": standings(kept)}, data_of(corpus),
                        sum(run["seconds"] for run in kept), torch.device("cpu"), parts, grown=True)


def _train(config: LadderConfig, corpus: Corpus, facts: dict) -> dict:
    """Train a rung, and return what came of it: curve, final loss, and what an ablation costs along the way."""
    recipe = config.recipe(facts["learning_rate"], facts["seed"])
    torch.manual_seed(facts["seed"])
    model = make_rung(facts["contender"], replace(find_preset("nano"), max_positions=recipe.context), recipe.context)
    windows = sequential_windows(corpus.validation, recipe.context, config.windows)
    written, along, diverged, found = any(layer.writes for layer in _rungs(model)), [], None, {}
    with Trainer(recipe, corpus, model) as trainer:
        try:
            for part in (16, 8, 4, 2, 1):
                trainer.run(until=recipe.steps // part)
                if written and recipe.steps // part:
                    along.append({"step": trainer.step, "rows": _ablated(model, windows[::2])})
        except DivergedError as error:
            diverged = str(error).partition(";")[0]
        log = trainer.log
    if not diverged:
        losses = token_losses(model, windows).double().mean(1)
        found = {"loss": losses.mean().item(), "window_losses": [round(loss, 4) for loss in losses.tolist()],
                 "surgery": _ablated(model, windows[::2]), "loss_by_length": _by_length(model, corpus, recipe.context)}
    times = sorted(entry["seconds"] for entry in log)
    curve = [{name: entry[name] for name in ("step", "tokens", "loss", "validation_loss")} for entry in log
             if "validation_loss" in entry]
    return {"loss": None} | found | {
        "parameters": model.num_parameters(), "steps": len(log), "tokens": log[-1]["tokens"] if log else 0,
        "diverged": diverged, "seconds_per_step": times[len(times) // 2] if times else 0.0, "seconds": sum(times),
        "precision": str(trainer.precision).removeprefix("torch."), "curve": curve, "along": along}


def _rungs(model: Caracal) -> list[Rung]:
    return [block.mixer for block in model.blocks if isinstance(block.mixer, Rung)]


def _ablated(model: Caracal, windows: Tensor) -> list[dict]:
    """Return the loss of a model, whole and with altered kernels, each with its change and the error of that."""
    changes: dict[str, Callable[[Tensor], Tensor] | None] = {"whole": None}
    layers = _rungs(model)
    if any(layer.writes for layer in layers):
        changes["gate of another text"] = lambda g: g.roll(1, 0)
    if any(layer.exchanged for layer in layers):
        changes["own gate"] = lambda g: g.roll(-1, 0)
    changes["gate up to lag 0"] = lambda g: g * (torch.arange(g.shape[-1]) == 0)
    rows: list[dict] = []
    whole = None
    for name, change in changes.items():
        for layer in layers:
            layer.alter = change
        losses = token_losses(model, windows).double().mean(1)
        whole = losses if whole is None else whole
        change_in = losses - whole
        rows.append({"operation": name, "loss": losses.mean().item(), "change": change_in.mean().item(),
                     "error": (change_in.std() / len(windows) ** 0.5).item()})
    for layer in layers:
        layer.alter = None
    return rows


def _by_length(model: Caracal, corpus: Corpus, context: int) -> dict[str, list]:
    """Return the loss over windows of one and of four training lengths, on the same tokens."""
    longest = sequential_windows(corpus.validation, 4 * context, 8)
    found = []
    for length in (context, 4 * context):
        windows = longest.unfold(1, length + 1, length).reshape(-1, length + 1)
        found.append([length, token_losses(model, windows, 8).double().mean().item()])
    return {"whole": found}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
