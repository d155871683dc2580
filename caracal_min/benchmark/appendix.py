# goes when training and commands no longer import it
"""What Caracal is compared with: the mixer as the paper's appendix lays it out, written again.

Transforms along the second of three axes, of which the content's strides over memory; N = 2 L points; autograd keeps
the complex spectra.
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor

from ..model import Caracal
from ..modules import MultiHeadFourier

__all__ = ["AppendixFourier", "appendix_conv", "in_appendix_layout"]


def appendix_conv(v: Tensor, g: Tensor) -> Tensor:
    """Causal convolution along axis 2 of `[B, H, L, d]` streams, in float32, at N = 2 L points.

    Returns:
        `[B, H, L, d]`, float32.  Source: the layout of Caracal, Appendix E.
    """
    length = v.shape[2]
    spectra = (torch.fft.rfft(x.float(), n=2 * length, dim=2) for x in (v, g))
    return torch.fft.irfft(torch.mul(*spectra), n=2 * length, dim=2)[:, :, :length]


class AppendixFourier(MultiHeadFourier):
    """`MultiHeadFourier` in the layout of the paper's appendix: same parameters, same results, for comparison.

    Args:
        d_model, n_heads: as in `MultiHeadFourier`; the layer has a pre-convolution and a two-stage gate.
    """

    def __init__(self, d_model: int, n_heads: int):
        super().__init__(d_model, n_heads)

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


def in_appendix_layout(model: Caracal) -> Caracal:
    """Return a copy of a model whose Fourier layers are `AppendixFourier`, with the weights of the model's own.

    Raises:
        RuntimeError: a layer without pre-convolution or with a single-stage gate, which the listing does not have.
    """
    model = copy.deepcopy(model)
    for block in model.blocks:
        if isinstance(block.mixer, MultiHeadFourier):
            layer = AppendixFourier(block.mixer.d_model, block.mixer.n_heads).to(block.mixer.to_out.weight)
            layer.load_state_dict(block.mixer.state_dict())
            block.mixer = layer
    return model
