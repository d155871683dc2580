# goes when training and commands no longer import it
"""Training steps of whole models, and what one is spent on: rows `training`, `profile` and `throughput`."""

import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..allocator import keep_freed_memory
from ..choices import BASELINES
from ..language_model import LanguageModel
from ..model import Caracal
from ..precision import resolve_precision
from ..zoo.registry import make_model
from .appendix import in_appendix_layout
from .config import BenchmarkConfig, Row
from .measure import copy_rate, in_precision, in_turns, matmul_rate, peak_memory, time_by_kind

__all__ = ["profile", "throughput", "training"]


def training(config: BenchmarkConfig) -> Iterator[Row]:
    """Measure a training step at every length."""
    what, against = f"{config.preset}, training step", "appendix layout, eager"
    for length, tokens in _batches(config):
        ours = Caracal.from_preset(config.preset).to(config.device)
        appendix = in_appendix_layout(ours)
        sides = [_step(ours, ours.compile_for(config.compile).loss, tokens), _plain_step(appendix, tokens)]
        if config.device == "cpu" and resolve_precision("auto", "cpu") != torch.float32:
            sides.append(_plain_step(Caracal.from_preset(config.preset), tokens, "float32"))
        time, in_appendix, *in_float32 = in_turns(sides, config.repeats)
        yield Row(what, length, against, "ms", time, in_appendix, 2.5 if config.device == "cuda" else None)
        for other in in_float32:
            yield Row(what, length, "float32, autograd's loss", "ms", time, other, 5.0 if length == 512 else None)
        yield Row(f"{what}, peak memory", length, against, "MiB", *map(peak_memory, sides[:2]), None)


def profile(config: BenchmarkConfig) -> Iterator[Row]:
    """Say what a training step is spent on, by kind of work, and how far that is from what the device could do.

    The floors are operations over the rate of a large matrix product, and the bytes of the streams, each read or
    written once, over the bandwidth of a large copy; both rates are measured here.
    """
    operations, bandwidth = matmul_rate(torch.device(config.device)), copy_rate(torch.device(config.device))
    width, what = config.width[0], f"{config.preset}, step"
    for length, tokens in _batches(config):
        model = Caracal.from_preset(config.preset).to(config.device).compile_for(config.compile)
        step = _step(model, model.loss, tokens)
        (whole,) = in_turns([step], config.repeats)
        kinds = time_by_kind(step, torch.device(config.device))
        if config.device == "cuda":
            kinds["waiting between kernels"] = max(0.0, whole - sum(kinds.values()))
        kinds = {kind: time for kind, time in kinds.items() if time}  # compiled, the taps are part of the rest
        for kind, time in sorted(kinds.items(), key=lambda pair: -pair[1]):
            yield Row(f"{what}, {kind}", length, "the whole step", "ms", time, whole, None)
        products = 6 * model.num_parameters() * tokens.numel() / operations
        fourier = model.config.n_layers - len(model.config.attention_layers)
        streams = 8 * resolve_precision("auto", config.device).itemsize  # forward v, g, r; backward dr, v, g, dv, dg
        mixing = streams * fourier * tokens.numel() * width / bandwidth
        for kind, floor, what_sets_it in (("matrix products", products, "operations / rate"),
                                          ("FFT", mixing, "bytes / bandwidth")):
            if kind in kinds:
                yield Row(f"{what}, {kind}", length, what_sets_it, "ms", kinds[kind], floor * 1e3, None)


def throughput(config: BenchmarkConfig) -> Iterator[Row]:
    """Measure a training step against other models of the same size, all in turns, at every length."""
    for length, tokens in _batches(config):
        models = [make_model(preset=config.preset), *(_rival(name, config.preset, length) for name in config.against)]
        sides = [_step(model, model.to(config.device).compile_for(config.compile).loss, tokens) for model in models]
        ours, *others = in_turns(sides, config.repeats)
        for name, other in zip(config.against, others, strict=True):
            target = None
            if name == "llama" and length >= 1024:
                target = 2.8 if length >= 8192 else 1.0
            yield Row(f"{config.preset}, training step", length, "llama, SDPA" if name == "llama" else name, "ms",
                      ours, other, target)


def _batches(config: BenchmarkConfig) -> Iterator[tuple[int, Tensor]]:
    """Yield lengths and batches of tokens, as many tokens in each; the compiler forgets the lengths before."""
    for length in config.lengths:
        torch.compiler.reset()
        if config.device == "cpu":
            keep_freed_memory()
        shape = (config.batch(length), length)
        yield length, torch.randint(config.vocabulary, shape, device=config.device)


def _rival(name: str, preset: str, length: int) -> LanguageModel:
    return make_model(name, preset) if name in BASELINES else make_model(preset=preset, variant=name, context=length)


def _step(model: torch.nn.Module, loss: Callable, tokens: Tensor, precision: str = "auto") -> Callable:
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    return functools.partial(_train_step, in_precision(loss, tokens.device.type, precision), optimiser, tokens)


def _plain_step(model: torch.nn.Module, tokens: Tensor, precision: str = "auto") -> Callable:
    """The step that autograd makes of a model by itself: all logits, the library's loss, nothing compiled."""
    return _step(model, lambda *pair: model(*pair)[1], tokens, precision)


def _train_step(loss: Callable, optimiser: torch.optim.Optimizer, tokens: Tensor) -> None:
    loss(tokens, tokens.roll(-1, 1)).backward()
    optimiser.step()
    optimiser.zero_grad()
