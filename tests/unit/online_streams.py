"""What the tests of online convolutions share: streams, and how near to the sum a convolution must come."""

import torch

TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 4e-3}
"""Of `relative_error`, against the sum in float64 over up to 300 tokens."""


def streams(batch, channels, length, dtype=torch.float64, seed=0):
    """Draw v and g, each `[batch, channels, length]`."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(2, batch, channels, length, generator=draw, dtype=torch.float64).to(dtype).unbind(0)


def relative_error(found, expected):
    """Root mean square of the difference over that of what is expected, in float64."""
    return ((found.double() - expected).square().mean() / expected.square().mean()).sqrt().item()
