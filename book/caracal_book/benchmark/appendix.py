"""What Caracal is compared with: the mixer as the paper's appendix lays it out, written again.

Transforms along the second of three axes, of which the content's strides over memory; N = 2 L points; autograd keeps
the complex spectra.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from caracal_min import MultiHeadFourier

__all__ = ["AppendixFourier", "appendix_conv"]


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

    def forward(self, x: Tensor, cache: None = None, lengths: None = None) -> Tensor:
        """Mix `[B, L, D]`, without a cache."""
        taps, mix = self.pre_conv.weight, self.gate_mix
        x = F.pad(x.mT, (taps.shape[-1] - 1, 0))
        x = self.norm(F.conv1d(x, taps, groups=len(taps)).mT)
        v = F.linear(x, self.to_value.weight, self.to_value.bias)
        g = F.silu(F.linear(x, self.to_gate.weight, self.to_gate.bias).mT)
        g = F.conv1d(g, mix.weight, mix.bias, groups=self.n_heads).mT
        # (B, H, L, d) each, whose channels lie side by side in memory and whose tokens do not
        v, g = (stream.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for stream in (v, g))
        r = appendix_conv(v, g).to(v.dtype)
        return self.to_out(r.transpose(1, 2).flatten(2))
