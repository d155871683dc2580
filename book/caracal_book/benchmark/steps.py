"""Training steps of whole models, and what one is spent on: rows `profile`, `throughput` and `trainer`."""

import functools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from caracal_min import Caracal
from caracal_min.data import Corpus
from caracal_min.training import TrainConfig, Trainer

from ..rivals import ARCHITECTURES, make_model
from .config import BenchmarkConfig, Row
from .measure import in_precision, in_turns, mean_time, time_by_kind, traced

__all__ = ["profile", "throughput", "trainer", "training_steps"]

# How many times as many tokens a second as a Llama with SDPA in the same run, by device and length.  On an H100 both
# share everything but the mixers, so at 512 tokens the two can tie; attention's share at 8,192 allows no more than 1.8.
_AGAINST_LLAMA = {"cuda": {512: 1.0, 2048: 1.0, 8192: 1.4}, "cpu": {8192: 4.4}}
_STEPS = 12  # of the Trainer; the median leaves out the first, which compiles, and the last, which validates


def training_steps(config: BenchmarkConfig, length: int) -> dict[str, Callable[[], None]]:
    """Return a training step of Caracal and of each of its rivals, by name, all on one batch of random tokens."""
    torch.compiler.reset()  # it forgets the lengths before
    tokens = torch.randint(config.size.vocab_size, (config.batch(length), length), device=config.device)
    steps = {}
    for name in ("caracal", *config.against):
        kind = {"architecture": name} if name in ARCHITECTURES else {"variant": name}
        model = make_model(preset=config.preset, context=length, **kind).to(config.device)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        loss = in_precision(model.compile_loss(config.compile).loss, config.device)
        steps[name] = functools.partial(_train_step, loss, optimizer, tokens)
    return steps


def profile(config: BenchmarkConfig) -> Iterator[Row]:
    """Say what a training step is spent on, by kind of work, and likewise that of each rival."""
    for length in config.lengths:
        for name, step in training_steps(config, length).items():
            (whole,) = in_turns([step], config.repeats)
            kinds = time_by_kind(traced(step))
            if config.device == "cuda":
                kinds["waiting between kernels"] = max(0.0, whole - sum(kinds.values()))
            for kind, spent in sorted(kinds.items(), key=lambda pair: -pair[1]):
                if spent > 0:  # compiled, the short convolution is a part of other kernels
                    yield Row(f"{config.preset}, {name}, {kind}", length, "the whole step", "ms", spent, whole)


def throughput(config: BenchmarkConfig) -> Iterator[Row]:
    """Measure a training step against other models of the same size, all in turns, at every length."""
    what, goals = f"{config.preset}, training step", _AGAINST_LLAMA.get(config.device, {})
    for length in config.lengths:
        steps = training_steps(config, length)
        first = [mean_time(step, 1) / 1e3 for step in steps.values()]
        times = in_turns(list(steps.values()), config.repeats)
        for i, name in enumerate(config.against, 1):
            goal = goals.get(length) if name == "llama" else None
            against = "llama, SDPA" if name == "llama" else name
            yield Row(what, length, against, "ms", times[0], times[i], goal)
            if config.compile != "no":
                yield Row(f"{config.preset}, first step, compiles", length, against, "s", first[0], first[i])


def trainer(config: BenchmarkConfig) -> Iterator[Row]:
    """Measure a step of the Trainer, as it says itself in its log, beside the bare step of `throughput`."""
    for length in config.lengths:
        sequences = config.batch(length)
        per_step = sequences * length
        ids = np.random.default_rng(0).integers(0, 256, 2 * _STEPS * per_step + 2).astype(np.uint16)
        corpus = Corpus("random", "byte", ids[per_step:], ids[:length + 1])
        recipe = TrainConfig.for_preset(
            config.preset, tokens=_STEPS * per_step, context=length, batch_size=sequences, micro_batch_size=sequences,
            precision="auto", compile=config.compile, device=config.device, progress=False)
        with Trainer(recipe, corpus, Caracal.from_preset(config.preset)) as run:
            run.run()
            seconds = statistics.median(entry["seconds"] for entry in run.log[1:-1])
        alone = training_steps(replace(config, against=()), length)
        (bare,) = in_turns([alone["caracal"]], config.repeats)
        yield Row(f"{config.preset}, step of the Trainer", length, "the bare step", "ms", 1e3 * seconds, bare)


def _train_step(loss: Callable, optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    loss(tokens, tokens.roll(-1, 1)).backward()
    optimizer.step()
    optimizer.zero_grad()
