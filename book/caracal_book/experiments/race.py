"""The race: the same text, tokens, batches and parameters for every way to mix tokens.

The budget is the number of parameters of Caracal at the width and depth of the race.  Each of the others has the same
depth, and the same width, heads, vocabulary and tied embedding; what gives is the hidden width of its MLP, in steps of
8.

Text is read as bytes unless told otherwise: a model that trains in minutes is narrow, and over the 50,257 tokens of
GPT-2 most of its parameters and most of its time would be those of its output matrix, which all contenders share.

How long the defaults take, on two cores with bfloat16 units: a step of 16 x 512 bytes took so many seconds of processor
time, of both cores together, on a machine that had much other work::

    caracal 1.34   no-swa 1.29   no-swa-no-pc 1.21   window 1.39   llama 1.79   static 1.05   hyena 1.27

With both cores free that is half as long by the clock, so the 732 steps of a run of Caracal are eight minutes.  Two
such runs and three of a quarter's length each are two and a half hours for all contenders.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from caracal_min.config import CaracalConfig, require_known
from caracal_min.data.batches import Corpus, load_corpus
from caracal_min.layers import SwiGLU
from caracal_min.model import Caracal
from caracal_min.precision import find_device
from caracal_min.training.config import TrainConfig

from ..measured import data_of
from ..rivals import VARIANTS, baseline_of
from .grid import record_grid, require_once, run_rates_then_seeds, settings_of, standings, train
from .mixers import make_mixer

__all__ = ["CONTENDERS", "TOLERANCE", "Contender", "MixedModel", "RaceConfig", "fitted", "run_race"]

TOLERANCE = 0.03
"""Largest deviation from the budget, as a fraction of it."""


class MixedModel(Caracal):
    """A Caracal with an MLP of any width, and with another mixer in all its blocks if one is given.

    It is trained and measured like a Caracal, and neither decodes nor is saved.

    Args:
        config: shape and initialisation.
        hidden: channels of the SwiGLU.
        mixer: makes what takes the place of each mixer; its linear maps and short convolutions are initialised as
            those of Caracal.
    """

    def __init__(self, config: CaracalConfig, hidden: int, mixer: Callable[[], nn.Module] | None = None):
        super().__init__(config)
        for block in self.blocks:
            block.mlp = SwiGLU(config.d_model, hidden)
            if mixer is not None:
                block.mixer = mixer()
        self._initialise()


@dataclass(frozen=True)
class Contender:
    """A way to mix tokens."""

    what: str
    """One line on it."""
    build: Callable[[CaracalConfig, int, int], nn.Module]
    """Makes the model from a size, the tokens per sequence, and the hidden width of the MLP."""


def _caracal(size: CaracalConfig, context: int, hidden: int, **changes) -> nn.Module:
    return MixedModel(replace(size, **changes), hidden)


def _mixed(size: CaracalConfig, context: int, hidden: int, mixer: str) -> nn.Module:
    return MixedModel(size, hidden, partial(make_mixer, mixer, size.d_model, size.n_heads, context, size.window_size))


def _attending(size: CaracalConfig, context: int, hidden: int, name: str) -> nn.Module:
    return baseline_of(name, size, intermediate_size=hidden)


REFERENCE = "caracal"

CONTENDERS: dict[str, Contender] = {
    REFERENCE: Contender("two Fourier layers, then window attention", _caracal),
    "no-swa": Contender("Fourier layers only", partial(_caracal, **VARIANTS["no-swa"])),
    "no-swa-no-pc": Contender("Fourier layers only, without their pre-convolution",
                              partial(_caracal, **VARIANTS["no-swa-no-pc"])),
    "local": Contender("Caracal with a gate at the first token alone: no long convolution",
                       partial(_caracal, gate_length=1)),
    "window": Contender("window attention only", partial(_mixed, mixer="window")),
    "llama": Contender("full attention with rotary positions", partial(_attending, name="llama")),
    "static": Contender("a Fourier layer whose gate is a learned kernel", partial(_mixed, mixer="static")),
    "hyena": Contender("a learned kernel between two products, as in Hyena", partial(_mixed, mixer="gated-static")),
}
"""All contenders by name; the first is the one that sets the budget."""


def fitted(name: str, size: CaracalConfig, context: int) -> tuple[int, int]:
    """Find the hidden width of the MLP, a multiple of 8, at which a contender is nearest to the budget.

    Args:
        name: a key of `CONTENDERS`.
        size: width, layers, heads and vocabulary; Caracal has the MLP of `config.mlp_width` there.
        context: tokens per sequence.

    Returns:
        that width, and the parameters that the model then has.

    Raises:
        ValueError: it does not come within `TOLERANCE` of the budget.
        ImportError: it needs a package that is not installed.
    """
    budget = _parameters(REFERENCE, size, context, size.mlp_width)
    if name == REFERENCE:
        return size.mlp_width, budget
    smallest, larger = (_parameters(name, size, context, width) for width in (8, 16))
    hidden = 8 * max(1, round(1 + (budget - smallest) / (larger - smallest)))  # the count is linear in the width
    count = _parameters(name, size, context, hidden)
    if abs(count - budget) > TOLERANCE * budget:
        raise ValueError(f"{name} has {count:,} parameters where Caracal has {budget:,}, which is not within "
                         f"{TOLERANCE:.0%}; give a larger width, or more layers")
    return hidden, count


def _parameters(name: str, size: CaracalConfig, context: int, hidden: int) -> int:
    with torch.device("meta"):
        return CONTENDERS[name].build(size, context, hidden).num_parameters()


_VOCABULARY = {"byte": 256, "gpt2": 50_257}
_FREE = {"out", "data", "validation", "contenders", "learning_rates", "seeds", "device"}


@dataclass(frozen=True)
class RaceConfig:
    """Train models that mix tokens in different ways on the same text, and compare their held-out losses.

    Raises:
        ValueError: a field out of range, in one line.
    """

    data: str = "embedded"
    """Text, as in train: embedded, fineweb, a file, a folder of files, or one that tokenize wrote."""
    validation: str | None = None
    """Another source to validate on, all of it.  None: what is held out of data, one document in 20."""
    tokenizer: str = "byte"
    """byte or gpt2."""
    out: Path = Path("runs/race")
    """Folder of the runs and of the record; the same command resumes."""
    contenders: tuple[str, ...] = tuple(CONTENDERS)
    """Names of contenders."""
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 9e-3)
    """Peak learning rates that are tried with the first seed."""
    seeds: tuple[int, ...] = (0, 1)
    """Seeds of the weights and of the order of the data; the best learning rate runs with all of them."""
    tokens: int = 6_000_000
    """Tokens that each run trains on."""
    sweep_part: float = 0.25
    """Fraction of the tokens for the runs that choose the learning rate; 1: these are runs of the first seed."""
    width: int = 192
    """Width of Caracal and of every contender with an MLP."""
    layers: int = 6
    """Layers of each; Mamba and Mamba-2 have two blocks for each."""
    heads: int = 4
    """Heads of each."""
    context: int = 512
    """Tokens per sequence."""
    window: int = 256
    """Keys that window attention sees; the paper's fraction of the context."""
    batch_size: int = 16
    """Sequences per step."""
    measurements: int = 20
    """Validations per run."""
    eval_windows: int = 128
    """Sequences per validation, the same for all."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, ..."""
    precision: str = "auto"
    """Autocast type of the matrix products: auto (the fastest that the device has units for), bfloat16, float16 or
    float32."""

    def __post_init__(self):
        require_once(self, ("contenders", "learning_rates", "seeds"))
        for name in self.contenders:
            require_known("contender", name, CONTENDERS)
        require_known("tokenizer", self.tokenizer, _VOCABULARY)
        _ = self.size, [self.recipe(rate, seed) for rate in self.learning_rates for seed in self.seeds]

    @property
    def size(self) -> CaracalConfig:
        """Caracal in this race; its parameters are the budget of all."""
        return CaracalConfig(_VOCABULARY[self.tokenizer], self.width, self.layers, self.heads, self.window)

    def recipe(self, learning_rate: float, seed: int, sweep: bool = False) -> TrainConfig:
        """Return the settings of every contender's run: the paper's recipe but for learning rate, batch and length.

        The schedule of a run of the sweep ends with its fewer tokens.
        """
        steps = max(1, int(self.tokens * (self.sweep_part if sweep else 1)) // (self.batch_size * self.context))
        tokens = steps * self.batch_size * self.context
        return TrainConfig(data=self.data, validation=self.validation, tokenizer=self.tokenizer, tokens=tokens,
                           context=self.context, batch_size=self.batch_size, micro_batch_size=self.batch_size,
                           learning_rate=learning_rate, seed=seed, eval_every=max(1, steps // self.measurements),
                           eval_windows=self.eval_windows, device=self.device, precision=self.precision,
                           progress=False)


def run_race(config: RaceConfig, corpus: Corpus | None = None, show: Callable[[str], None] = print) -> dict:
    """Run what is left of a race, show a line for each run and the table, and return the record.

    Args:
        config: the race.
        corpus: its tokens; None reads `config.data`.

    Raises:
        ValueError: a contender does not fit the budget; and as `grid.run_grid`.
        ImportError: a contender needs `transformers`.
    """
    config = replace(config, device=str(find_device(config.device)))
    if corpus is None:
        corpus = load_corpus(config.data, config.tokenizer, max_tokens=config.tokens + config.tokens // 4,
                             validation=config.validation)
    fitting = {name: fitted(name, config.size, config.context) for name in (REFERENCE, *config.contenders)}
    runs = run_rates_then_seeds(config, config.contenders, settings_of(config, _FREE) | {"corpus": corpus.digest},
                                partial(_run, config, corpus, fitting), 1, show, config.device)
    contenders = [{"contender": name, "what": CONTENDERS[name].what,
                   "hidden": fitting[name][0], "parameters": fitting[name][1]} for name in config.contenders]
    results = {"budget": fitting[REFERENCE][1], "contenders": contenders, "runs": runs, "standings": standings(runs)}
    return record_grid("race", config, results, show, data_of(corpus, config.validation), config.device)


def _run(config: RaceConfig, corpus: Corpus, fitting: dict, facts: dict) -> dict:
    name = facts["contender"]
    build = partial(CONTENDERS[name].build, config.size, config.context, fitting[name][0])
    return train(config.recipe(facts["learning_rate"], facts["seed"], facts["sweep"]), corpus, build)
