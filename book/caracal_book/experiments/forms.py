"""Forms of a Caracal: its Fourier layers as published, and changed in one thing, each trained so, then ablated::

    plain       as published
    cut         a gate up to the training length alone, g_i = 0 for i >= L
    local       a gate at the first token alone, so r_t = g_0 v_t: short convolutions and windows alone mix tokens
    norm        r divided by its root mean square over channels, with a learned scale
    faded       g_i times exp(-i / c), with a learned reach c for each channel
    no-windows  a Fourier layer in place of every window attention, with its pre-convolution
    no-taps     no pre-convolution: the gate and the windows mix tokens
    pure        no window attention and no pre-convolution: the Fourier layers alone mix tokens
    pure-local  that, with a gate at the first token alone: a token depends on itself and the first one

All share text, batches, seeds and recipe, and run as `grid.run_rates_then_seeds` says.  Each trained model is measured
under every ablation of `surgery`, and beyond the training length.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from caracal_min.config import CaracalConfig, find_preset, require_known
from caracal_min.convolution import causal_conv_fft
from caracal_min.data.batches import Corpus, load_corpus, sequential_windows
from caracal_min.layers import MultiHeadFourier
from caracal_min.model import Caracal
from caracal_min.training.config import TrainConfig

from ..measured import data_of
from .ablated import loss_by_length, surgery
from .grid import record_grid, require_once, run_rates_then_seeds, settings_of, standings, train
from .mixers import require_whole_text

__all__ = ["FORMS", "FadedFourier", "FormsConfig", "NormedFourier", "make_form", "run_forms", "with_mixers"]

_MULTIPLES = (1, 2, 4, 8, 16)
_LAGS = (0, 1, 2, 4, 8, 16, 32, 64, 128)
_FREE = {"out", "forms", "learning_rates", "seeds", "processes"}


class NormedFourier(MultiHeadFourier):
    """A Fourier layer whose r is divided by its root mean square over channels: y = to_out(RMSNorm(r)).

    Arguments as `MultiHeadFourier`; whole texts only.
    """

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.norm_result = nn.RMSNorm(self.d_model, eps=1e-12)  # a fresh r is small

    def forward(self, x: Tensor, cache: None = None, lengths: None = None) -> Tensor:
        """Mix `[B, L, D]`."""
        require_whole_text(self, cache, lengths)
        return self.to_out(self.norm_result(causal_conv_fft(*self.streams(x)).transpose(1, 2)))


class FadedFourier(MultiHeadFourier):
    """A Fourier layer whose gate fades: g_i times exp(-i / c), c a learned reach in tokens for each channel.

    The reach starts from 1 to `reach`, growing geometrically with the channel.  Arguments as
    `MultiHeadFourier`; whole texts only.

    Source: the window on the filters of Poli et al. 2023, "Hyena Hierarchy".
    """

    def __init__(self, *args, reach: int, **options):
        super().__init__(*args, **options)
        self.log_reach = nn.Parameter(torch.linspace(0, torch.tensor(float(reach)).log().item(), self.d_model))

    def forward(self, x: Tensor, cache: None = None, lengths: None = None) -> Tensor:
        """Mix `[B, L, D]`."""
        require_whole_text(self, cache, lengths)
        v, g = self.streams(x)
        lag = torch.arange(g.shape[-1], device=g.device)
        return self.to_out(causal_conv_fft(v, g * torch.exp(-lag / self.log_reach.exp()[:, None])).transpose(1, 2))


_PURE = {"fourier_per_attention": None, "pre_conv": False}

FORMS: dict[str, Callable[[CaracalConfig, int], Caracal]] = {
    "plain": lambda size, context: Caracal(size),
    "cut": lambda size, context: Caracal(replace(size, gate_length=context)),
    "local": lambda size, context: Caracal(replace(size, gate_length=1)),
    "norm": lambda size, context: with_mixers(size, lambda: NormedFourier(size.d_model, size.n_heads)),
    "faded": lambda size, context: with_mixers(
        size, lambda: FadedFourier(size.d_model, size.n_heads, reach=context)),
    "no-windows": lambda size, context: Caracal(replace(size, fourier_per_attention=None)),
    "no-taps": lambda size, context: Caracal(replace(size, pre_conv=False)),
    "pure": lambda size, context: Caracal(replace(size, **_PURE)),
    "pure-local": lambda size, context: Caracal(replace(size, gate_length=1, **_PURE)),
}
"""Forms by name, as functions of the size and of the training length L."""


def make_form(name: str, size: CaracalConfig, context: int) -> Caracal:
    """Build a freshly initialised model of a form; torch's random state decides the weights.

    Raises:
        ValueError: there is no such form, in one line.
    """
    require_known("form", name, FORMS)
    return FORMS[name](size, context)


@dataclass(frozen=True)
class FormsConfig:
    """Train forms of the Fourier layer under one rule, ablate each, and see what its loss owes to its components.

    Raises:
        ValueError: a field out of range, or an unknown name, in one line.
    """

    out: Path = Path("runs/forms")
    """Folder of the runs and of the record; the same command resumes."""
    forms: tuple[str, ...] = tuple(FORMS)
    """Names of forms."""
    learning_rates: tuple[float, ...] = (7.5e-4, 1.5e-3, 3e-3, 6e-3)
    """Peak learning rates that are tried with the first seed."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the weights and of the order of the data; the best learning rate runs with all of them."""
    tokens: int = 786_432
    """Bytes of the embedded text that each run trains on."""
    sweep_part: float = 1.0
    """Fraction of the tokens for the runs that choose the learning rate; 1: these are runs of the first seed."""
    context: int = 256
    """Tokens per sequence, the training length."""
    windows: int = 64
    """Windows that each ablation is measured on."""
    processes: int = 1
    """Runs at a time, each in a process of one thread; 1 stays in this process."""

    def __post_init__(self):
        require_once(self, ("forms", "learning_rates", "seeds"))
        for name in self.forms:
            require_known("form", name, FORMS)

    def recipe(self, learning_rate: float, seed: int, sweep: bool = False) -> TrainConfig:
        """Return the settings of a run: nano's own but for the learning rate and the length."""
        tokens = int(self.tokens * (self.sweep_part if sweep else 1))
        run = TrainConfig.for_preset("nano", tokens=tokens, context=self.context, learning_rate=learning_rate,
                                     seed=seed, device="cpu", progress=False)
        return replace(run, eval_every=max(1, run.steps // 12))


def run_forms(config: FormsConfig, show: Callable[[str], None] = print) -> dict:
    """Run what is left of the grid, show a line for each run, write the record, and return it.

    Raises:
        ValueError: as `grid.run_grid`.
    """
    corpus = _corpus(config)
    runs = run_rates_then_seeds(config, config.forms, settings_of(config, _FREE) | {"corpus": corpus.digest},
                                partial(_run, config), config.processes, show)
    return record_grid("forms", config, {"runs": runs, "standings": standings(runs)}, show, data_of(corpus))


def _run(config: FormsConfig, facts: dict) -> dict:
    corpus = _corpus(config)
    build = partial(make_form, facts["contender"], find_preset("nano"), config.context)
    return train(config.recipe(facts["learning_rate"], facts["seed"], facts["sweep"]), corpus, build,
                 None if facts["sweep"] else partial(_ablated, config, corpus))


def _ablated(config: FormsConfig, corpus: Corpus, model: Caracal) -> dict:
    """Return the loss under every ablation, and by length, whole and with the gate cut at the training length."""
    windows = sequential_windows(corpus.validation, config.context, config.windows)
    fitting = [m for m in _MULTIPLES if m * config.context < len(corpus.validation)]
    few = max(1, config.windows // fitting[-1])
    lengths = {name: loss_by_length(model, corpus.validation, config.context, cut, fitting, few)
               for name, cut in (("whole", False), ("cut", True))}
    return {"surgery": [asdict(outcome) for outcome in surgery(model, windows, _LAGS)],
            "loss_by_length": {name: [[n, loss] for n, loss in found.items()] for name, found in lengths.items()}}


def _corpus(config: FormsConfig) -> Corpus:
    recipe = config.recipe(config.learning_rates[0], config.seeds[0])
    return load_corpus(recipe.data, recipe.tokenizer, max_tokens=recipe.corpus_limit, progress=False)


def with_mixers(size: CaracalConfig, make: Callable[[], MultiHeadFourier]) -> Caracal:
    """Build a Caracal with Fourier layers of another kind; what it shares with the plain one has the same weights."""
    model = Caracal(size)
    # Forked, so that what follows draws the same numbers for every kind.
    with torch.random.fork_rng(devices=[]):
        for block in model.blocks:
            if isinstance(block.mixer, MultiHeadFourier):
                weights = block.mixer.state_dict()
                block.mixer = make()
                block.mixer.load_state_dict(weights, strict=False)
    return model
