"""The operator and the layer, forward and backward: rows `convolution` and `layer`."""

from collections.abc import Iterator

import torch

from caracal_min.convolution import causal_conv_fft
from caracal_min.layers import MultiHeadFourier

from .appendix import AppendixFourier, appendix_conv
from .config import BenchmarkConfig, Row
from .measure import Differentiated, in_precision, in_turns

__all__ = ["convolution", "layer"]


def convolution(config: BenchmarkConfig) -> Iterator[Row]:
    """Measure the operator at every length, on a GPU with bfloat16 streams, as it meets them in training."""
    width, heads, device = config.size.d_model, config.size.n_heads, config.device
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    for length in config.lengths:
        batch = config.batch(length)
        v, g, dr = torch.randn(3, batch, width, length, device=device, dtype=dtype).unbind()
        # As in the appendix: the content comes from a linear layer, the gate from a grouped convolution.
        content = v.transpose(1, 2).contiguous().view(batch, length, heads, -1).transpose(1, 2)
        gate, weight = (x.view(batch, heads, -1, length).transpose(2, 3) for x in (g, dr))
        ours = Differentiated(causal_conv_fft, [v, g], dr)
        appendix = Differentiated(appendix_conv, [content, gate], weight)
        times = in_turns([ours, appendix], config.repeats)
        yield Row("causal convolution, fwd + bwd", length, "appendix layout, autograd", "ms", *times, 2.5)


def layer(config: BenchmarkConfig) -> Iterator[Row]:
    """Measure a Multi-Head Fourier layer at every length, on a GPU in the precision of training, else in float32."""
    width, heads, device = config.size.d_model, config.size.n_heads, config.device
    precision, goal = ("auto", 2.0) if device == "cuda" else ("float32", 1.8)
    for length in config.lengths:
        x, weight = torch.randn(2, config.batch(length), length, width, device=device).unbind()
        sides = []
        for kind in (MultiHeadFourier, AppendixFourier):
            made = kind(width, heads).to(device)
            sides.append(Differentiated(in_precision(made, device, precision), [x], weight, list(made.parameters())))
        yield Row("Multi-Head Fourier, fwd + bwd", length, "appendix layout", "ms", *in_turns(sides, config.repeats),
                  goal)
