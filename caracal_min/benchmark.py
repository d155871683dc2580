"""How fast and how light, always as a ratio against something else in the same run.

The reference is the mixer as the paper's appendix lays it out, written again here: transforms along the second of
three axes, of which the content's strides over memory; N = 2 L points; autograd keeps the complex spectra.

Both sides of a ratio run in turns, and medians are compared: a machine that is busy slows down both.  What is
measured:

    convolution   the operator, forward and backward
    layer         a Multi-Head Fourier layer, forward and backward, and what it keeps for backward
    training      one training step of a whole model
    throughput    one training step against other models of the same size: baselines, or variants of Caracal
    mixer         online convolution, one token at a context, against its slow twin
    generation    one token of a whole model at a context, against its slow twin and the whole forward pass

Read next: `__main__`.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .baselines import BASELINES
from .config import PRESETS
from .convolution import causal_conv_fft, causal_conv_right_angle
from .language_model import LanguageModel
from .measure import Differentiated, in_turns, kept_for_backward, mean_time, medians, peak_memory
from .model import Caracal
from .models import VARIANTS, make_model
from .modules import MultiHeadFourier
from .record import write_record
from .relaxed import DotProductConvolution, RelaxedConvolution
from .spectral import blocks

__all__ = ["AppendixFourier", "BenchmarkConfig", "Row", "appendix_conv", "run_benchmark"]


@dataclass(frozen=True)
class BenchmarkConfig:
    """Measure speed and memory as ratios, print a table, and save it as JSON."""

    rows: tuple[str, ...] = ("convolution", "layer", "training", "throughput", "mixer", "generation")
    """Groups of rows to measure; training and throughput are left out on a CPU unless named alone."""
    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192)
    """Sequence lengths of convolution, layer and training."""
    contexts: tuple[int, ...] = (1024, 16384)
    """Tokens already written when generation is measured."""
    preset: Literal["nano", "tiny", "small", "medium", "large"] = "tiny"
    """Model of training and generation; its width and heads are those of the other rows."""
    against: tuple[str, ...] = ("llama",)
    """Rivals of throughput: llama, mamba, mamba2, jamba, or a variant such as no-swa."""
    tokens: int = 8192
    """Tokens per batch in convolution, layer, training and throughput: the batch is tokens / length, at least 1."""
    repeats: int = 7
    """Measurements of each side, of which the median counts."""
    device: str = "cuda" if torch.cuda.is_available() else "cpu"
    """Where to measure."""
    out: Path | None = None
    """JSON file to write."""

    def __post_init__(self):
        unknown = set(self.rows) - _GROUPS.keys()
        if unknown or not self.rows:
            raise ValueError(f"rows={' '.join(self.rows) or 'none'}; accepted: {', '.join(_GROUPS)}")
        for name in ("lengths", "contexts"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; give whole numbers >= 1")
        if self.preset not in PRESETS:
            raise ValueError(f"unknown preset {self.preset!r}; accepted: {', '.join(PRESETS)}")
        unknown = set(self.against) - {*BASELINES, *VARIANTS}
        if unknown or not self.against:
            raise ValueError(f"against={' '.join(self.against) or 'none'}; accepted: "
                             f"{', '.join((*BASELINES, *VARIANTS))}")
        if self.tokens < 1 or self.repeats < 1:
            raise ValueError(f"tokens={self.tokens}, repeats={self.repeats}; give whole numbers >= 1")


@dataclass(frozen=True)
class Row:
    """One ratio: how many times less time (or memory) ours needs than the reference."""

    what: str
    size: int
    against: str
    unit: str
    ours: float
    reference: float
    target: float | None
    """What the ratio should reach; None: for information."""

    @property
    def ratio(self) -> float:
        """Reference over ours: above 1, ours needs less."""
        return self.reference / self.ours


def appendix_conv(v: Tensor, g: Tensor) -> Tensor:
    """Causal convolution along axis 2 of `[B, H, L, d]` streams, in float32, at N = 2 L points.

    Returns:
        `[B, H, L, d]`, float32.  Source: the layout of Caracal, Appendix E.
    """
    length = v.shape[2]
    spectra = (torch.fft.rfft(x.float(), n=2 * length, dim=2) for x in (v, g))
    return torch.fft.irfft(torch.mul(*spectra), n=2 * length, dim=2)[:, :, :length]


class AppendixFourier(MultiHeadFourier):
    """`MultiHeadFourier` in the layout of the paper's appendix: same parameters, same results, for comparison."""

    def forward(self, x: Tensor, cache: None = None, lengths: None = None) -> Tensor:
        """Mix `[B, L, D]`, without a cache."""
        batch, length, width = x.shape
        heads = (batch, length, self.n_heads, width // self.n_heads)
        x = F.pad(x.transpose(1, 2), (self.kernel_size - 1, 0))
        x = self.norm(F.conv1d(x, self.pre_conv.weight, groups=width).transpose(1, 2))
        v = F.linear(x, self.to_value.weight, self.to_value.bias).reshape(heads).transpose(1, 2)
        g = F.silu(F.linear(x, self.to_gate.weight, self.to_gate.bias).transpose(1, 2))
        g = F.conv1d(g, self.gate_mix.weight, self.gate_mix.bias, groups=self.n_heads).transpose(1, 2)
        r = appendix_conv(v, g.reshape(heads).transpose(1, 2))
        return self.to_out(r.to(v.dtype).transpose(1, 2).reshape(batch, length, width))


def run_benchmark(config: BenchmarkConfig, show: Callable[[str], None] = print) -> list[Row]:
    """Measure, show a table row by row, and write `config.out`.

    Returns:
        the rows, times in milliseconds, memory in MiB.
    """
    rows, started = [], time.perf_counter()
    show(f"{'what':<34}{'size':>7}  {'against':<34}{'ours':>10}{'reference':>11}{'ratio':>9}{'target':>8}")
    for group in config.rows:
        if group in ("training", "throughput") and config.device == "cpu" and len(config.rows) > 1:
            continue
        for row in _GROUPS[group](config):
            rows.append(row)
            goal = "" if row.target is None else f"{row.target:g}" + (" ok" if row.ratio >= row.target else " NO")
            show(f"{row.what:<34}{row.size:>7}  {row.against:<34}{row.ours:>7.4g} {row.unit:<3}"
                 f"{row.reference:>7.4g} {row.unit:<3}{row.ratio:>8.2f}x{goal:>8}")
    if config.out is not None:
        results = {"rows": [{**asdict(row), "ratio": row.ratio} for row in rows]}
        write_record(config.out, "benchmark", asdict(config), results, None, time.perf_counter() - started,
                     torch.device(config.device))
    return rows


def _convolution(config: BenchmarkConfig) -> Iterator[Row]:
    width, heads = _width(config)
    for length in config.lengths:
        batch = max(1, config.tokens // length)
        v, g, dr = (torch.randn(batch, width, length, device=config.device) for _ in range(3))
        # As in the appendix: the content comes from a linear layer, the gate from a grouped convolution.
        content = v.transpose(1, 2).contiguous().view(batch, length, heads, -1).transpose(1, 2)
        gate, weight = (x.view(batch, heads, -1, length).transpose(2, 3) for x in (g, dr))
        ours = Differentiated(causal_conv_fft, [v, g], dr)
        reference = Differentiated(appendix_conv, [content, gate], weight)
        yield Row("causal convolution, fwd + bwd", length, "appendix layout, autograd", "ms",
                  *in_turns([ours, reference], config.repeats), 2.5)
        forward = [partial(causal_conv_fft, v, g), partial(_right_angle, v, g)]
        yield Row("causal convolution, fwd", length, "right angle, same blocks", "ms",
                  *in_turns(forward, config.repeats), None)


def _right_angle(v: Tensor, g: Tensor) -> Tensor:
    r = torch.empty_like(v)
    for v_, g_, r_ in blocks(v, g, r):
        r_.copy_(causal_conv_right_angle(v_, g_))
    return r


def _layer(config: BenchmarkConfig) -> Iterator[Row]:
    width, heads = _width(config)
    what, against = "Multi-Head Fourier", "appendix layout"
    for length in config.lengths:
        x = torch.randn(max(1, config.tokens // length), length, width, device=config.device)
        layers = [kind(width, heads).to(config.device) for kind in (MultiHeadFourier, AppendixFourier)]
        sides = [Differentiated(layer, [x], torch.randn_like(x), list(layer.parameters())) for layer in layers]
        yield Row(f"{what}, fwd + bwd", length, against, "ms", *in_turns(sides, config.repeats),
                  2.0 if config.device == "cuda" else 1.8)
        yield Row(f"{what}, kept for bwd", length, against, "MiB", *map(kept_for_backward, sides), 2.0)
        yield Row(f"{what}, peak memory", length, against, "MiB", *map(peak_memory, sides), None)


def _training(config: BenchmarkConfig) -> Iterator[Row]:
    what, against = f"{config.preset}, training step", "appendix layout, eager"
    for length in config.lengths:
        ours, appendix = (Caracal.from_preset(config.preset).to(config.device) for _ in range(2))
        for block in appendix.blocks:
            if isinstance(block.mixer, MultiHeadFourier):
                block.mixer.__class__ = AppendixFourier
        shape = (max(1, config.tokens // length), length)
        tokens = torch.randint(ours.config.vocab_size, shape, device=config.device)
        sides = [_training_side(ours, torch.compile(ours.loss, fullgraph=True), tokens),
                 _training_side(appendix, lambda *pair, model=appendix: model(*pair)[1], tokens)]
        yield Row(what, length, against, "ms", *in_turns(sides, config.repeats), 2.5)
        yield Row(f"{what}, peak memory", length, against, "MiB", *map(peak_memory, sides), None)


def _throughput(config: BenchmarkConfig) -> Iterator[Row]:
    for length in config.lengths:
        models = [make_model(preset=config.preset), *(_rival(name, config.preset, length) for name in config.against)]
        shape = (max(1, config.tokens // length), length)
        tokens = torch.randint(models[0].config.vocab_size, shape, device=config.device)
        sides = [_training_side(model.to(config.device), torch.compile(model.loss), tokens) for model in models]
        ours, *others = in_turns(sides, config.repeats)
        for name, other in zip(config.against, others, strict=True):
            target = None
            if name == "llama" and length >= 1024:
                target = 2.8 if length >= 8192 else 1.0
            yield Row(f"{config.preset}, training step", length, "llama, SDPA" if name == "llama" else name, "ms",
                      ours, other, target)


def _rival(name: str, preset: str, length: int) -> LanguageModel:
    return make_model(name, preset) if name in BASELINES else make_model(preset=preset, variant=name, context=length)


def _training_side(model: torch.nn.Module, loss: Callable, tokens: Tensor) -> Callable:
    return partial(_train_step, loss, torch.optim.AdamW(model.parameters(), fused=True), tokens)


def _train_step(loss: Callable, optimiser: torch.optim.Optimizer, tokens: Tensor) -> None:
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.is_cuda):
        total = loss(tokens, tokens)
    total.backward()
    optimiser.step()
    optimiser.zero_grad()


@torch.inference_mode()
def _mixer(config: BenchmarkConfig) -> Iterator[Row]:
    """Mean over the second half of a context for ours, so that every size of block counts; the others cost the same
    for every token of it."""
    width, _ = _width(config)
    for context in config.contexts:
        v, g = torch.randn(2, 1, width, context + 64, device=config.device)
        times = []
        for _ in range(config.repeats):
            relaxed, twin = (kind(1, width, context + 64, device=config.device)
                             for kind in (RelaxedConvolution, DotProductConvolution))
            relaxed.prefill(v[..., :context // 2 - 1], g[..., :context // 2 - 1])
            twin.prefill(v[..., :context], g[..., :context])
            token, fused = (v[..., 0], g[..., 0]), partial(torch.einsum, "bdt,bdt->bd", v, g)
            times.append([mean_time(partial(relaxed.step, *token), context // 2 + 1),
                          mean_time(partial(twin.step, *token), 32), mean_time(fused, 32)])
        ours, plain, fused = medians(times)
        what = "mixer alone, a token"
        yield Row(what, context, "its dot-product twin", "ms", ours, plain, 15.0 if context >= _LONG else None)
        yield Row(what, context, "bare fused dot product", "ms", ours, fused, None)


@torch.inference_mode()
def _generation(config: BenchmarkConfig) -> Iterator[Row]:
    """Mean over the last 1,024 tokens of a context for ours; rarer, larger blocks would add less than 1 %."""
    model = Caracal.from_preset(config.preset).to(config.device).eval()
    what = f"{config.preset}, generating a token"
    cost, rounds, probes = {}, 4, 16
    for context in config.contexts:
        tokens = torch.randint(model.config.vocab_size, (1, context), device=config.device)
        steps = max(1, min(context // 2, 1024) // rounds)
        sides = {"relaxed": steps, "dot_product": min(steps, probes)}
        next_logits, times = {}, []
        for kind, count in sides.items():
            caches = model.new_caches(1, context, kind)
            model.hidden(tokens[:, :max(1, context - rounds * count - 1)], caches)
            next_logits[kind] = partial(_next_logits, model, tokens[:, :1], caches)
            next_logits[kind]()
        for _ in range(rounds):
            times.append([mean_time(next_logits[kind], count) for kind, count in sides.items()])
        cost[context], twin = (statistics.mean(column) for column in zip(*times, strict=True))
        whole = medians([[mean_time(partial(model, tokens), 1)] for _ in range(min(3, config.repeats))])[0]
        targets = (2.5, 500.0) if context >= _LONG else (None, None)
        yield Row(what, context, "dot-product cache", "ms", cost[context], twin, targets[0])
        yield Row(what, context, "the whole forward pass", "ms", cost[context], whole, targets[1])
    shortest, longest = min(cost), max(cost)
    yield Row(what, longest, f"the same at {shortest}", "ms", cost[longest], cost[shortest], 0.5)


def _next_logits(model: Caracal, token: Tensor, caches: list) -> Tensor:
    return model.unembed(model.hidden(token, caches))


def _width(config: BenchmarkConfig) -> tuple[int, int]:
    return PRESETS[config.preset].d_model, PRESETS[config.preset].n_heads


_LONG = 16384  # tokens from which on generation has targets
_GROUPS = {"convolution": _convolution, "layer": _layer, "training": _training, "throughput": _throughput,
           "mixer": _mixer, "generation": _generation}
