# goes when training and commands no longer import it
"""The operator and the layer, forward and backward: rows `convolution` and `layer`."""

from collections.abc import Callable, Iterator
from functools import partial
from unittest import mock

import torch
from torch import Tensor

from ..convolution import causal_conv_fft, causal_conv_right_angle
from ..modules import MultiHeadFourier
from ..spectral import DIRECT, MOST_DIRECT, blocks, fft_points, kernel_fault
from .appendix import AppendixFourier, appendix_conv
from .config import BenchmarkConfig, Row
from .measure import Differentiated, in_precision, in_turns, kept_for_backward, peak_memory

__all__ = ["convolution", "layer"]


def convolution(config: BenchmarkConfig) -> Iterator[Row | str]:
    """Measure the operator at every length, on a GPU with bfloat16 streams, as it meets them in training."""
    width, heads = config.width
    dtype = torch.bfloat16 if config.device == "cuda" else torch.float32
    kind = torch.device(config.device).type
    if fault := kernel_fault(kind):
        yield f"direct kernel: left out, {fault}"
    for length in config.lengths:
        batch = config.batch(length)
        v, g, dr = (torch.randn(batch, width, length, device=config.device, dtype=dtype) for _ in range(3))
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
        if length <= MOST_DIRECT and not fault:
            yield Row("direct kernel, fwd + bwd", length, "FFT", "ms",
                      *in_turns([partial(_directly, kind, ours), ours], config.repeats), None)


def layer(config: BenchmarkConfig) -> Iterator[Row]:
    """Measure a Multi-Head Fourier layer at every length, on a GPU in the precision of training, else in float32."""
    width, heads = config.width
    low = "auto" if config.device == "cuda" else "float32"
    what, against = "Multi-Head Fourier", "appendix layout"
    for length in config.lengths:
        x = torch.randn(config.batch(length), length, width, device=config.device)
        kinds = [kind(width, heads).to(config.device) for kind in (MultiHeadFourier, AppendixFourier)]
        weight = torch.randn_like(x)
        sides = [Differentiated(in_precision(kind, config.device, low), [x], weight, list(kind.parameters()))
                 for kind in kinds]
        yield Row(f"{what}, fwd + bwd", length, against, "ms", *in_turns(sides, config.repeats),
                  2.0 if config.device == "cuda" else 1.8)
        yield Row(f"{what}, kept for bwd", length, against, "MiB", *map(kept_for_backward, sides), 2.0)
        yield Row(f"{what}, peak memory", length, against, "MiB", *map(peak_memory, sides), None)


def _directly(kind: str, call: Callable) -> None:
    with mock.patch.dict(DIRECT, {kind: MOST_DIRECT}):
        call()


def _right_angle(v: Tensor, g: Tensor) -> Tensor:
    r = torch.empty_like(v)
    for v_, g_, r_ in blocks(v, g, r, points=fft_points(v.shape[-1], v.shape[-1])):
        r_.copy_(causal_conv_right_angle(v_, g_))
    return r
