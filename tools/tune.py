"""Which of several ways to do one thing is fastest on this machine: measured in turns, medians, results compared.

    python tools/tune.py --tokens 16384
    python tools/tune.py --only blocks loss

The package does each in one way, on every device the same unless a table in it names the device: `spectral.BLOCK`,
`spectral.DIRECT`, `loss.rows_at_once`.  This script is for whoever has a new kind of device; what it finds goes into
those tables.

    convolution  the operator by FFT and, where it runs, by the direct kernel (`spectral.DIRECT`)
    blocks       rows of the convolution transformed at once (`spectral.BLOCK`)
    spectra      two transforms of real streams, one call for both, or the right angle without padding
    short        the 3-tap convolution by the library and as three shifted products, eager and compiled
    vocabulary   the three products of the output layer, with the vocabulary as it is and padded to a multiple of 128
    loss         positions whose logits are held at once (`loss.rows_at_once`)
    step         sequences per forward pass, and what torch.compile is given, for a whole training step
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import get_args
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

from caracal_book.benchmark.config import Compiled
from caracal_book.benchmark.measure import Differentiated, in_precision, in_turns
from caracal_min import spectral
from caracal_min.config import PRESETS
from caracal_min.convolution import causal_conv_fft, causal_conv_right_angle
from caracal_min.layers import shifted_products
from caracal_min.loss import linear_cross_entropy, rows_at_once
from caracal_min.model import Caracal
from caracal_min.precision import resolve_precision

Way = tuple[str, Callable]


def implementations(device: str, length: int) -> dict[str, Callable[[], AbstractContextManager]]:
    """Return the contexts in which `causal_conv_fft` is computed by each implementation that runs there."""
    found: dict[str, Callable[[], AbstractContextManager]] = {"FFT": nullcontext}
    kind = torch.device(device).type
    if length <= spectral.MOST_DIRECT and kind == "cuda":
        found["direct kernel"] = partial(mock.patch.dict, spectral.DIRECT, {kind: spectral.MOST_DIRECT})
    return found


def convolution(options: argparse.Namespace) -> Iterator[tuple[str, list[Way]]]:
    """Time the operator, forward and backward, by each implementation."""
    v, g, dr = _streams(options)
    call = Differentiated(causal_conv_fft, [v, g], dr)
    yield "convolution, fwd + bwd", [(name, partial(_within, context, call)) for name, context in implementations(
        options.device, options.length).items()]


def blocks(options: argparse.Namespace) -> Iterator[tuple[str, list[Way]]]:
    """Time the operator, forward and backward, with several sizes of block."""
    v, g, dr = _streams(options)
    call = Differentiated(causal_conv_fft, [v, g], dr)
    kind = torch.device(options.device).type
    yield "convolution in blocks, fwd + bwd", [
        (f"blocks of {size}" if size else "all rows at once",
         partial(_within, partial(mock.patch.dict, spectral.BLOCK, {kind: size}), call))
        for size in (None, *(1 << k for k in range(18, 27, 2)))]


def spectra(options: argparse.Namespace) -> Iterator[tuple[str, list[Way]]]:
    """Time the operator, forward, by several routes."""
    v, g, _ = _streams(options)
    yield "convolution, fwd", [("two transforms, padded", partial(causal_conv_fft, v, g)),
                               ("one call for both, padded", partial(together, v, g)),
                               ("right angle", partial(causal_conv_right_angle, v, g))]


def short(options: argparse.Namespace) -> Iterator[tuple[str, list[Way]]]:
    """Time the 3-tap convolution, forward and backward."""
    width, length = PRESETS[options.preset].d_model, options.length
    x = F.pad(torch.randn(options.tokens // length, length, width, device=options.device), (0, 0, 2, 0))
    taps = torch.randn(width, 1, 3, device=options.device).requires_grad_()
    weight = torch.randn(options.tokens // length, length, width, device=options.device)
    for how, build in (("eager", lambda f: f), ("compiled", partial(torch.compile, dynamic=False))):
        yield f"short convolution, fwd + bwd, {how}", [
            (name, Differentiated(in_precision(build(partial(f, weight=taps)), options.device), [x], weight, [taps]))
            for name, f in (("conv2d", _library), ("shifted products", shifted_products))]


def vocabulary(options: argparse.Namespace) -> Iterator[tuple[str, list[Way]]]:
    """Time the three products of the output layer, one after the other."""
    size, ways = PRESETS[options.preset], []
    for ids in dict.fromkeys((size.vocab_size, -(-size.vocab_size // 128) * 128)):
        dtype = resolve_precision("auto", options.device)
        rows = min(options.tokens, rows_at_once(ids, options.device))
        hidden, weight = (torch.randn(n, size.d_model, device=options.device, dtype=dtype) for n in (rows, ids))
        ways.append((f"{ids} ids", partial(_products, hidden, weight)))
    yield "products of the output layer", ways


def loss(options: argparse.Namespace) -> Iterator[tuple[str, list[Way]]]:
    """Time the output layer, forward and backward."""
    size = PRESETS[options.preset]
    hidden, weight = (torch.randn(n, size.d_model, device=options.device) for n in (options.tokens, size.vocab_size))
    targets = torch.randint(size.vocab_size, (options.tokens,), device=options.device)
    one = torch.ones((), device=options.device)
    for how, build in (("eager", lambda f: f), ("compiled", partial(torch.compile, dynamic=False))):
        ways = []
        for rows in (n for n in (512, 2048, 8192, 32768) if n <= options.tokens):
            part = build(partial(_loss_of, targets, rows))
            ways.append((f"{rows} rows", Differentiated(in_precision(part, options.device), [hidden, weight], one)))
        if ways:
            yield f"output layer, fwd + bwd, {how}", ways


def step(options: argparse.Namespace) -> Iterator[tuple[str, list[Way]]]:
    """Time a forward and backward pass of the whole model over the same tokens, cut in several ways."""
    whole = torch.randint(PRESETS[options.preset].vocab_size, (options.tokens // options.length, options.length),
                          device=options.device)
    ways = []
    for kind in options.compile:
        for parts in options.parts:
            if whole.shape[0] % parts == 0:
                model = Caracal.from_preset(options.preset).to(options.device).compile_for(kind)
                ways.append((f"compile {kind}, {whole.shape[0] // parts} sequences at once",
                             partial(_accumulate, model, in_precision(model.loss, options.device), whole.chunk(parts))))
    yield "training step", ways


def together(v: Tensor, g: Tensor) -> Tensor:
    """Convolve causally, `[..., L]`, with both streams padded into one tensor and transformed in one call."""
    length = v.shape[-1]
    n = spectral.fast_length(2 * length - 1)
    padded = torch.empty((2, *v.shape[:-1], n), dtype=torch.promote_types(v.dtype, torch.float32), device=v.device)
    padded[0, ..., :length], padded[1, ..., :length], padded[..., length:] = v, g, 0
    a, b = torch.fft.rfft(padded)
    return torch.fft.irfft(a.mul_(b), n=n)[..., :length].to(v.dtype)


GROUPS = {group.__name__: group for group in (convolution, blocks, spectra, short, vocabulary, loss, step)}


def tune(options: argparse.Namespace, show: Callable[[str], None] = print) -> dict[str, dict[str, float]]:
    """Measure the groups; return the milliseconds of each way."""
    found: dict[str, dict[str, float]] = {}
    for name in options.only:
        for what, ways in GROUPS[name](options):
            times = in_turns([way for _, way in ways], options.repeats)
            torch.compiler.reset()
            found[what] = dict(zip((label for label, _ in ways), times, strict=True))
            show(f"{what}, {options.tokens} tokens in sequences of {options.length}, {options.device}")
            for label, time in found[what].items():
                show(f"    {label:<40}{time:>10.3f} ms{time / min(times):>8.2f}x")
    return found


def _streams(options: argparse.Namespace) -> tuple[Tensor, ...]:
    shape = (3, options.tokens // options.length, PRESETS[options.preset].d_model, options.length)
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    return torch.randn(shape, device=options.device, dtype=dtype).unbind(0)


def _within(context: Callable[[], AbstractContextManager], call: Callable) -> None:
    with context():
        call()


def _products(hidden: Tensor, weight: Tensor) -> None:
    logits = hidden @ weight.t()
    _ = logits @ weight, logits.t() @ hidden


def _loss_of(targets: Tensor, rows: int, hidden: Tensor, weight: Tensor) -> Tensor:
    return linear_cross_entropy(hidden, weight, targets, rows)


def _library(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x.mT.unsqueeze(-2), weight.unsqueeze(2), groups=len(weight)).squeeze(-2).mT


def _accumulate(model: Caracal, loss: Callable, parts: tuple[Tensor, ...]) -> None:
    for tokens in parts:
        (loss(tokens, tokens.roll(-1, 1)) / len(parts)).backward()
    model.zero_grad()


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--preset", choices=PRESETS, default="tiny")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--compile", nargs="+", choices=get_args(Compiled), default=get_args(Compiled))
    parser.add_argument("--parts", nargs="+", type=int, default=[1, 2, 4], help="into which a step cuts its sequences")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(given)
    if options.tokens < options.length:
        parser.error(f"--tokens {options.tokens} is less than one sequence of --length {options.length}")
    return options


if __name__ == "__main__":
    tune(arguments())
