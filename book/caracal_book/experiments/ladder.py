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
alike.  Every rung runs at every rate with the first seed, then at its best rate with the others, as
`grid.run_rates_then_seeds` says.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from caracal_min.config import CaracalConfig, find_preset
from caracal_min.convolution import causal_conv_fft
from caracal_min.data.batches import Corpus, load_corpus, sequential_windows
from caracal_min.evaluation import token_losses
from caracal_min.layers import MultiHeadFourier
from caracal_min.model import Caracal
from caracal_min.training import TrainConfig

from ..measured import data_of
from .ablated import loss_by_length
from .forms import with_mixers
from .grid import one_thread, record_grid, run_rates_then_seeds, settings_of, standings, train

__all__ = ["RUNGS", "LadderConfig", "Rung", "make_rung", "run_ladder"]

_FREE = {"out", "rungs", "learning_rates", "seeds"}


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
    return with_mixers(size, lambda: Rung(size, length, **RUNGS[name]))


@dataclass(frozen=True)
class LadderConfig:
    """Train one hybrid with different long kernels under one rule, and see what it loses with another text's."""

    out: Path = Path("runs/ladder")
    """Folder of the runs and of the record; the same command resumes."""
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
    sweep_part = 1.0  # of the tokens, for the runs that choose the rate

    def recipe(self, learning_rate: float, seed: int) -> TrainConfig:
        """Return the settings of a run: nano's own, with Muon."""
        return TrainConfig.for_preset("nano", optimizer="muon", tokens=self.tokens, learning_rate=learning_rate,
                                      seed=seed, eval_every=self.eval_every, eval_windows=self.windows // 4,
                                      device="cpu", progress=False)


@one_thread()
def run_ladder(config: LadderConfig, show: Callable[[str], None] = print) -> dict:
    """Run what is left, a line for each run, write the record of all, and return it.

    Raises:
        ValueError: as `grid.run_grid`.
    """
    recipe = config.recipe(config.learning_rates[0], config.seeds[0])
    corpus = load_corpus(recipe.data, recipe.tokenizer, max_tokens=recipe.corpus_limit, progress=False)
    runs = run_rates_then_seeds(config, config.rungs, settings_of(config, _FREE) | {"corpus": corpus.digest},
                                partial(_run, config, corpus), show=show)
    return record_grid("forms", config, {"runs": runs, "standings": standings(runs)}, show, data_of(corpus))


def _run(config: LadderConfig, corpus: Corpus, facts: dict) -> dict:
    """Train a rung, and return what came of it: curve, final loss, and what an ablation costs along the way."""
    recipe = config.recipe(facts["learning_rate"], facts["seed"])
    size = replace(find_preset("nano"), max_positions=recipe.context)
    windows = sequential_windows(corpus.validation, recipe.context, config.windows)

    def ablated(model: Caracal) -> list[dict]:
        return _ablated(model, windows[::2])

    def examine(model: Caracal) -> dict:
        losses = token_losses(model, windows).double().mean(1)
        by_length = loss_by_length(model, corpus.validation, recipe.context, False, (1, 4), 8)
        return {"loss": losses.mean().item(), "window_losses": [round(loss, 4) for loss in losses.tolist()],
                "surgery": ablated(model), "loss_by_length": {"whole": [list(pair) for pair in by_length.items()]}}

    writes = not {"cut", "learned"} & RUNGS[facts["contender"]].keys()
    stops = [recipe.steps // part for part in (16, 8, 4, 2, 1) if writes and recipe.steps >= part]
    return train(recipe, corpus, partial(make_rung, facts["contender"], size, recipe.context), examine, stops, ablated)


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
