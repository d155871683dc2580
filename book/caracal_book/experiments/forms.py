"""Forms of a Caracal: its Fourier layers as published, and changed in one thing, each trained so, then under surgery.

    plain       as published
    cut         a gate up to the training length alone, g_i = 0 for i >= L
    local       a gate at the first token alone, so r_t = g_0 v_t: only the 3 taps and the windows mix tokens
    norm        r divided by its root mean square over channels, with a learned scale
    faded       g_i times exp(-i / c), with a learned reach c for each channel
    no-windows  a Fourier layer in place of every window attention, with its pre-convolution
    no-taps     no pre-convolution: the gate and the windows mix tokens
    pure        no window attention and no pre-convolution: the Fourier layers alone mix tokens
    pure-local  that, with a gate at the first token alone: a token sees itself and the first one

All share text, batches, seeds and recipe.  Every form runs at every learning rate with the first seed, and at its best
rate with the others.  Each trained model is operated on (`surgery`), and its loss measured beyond the training length.
Where that takes too long, the rate may be decided on a part of the tokens; but the rate that is best for a short run
need not be that for a long one.  The runs are resumed like those of a race: the same command goes on.

    config.out/runs/FORM_RATE_SEED/    a run, with result.json once it is over
    config.out/sweep/FORM_RATE_SEED/   the same of a run that decides the rate alone
    config.out/forms.json              what all runs share, and the processes that took part
    config.out/record.json             all of them, once there is none left
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from caracal_min.config import CaracalConfig, find_preset
from caracal_min.convolution import causal_conv_fft
from caracal_min.data.batches import sequential_windows
from caracal_min.data.corpus import Corpus, load_corpus
from caracal_min.files import writing
from caracal_min.model import Caracal
from caracal_min.modules import MultiHeadFourier
from caracal_min.record import write_record
from caracal_min.training.distributed import Group
from caracal_min.training.folder import RunFolder
from caracal_min.training.recipe import TrainConfig
from caracal_min.training.run_record import process_from
from caracal_min.training.settings import require_kinds, require_range

from .mixer import require_whole_text
from .pool import each
from .race_results import standings
from .race_run import RaceRun, read_result, read_state, require_no_fewer, runs_of
from .surgery import loss_by_length, surgery

__all__ = ["FORMS", "FadedFourier", "FormsConfig", "NormedFourier", "make_form", "run_forms"]

_STATE = "forms.json"
_MULTIPLES = (1, 2, 4, 8, 16)
_FREE = {"out", "forms", "learning_rates", "seeds", "processes"}


class NormedFourier(MultiHeadFourier):
    """A Fourier layer whose r is divided by its root mean square over channels: y = to_out(RMSNorm(r)).

    Arguments as `modules.MultiHeadFourier`; whole texts only.
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
    `modules.MultiHeadFourier`; whole texts only.

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
    "norm": lambda size, context: _with(size, NormedFourier),
    "faded": lambda size, context: _with(size, FadedFourier, reach=context),
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
    if name not in FORMS:
        raise ValueError(f"unknown form {name!r}; accepted: {', '.join(FORMS)}")
    return FORMS[name](size, context)


@dataclass(frozen=True)
class FormsConfig:
    """Train forms of the Fourier layer under one rule, take parts out of each, and see what its loss owes to them.

    Raises:
        ValueError: a field out of range, or an unknown name, in one line.
    """

    out: Path = Path("runs/forms")
    """Folder of all runs; the same command goes on from what is there."""
    forms: tuple[str, ...] = tuple(FORMS)
    """Names of forms."""
    learning_rates: tuple[float, ...] = (7.5e-4, 1.5e-3, 3e-3, 6e-3)
    """Peaks that are tried with the first seed; of one alone, none is."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of weights and order of the data; the best rate runs with all of them."""
    tokens: int = 786_432
    """Bytes of the embedded text that each run trains on."""
    sweep_part: float = 1.0
    """Part of the tokens that a run has which decides the rate alone; 1: it is the first seed's run."""
    context: int = 256
    """Tokens per sequence, the length of training."""
    windows: int = 64
    """Windows that each operation is measured on."""
    processes: int = 1
    """Runs at a time, each in a process of one thread; 1 stays in this process."""

    def __post_init__(self):
        require_kinds(self)
        for name in ("forms", "learning_rates", "seeds"):
            given = getattr(self, name)
            if not given or len(set(given)) < len(given):
                raise ValueError(f"{name}={given!r}; give at least one, and each once")
        for form in self.forms:
            if form not in FORMS:
                raise ValueError(f"unknown form {form!r}; accepted: {', '.join(FORMS)}")
        require_range(self, ("processes", "context"), low=1)
        require_range(self, ("windows",), low=2)
        require_range(self, ("sweep_part",), above=0, high=1)
        _ = [self.recipe(rate, seed, sweep=sweep) for rate in self.learning_rates for seed in self.seeds
             for sweep in (False, True)]

    def recipe(self, learning_rate: float, seed: int, out: Path | None = None, sweep: bool = False) -> TrainConfig:
        """Return the settings of a run: nano's own but for the rate and the length."""
        tokens = int(self.tokens * (self.sweep_part if sweep else 1))
        run = TrainConfig.for_preset("nano", tokens=tokens, context=self.context, learning_rate=learning_rate,
                                     seed=seed, out=out, device="cpu", progress=False)
        return replace(run, eval_every=max(1, run.steps // 12), checkpoint_minutes=1.0)


def run_forms(config: FormsConfig, show: Callable[[str], None] = print) -> dict:
    """Run what is left, show a line for each run, write the record, and return it.

    Raises:
        ValueError: a folder holds a run of other settings, or its record runs that are left out here.
        OSError: it cannot be written, or another process works in it.
        ImportError: jsonschema, which the record needs, is not installed.
    """
    folder = RunFolder(config.out)
    try:
        require_no_fewer(folder.record, config, ("forms", "learning_rates", "seeds"))
        state, corpus, took_part, runs = _state(config), _corpus(config), False, []
        for stage in _stages(config, runs):
            left = any(read_result(_folder(config, cell)) is None for cell in stage)
            if not took_part and (left or not state["parts"]):
                _take_part(config, state)
                took_part = True
            for run in each(partial(_run, config), stage, config.processes):
                loss = "diverged" if run["loss"] is None else f"{run['loss']:.4f} nats"
                show(f"{run['contender']:<12} rate {run['learning_rate']:g}, seed {run['seed']}"
                     f"{', sweep' if run['sweep'] else ''}: {loss} in {run['seconds'] / 60:.1f} minutes")
                runs.append(run)
        runs.sort(key=lambda run: (not run["sweep"], config.forms.index(run["contender"]),
                                   config.seeds.index(run["seed"]), run["learning_rate"]))
        data = {"source": corpus.source, "validation": None, "tokenizer": corpus.tokenizer.name,
                "train_tokens": len(corpus.train), "validation_tokens": len(corpus.validation),
                "sha256": corpus.digest}
        if took_part or runs_of(folder.record) != runs:
            write_record(folder.record, "forms", vars(config), {"runs": runs, "standings": standings(runs)}, data,
                         max(sum(run["seconds"] for run in runs), 1e-3), torch.device("cpu"), state["parts"],
                         grown=True)
        return json.loads(folder.record.read_text())
    finally:
        folder.close()


def _stages(config: FormsConfig, runs: list[dict]) -> Iterator[list[tuple[str, float, int, bool]]]:
    """Yield the (form, learning rate, seed, sweep) of the runs that decide the rates, then of the rest at the best.

    Args:
        runs: what has ended; by the second stage, all of the first.
    """
    first, *rest = config.seeds
    apart = config.sweep_part < 1 and len(config.learning_rates) > 1
    yield [(form, rate, first, apart) for form in config.forms for rate in config.learning_rates]
    best = {row["contender"]: row["learning_rate"] for row in standings(runs)}
    yield [(form, rate, seed, False) for seed in (config.seeds if apart else rest) for form in config.forms
           if (rate := best[form]) is not None]


def _state(config: FormsConfig) -> dict:
    """Return what `forms.json` holds, or what it begins with.  ValueError: it is of other settings, or damaged."""
    shared = {field.name: getattr(config, field.name) for field in fields(config) if field.name not in _FREE}
    path = config.out / _STATE
    return read_state(path, shared, "runs", {"parts": list}) if path.exists() else {"shared": shared, "parts": []}


def _take_part(config: FormsConfig, state: dict) -> None:
    """Note that this process takes part, with which code and where."""
    group = Group("cpu")
    state["parts"].append(process_from(len(list(config.out.glob("*/*/result.json"))), group))
    group.close()
    with writing(config.out / _STATE) as partial_file:
        partial_file.write_text(json.dumps(state, indent=1) + "\n")


def _folder(config: FormsConfig, cell: tuple[str, float, int, bool]) -> Path:
    form, rate, seed, sweep = cell
    return config.out / ("sweep" if sweep else "runs") / f"{form}_{rate:g}_{seed}"


def _run(config: FormsConfig, cell: tuple[str, float, int, bool]) -> dict:
    form, rate, seed, sweep = cell
    folder = _folder(config, cell)
    result = read_result(folder)
    if result is None:
        corpus = _corpus(config)
        facts = {"contender": form, "learning_rate": rate, "seed": seed, "sweep": sweep}
        build = partial(make_form, form, find_preset("nano"), config.context)
        with RaceRun(config.recipe(rate, seed, folder, sweep), corpus, build) as run:
            result = run.to_the_end(facts, None if sweep else partial(_operated, config, corpus))
    return result


def _operated(config: FormsConfig, corpus: Corpus, model: Caracal) -> dict:
    """Return the outcomes of surgery, and the loss by length, whole and with the gate cut at the training length."""
    windows = sequential_windows(corpus.validation, config.context, config.windows)
    fitting = [m for m in _MULTIPLES if m * config.context < len(corpus.validation)]
    few = max(1, config.windows // fitting[-1])
    lengths = {name: loss_by_length(model, corpus.validation, config.context, cut, fitting, few)
               for name, cut in (("whole", False), ("cut", True))}
    return {"surgery": [asdict(outcome) for outcome in surgery(model, windows, (0, 1, 2, 4, 8, 16, 32, 64, 128))],
            "loss_by_length": {name: [[n, loss] for n, loss in found.items()] for name, found in lengths.items()}}


def _corpus(config: FormsConfig) -> Corpus:
    recipe = config.recipe(config.learning_rates[0], config.seeds[0])
    return load_corpus(recipe.data, recipe.tokenizer, max_tokens=recipe.corpus_tokens or recipe.tokens, progress=False)


def _with(size: CaracalConfig, kind: type[MultiHeadFourier], **options) -> Caracal:
    """Build a Caracal with Fourier layers of another kind; what it shares with the plain one has the same weights."""
    model = Caracal(size)
    for block in model.blocks:
        if isinstance(block.mixer, MultiHeadFourier):
            weights = block.mixer.state_dict()
            with torch.random.fork_rng(devices=[]):
                block.mixer = kind(size.d_model, size.n_heads, size.pre_conv, size.gate, **options)
            block.mixer.load_state_dict(weights, strict=False)
    return model
