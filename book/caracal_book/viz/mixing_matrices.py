"""The first figure of chapter 5: attention's matrices beside those of Fourier layers, for one text."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .figure import Figure

__all__ = ["mixing_matrices"]


def mixing_matrices(tokens: Sequence[str], attention: Mapping[str, Tensor], fourier: Mapping[str, Tensor], *,
                    row: int | None = None, column: int = 0) -> Figure:
    """Show two mixing matrices side by side and, on the tokens of the text, the weights of one row.

    The reader chooses among the matrices, and picks a row and a column.

    Args:
        tokens: the text in pieces, L strings, 2 <= L <= 64; a string stands for its characters.
        attention: by name, causal weights of a head, `[L, L]`, rows that sum to 1.
        fourier: by name, the kernel g of a channel, `[L]`; its matrix has the entries g[t - j].
        row: row t at the start; default the last.
        column: column j at the start, at most `row`.

    Raises:
        ValueError: no matrix of a kind, a shape that does not fit the tokens, weights above the diagonal, an entry
            outside the lower triangle.

    The page holds the attention weights in thousandths and the kernels to five decimals.
    """
    length = len(tokens)
    row = length - 1 if row is None else row
    if not 2 <= length <= 64:
        raise ValueError(f"the text has {length} tokens; give 2 to 64")
    if not 0 <= column <= row < length:
        raise ValueError(f"entry ({row}, {column}) of a {length} by {length} matrix; "
                         "give 0 <= column <= row < length")
    for kind, given, shape in (("attention", attention, (length, length)), ("fourier", fourier, (length,))):
        if not given:
            raise ValueError(f"{kind} is empty; give at least one")
        for name, values in given.items():
            if tuple(values.shape) != shape:
                raise ValueError(f"{kind} {name!r} has shape {tuple(values.shape)}; {length} tokens ask for {shape}")
    heads = [{"name": name, "rows": _thousandths(name, A)} for name, A in attention.items()]
    channels = [{"name": name, "g": torch.round(g.detach().cpu().double(), decimals=5).tolist()}
                for name, g in fourier.items()]
    model = {"tokens": list(tokens), "attention": heads, "fourier": channels, "head": 0, "channel": 0,
             "row": row, "column": column}
    alt = (f"Two lower-triangular matrices for a text of {length} tokens: attention, {heads[0]['name']}, in grey, "
           f"where columns stand out, and a Fourier layer, {channels[0]['name']}, in orange, where each diagonal "
           f"has one shade and is hollow where negative. Row {row} is marked; below, the tokens carry its weights. "
           f"Choose among {len(heads)} heads and {len(channels)} channels, and move the sliders for row and column.")
    return Figure("mixing_matrices", model, None, alt, state=("head", "channel", "row", "column"),
                  computed=("attention", "fourier"))


def _thousandths(name: str, A: Tensor) -> list[list[int]]:
    A = A.detach().cpu().double()
    if A.triu(1).any() or (A < 0).any():
        raise ValueError(f"attention {name!r} has weights above the diagonal or below zero; give causal weights")
    return [[round(1000 * w) for w in line[:t + 1]] for t, line in enumerate(A.tolist())]
