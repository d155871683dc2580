"""The race: the same text, tokens, batches and parameters for every way to mix tokens.

The runs are those of `language_grid`, after a step of each contender was timed beside one of Caracal.  Text is read as
bytes unless told otherwise: a model that trains in minutes is narrow, and over the 50,257 tokens of GPT-2 most of its
parameters and most of its time would be those of its output matrix, which all contenders share.

How long the defaults take, on two cores with bfloat16 units: a step of 16 x 512 bytes took so many seconds of processor
time, of both cores together, on a machine that had much other work::

    caracal 1.34   no-swa 1.29   no-swa-no-pc 1.21   window 1.39   llama 1.79   static 1.05   hyena 1.27
    gated-deltanet 5.3   mamba2 5.8   mamba: two sequences alone had not ended after 50

With both cores free that is half as long by the clock, so the 732 steps of a run of Caracal are eight minutes.  Two
such runs and three of a quarter's length each are two and a half hours for the first seven contenders, and as much
again for the last two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from caracal_min.config import CaracalConfig
from caracal_min.data.batches import Corpus, load_corpus
from caracal_min.precision import find_device
from caracal_min.training.config import TrainConfig

from ..benchmark.measure import in_precision, mean_time
from ..measured import data_of
from .grid import Cell, Grid, require_known, require_once, settings_of
from .language_grid import run_rates_then_seeds, train
from .race_contenders import CONTENDERS, REFERENCE, fitted
from .race_results import race_table, standings

__all__ = ["RaceConfig", "run_race"]

_VOCABULARY = {"byte": 256, "gpt2": 50_257}
_FREE = {"out", "data", "validation", "contenders", "learning_rates", "seeds", "slowest", "device"}
_TURNS = 5


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
    slowest: float = 6.0
    """Contenders whose step takes longer than this many steps of Caracal are left out, with the time."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, ..."""
    precision: str = "auto"
    """Autocast type of the matrix products: auto (the fastest that the device has units for), bfloat16, float16 or
    float32."""

    def __post_init__(self):
        require_once(self, ("contenders", "learning_rates", "seeds"))
        require_known("contender", self.contenders, CONTENDERS)
        require_known("tokenizer", (self.tokenizer,), _VOCABULARY)
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
        ValueError: a contender does not fit the budget, or all are too slow; and as `grid.Grid`.
        ImportError: a contender needs `transformers`.
    """
    config = replace(config, device=str(find_device(config.device)))
    grid = Grid("race", config, ("contenders", "learning_rates", "seeds"), config.device, show)
    if corpus is None:
        corpus = load_corpus(config.data, config.tokenizer, max_tokens=config.tokens + config.tokens // 4,
                             validation=config.validation)
    settings = settings_of(config, _FREE) | {"corpus": corpus.digest}
    fitting = {name: fitted(name, config.size, config.context) for name in config.contenders}
    times = grid.run([Cell(f"time_{name}_{config.slowest:g}", {"contender": name}, settings)
                      for name in config.contenders], partial(_time, config, fitting), _line)
    lineup = [time["contender"] for time in times if time["times_caracal"] <= config.slowest]
    if not lineup:
        raise ValueError(f"slowest={config.slowest:g} leaves out all contenders; give a larger number, or more "
                         "contenders")
    runs = run_rates_then_seeds(grid, lineup, settings, partial(_run, config, corpus, fitting))
    contenders = [time | {"what": CONTENDERS[name].what, "gives": CONTENDERS[name].gives,
                          "number": fitting[name][0], "parameters": fitting[name][1],
                          "left_out": name not in lineup} for name, time in zip(fitting, times, strict=True)]
    budget = fitted(REFERENCE, config.size, config.context)[1]
    record = grid.record({"budget": budget, "contenders": contenders, "runs": runs, "standings": standings(runs)},
                         data_of(corpus, config.validation))
    show(race_table(record))
    return record


def _run(config: RaceConfig, corpus: Corpus, fitting: dict, facts: dict) -> dict:
    name = facts["contender"]
    build = partial(CONTENDERS[name].build, config.size, config.context, fitting[name][0])
    return train(config.recipe(facts["learning_rate"], facts["seed"], facts["sweep"]), corpus, build)


def _time(config: RaceConfig, fitting: dict, facts: dict) -> dict:
    """Time a step, in turns with one of Caracal: first of few sequences, which may take too long already.

    A scan over tokens in Python is slow, and keeps so much for its backward pass that a batch may not fit.
    """
    name, whole = facts["contender"], config.batch_size
    reference = _step(config, REFERENCE, config.size.mlp_width, whole)
    if name == REFERENCE:
        return {"seconds_per_step": _fastest([reference])[0], "times_caracal": 1.0, "sequences": whole}
    for sequences in sorted({max(1, whole // 16), max(1, whole // 4), whole}):
        unit, own = _fastest([reference, _step(config, name, fitting[name][0], sequences)])
        if own > config.slowest * unit:
            break
    return {"seconds_per_step": own, "times_caracal": own / unit, "sequences": sequences}


def _step(config: RaceConfig, name: str, number: int, sequences: int) -> Callable[[], None]:
    model = CONTENDERS[name].build(config.size, config.context, number).to(config.device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.randint(config.size.vocab_size, (sequences, config.context), device=config.device)
    loss = in_precision(model.loss, torch.device(config.device).type, config.precision)
    return partial(_train_step, loss, optimizer, tokens)


def _fastest(steps: Sequence[Callable[[], None]]) -> list[float]:
    """Return the seconds of each step: in turns, after one to warm up, the least, since other work only adds to it."""
    rounds = [[mean_time(step, 1) for step in steps] for _ in range(_TURNS + 1)][1:]
    return [min(times) / 1e3 for times in zip(*rounds, strict=True)]


def _train_step(loss: Callable[[Tensor, Tensor], Tensor], optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    loss(tokens, tokens.roll(-1, 1)).backward()
    optimizer.step()
    optimizer.zero_grad()


def _line(time: dict) -> str:
    return (f"{time['contender']}: {time['seconds_per_step']:.3f} s for a step of {time['sequences']} sequences, "
            f"{time['times_caracal']:.2f} times Caracal's")
