"""Training steps of whole models, and what one is spent on: rows `profile`, `throughput` and `trainer`."""

import functools
import statistics
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from caracal_min import Caracal
from caracal_min.data import Corpus
from caracal_min.training import TrainConfig, Trainer

from ..rivals import BASELINES, make_model
from .config import BenchmarkConfig, Row
from .measure import in_precision, in_turns, mean_time, time_by_kind

__all__ = ["profile", "throughput", "trainer"]

# How many times as many tokens a second as a Llama with SDPA in the same run, by device and length.  On an H100 both
# share everything but the mixers, so at 512 tokens the two can tie; attention's share at 8,192 allows no more than 1.8.
_AGAINST_LLAMA = {"cuda": {512: 1.0, 2048: 1.0, 8192: 1.4}, "cpu": {8192: 4.4}}
_STEPS = 12  # of the Trainer; the median leaves out the first, which compiles, and the last, which validates


def profile(config: BenchmarkConfig) -> Iterator[Row]:
    """Say what a training step is spent on, by kind of work."""
    device, what = torch.device(config.device), f"{config.preset}, step"
    for length, tokens in _batches(config):
        model = Caracal.from_preset(config.preset).to(device).compile_for(config.compile)
        step = _step(model, model.loss, tokens)
        (whole,) = in_turns([step], config.repeats)
        kinds = time_by_kind(step, device)
        if config.device == "cuda":
            kinds["waiting between kernels"] = max(0.0, whole - sum(kinds.values()))
        for kind, spent in sorted(kinds.items(), key=lambda pair: -pair[1]):
            if spent > 0:  # compiled, the short convolution is a part of other kernels
                yield Row(f"{what}, {kind}", length, "the whole step", "ms", spent, whole)


def throughput(config: BenchmarkConfig) -> Iterator[Row]:
    """Measure a training step against other models of the same size, all in turns, at every length."""
    what, goals = f"{config.preset}, training step", _AGAINST_LLAMA.get(config.device, {})
    for length, tokens in _batches(config):
        sides = []
        for name in ("caracal", *config.against):
            kind = {"architecture": name} if name in ("caracal", *BASELINES) else {"variant": name}
            model = make_model(preset=config.preset, context=length, **kind).to(config.device)
            sides.append(_step(model, model.compile_for(config.compile).loss, tokens))
        first = [mean_time(side, 1) / 1e3 for side in sides]
        times = in_turns(sides, config.repeats)
        for i, name in enumerate(config.against, 1):
            goal = goals.get(length) if name == "llama" else None
            against = "llama, SDPA" if name == "llama" else name
            yield Row(what, length, against, "ms", times[0], times[i], goal)
            if config.compile != "no":
                yield Row(f"{config.preset}, first step, compiles", length, against, "s", first[0], first[i])


def trainer(config: BenchmarkConfig) -> Iterator[Row]:
    """Measure a step of the Trainer, as it says itself in its log, beside the bare step of `throughput`."""
    for length, tokens in _batches(config):
        ids = np.random.default_rng(0).integers(0, 256, 2 * _STEPS * tokens.numel() + 2).astype(np.uint16)
        corpus, sequences = Corpus("random", "byte", ids[tokens.numel():], ids[:length + 1]), len(tokens)
        recipe = TrainConfig.for_preset(
            config.preset, tokens=_STEPS * tokens.numel(), context=length, batch_size=sequences,
            micro_batch_size=sequences, precision="auto", compile=config.compile, device=config.device, progress=False)
        with Trainer(recipe, corpus, Caracal.from_preset(config.preset)) as run:
            run.run()
            seconds = statistics.median(entry["seconds"] for entry in run.log[1:-1])
        torch.compiler.reset()
        model = Caracal.from_preset(config.preset).to(config.device).compile_for(config.compile)
        (bare,) = in_turns([_step(model, model.loss, tokens)], config.repeats)
        yield Row(f"{config.preset}, step of the Trainer", length, "the bare step", "ms", 1e3 * seconds, bare)


def _batches(config: BenchmarkConfig) -> Iterator[tuple[int, Tensor]]:
    """Yield lengths and batches of tokens, as many tokens in each; the compiler forgets the lengths before."""
    for length in config.lengths:
        torch.compiler.reset()
        shape = (config.batch(length), length)
        yield length, torch.randint(config.size.vocab_size, shape, device=config.device)


def _step(model: nn.Module, loss: Callable, tokens: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return functools.partial(_train_step, in_precision(loss, tokens.device.type), optimizer, tokens)


def _train_step(loss: Callable, optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    loss(tokens, tokens.roll(-1, 1)).backward()
    optimizer.step()
    optimizer.zero_grad()
