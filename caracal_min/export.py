"""A model for places without this package: `torch.export` programs and ONNX files.

Both consist of standard operators alone, hold one batch size and one length, and take ids to
logits.  The causal convolution, an operator of our own, is written out in the transforms it
consists of, at a power of two of points: every runtime transforms that length exactly and fast.
"""

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from .convolution import circular_conv
from .model import Caracal

__all__ = ["export_onnx", "export_program"]


class _Logits(nn.Module):
    """A graph has one output: leave out the loss, which is None."""

    def __init__(self, model: Caracal):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model.logits(tokens)


def export_program(model: Caracal, length: int, batch: int = 1) -> torch.export.ExportedProgram:
    """Trace the model for ids `[batch, length]` (int64) into a graph of ATen operators alone.

    `torch.export.save` writes it; `torch.export.load(...).module()` runs it where this package is
    not installed.

    Returns:
        a program that maps ids `[batch, length]` to logits `[batch, length, vocab_size]`.

    Example:
        >>> program = export_program(Caracal.from_preset("nano", n_layers=1), length=8)
        >>> program.module()(torch.zeros(1, 8, dtype=torch.int64)).shape
        torch.Size([1, 8, 256])
    """
    # Tracing needs ids of the right shape, and any values will do.
    tokens = torch.zeros(batch, length, dtype=torch.int64, device=model.device)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of PyTorch, about its own code
        program = torch.export.export(_Logits(model), (tokens,))
        # Other programs do not know our operator, so it is replaced by the transforms inside.
        conv = torch.ops.caracal.causal_conv.default
        return program.run_decompositions({conv: _at_a_power_of_two})


def export_onnx(model: Caracal, path: str | Path, length: int, batch: int = 1) -> None:
    """Write an ONNX file that takes `tokens`, int64 `[batch, length]`, and returns `logits`.

    Raises:
        ImportError: the exporter's package is not installed.
    """
    # PyTorch would miss it only after the whole model has been traced.
    try:
        import onnxscript  # noqa: F401
    except ImportError:
        raise ImportError(
            "the ONNX exporter needs onnxscript: pip install onnx onnxscript") from None
    program = export_program(model, length, batch)
    torch.onnx.export(
        program, f=str(path), input_names=["tokens"], output_names=["logits"], opset_version=20,
        dynamo=True, external_data=False, verbose=False
    )


def _at_a_power_of_two(v: Tensor, g: Tensor) -> Tensor:
    """The convolution in plain transforms, of the one kind of length that is fast everywhere."""
    last = v.shape[-1] + g.shape[-1] - 2  # degree of the product of the two polynomials
    points = 1 << last.bit_length()
    product = circular_conv(v, g, points)
    return product[..., :v.shape[-1]]
