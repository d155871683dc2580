"""A model for places without this package: `torch.export` programs and ONNX files of standard operators only.

Both hold one batch size and one length, and take ids to logits.  The causal convolution, one operator of our own
while it is here, is written out in the transforms it consists of, at a power of two of points: the one kind of
length that every runtime transforms exactly and fast.
"""

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from .extras import missing
from .model import Caracal
from .spectral import written_out

__all__ = ["export_onnx", "export_program"]


class _Logits(nn.Module):
    def __init__(self, model: Caracal):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model.logits(tokens)


def export_program(model: Caracal, length: int, batch: int = 1) -> torch.export.ExportedProgram:
    """Trace the model for ids `[batch, length]` (int64) into a graph of ATen operators alone.

    `torch.export.save` writes it; `torch.export.load(...).module()` runs it where this package is not installed.

    Returns:
        a program that maps ids `[batch, length]` to logits `[batch, length, vocab_size]`.

    Raises:
        ValueError: a length or batch below 1.

    Example:
        >>> program = export_program(Caracal.from_preset("nano", n_layers=1), length=8)
        >>> program.module()(torch.zeros(1, 8, dtype=torch.int64)).shape
        torch.Size([1, 8, 256])
    """
    if length < 1 or batch < 1:
        raise ValueError(f"length={length}, batch={batch}; give whole numbers >= 1")
    tokens = torch.zeros(batch, length, dtype=torch.int64, device=model.embedding.weight.device)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of PyTorch, about its own code
        program = torch.export.export(_Logits(model).eval(), (tokens,))
        return program.run_decompositions({torch.ops.caracal.causal_conv.default: _at_a_power_of_two})


def export_onnx(model: Caracal, path: str | Path, length: int, batch: int = 1) -> None:
    """Write an ONNX file that takes `tokens`, int64 `[batch, length]`, and returns `logits`.

    Raises:
        ImportError: the packages of the extra `onnx` are not installed.
        ValueError: a length or batch below 1.
    """
    try:
        import onnxscript  # noqa: F401
    except ImportError:
        raise missing("the ONNX exporter", "onnxscript", "onnx") from None
    torch.onnx.export(export_program(model, length, batch), f=str(path), dynamo=True, opset_version=20,
                      input_names=["tokens"], output_names=["logits"], external_data=False, verbose=False)


def _at_a_power_of_two(v: Tensor, g: Tensor) -> Tensor:
    return written_out(v, g, 1 << (v.shape[-1] + g.shape[-1] - 2).bit_length())
