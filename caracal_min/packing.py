"""Several documents in one window, kept apart: each is read in a row of its own, padded on the right.

Nothing in a layer separates the documents of a window: a Fourier layer sums over all tokens before, and there is no
mask to stop it.  But the model is causal, so that padding on the right changes nothing.  In a row of its own a document
has its own sums, windows, taps of the short convolution and positions, and no layer knows of documents.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

__all__ = ["PackedDocuments", "document_ids", "micro_batches"]


def document_ids(tokens: Tensor, end_of_text: int) -> Tensor:
    """Number the documents of ids `[B, L]`, row by row: int64 `[B, L]`.  The id that ends a document belongs to it.

    Example:
        >>> document_ids(torch.tensor([[5, 0, 7, 8, 0, 9]]), end_of_text=0)
        tensor([[0, 0, 1, 1, 1, 2]])
    """
    ends = (tokens == end_of_text).long()
    return ends.cumsum(-1) - ends


class PackedDocuments:
    """Where the documents of some windows begin and end.

    Args:
        documents: integers `[B, L]`, one for each token, that do not fall along a row: a new number begins a new
            document, and so does a new row.
        tokens: the ids, `[B, L]`.

    Attributes:
        lengths: tokens of each document, in order.

    Raises:
        TypeError, ValueError: documents are none, in one line.
    """

    def __init__(self, documents: Tensor, tokens: Tensor):
        if not isinstance(documents, Tensor):
            raise TypeError(f"documents is a {type(documents).__name__}; give a torch.Tensor of integers, "
                            "[batch, length]")
        accepted = f"give integers of shape {list(tokens.shape)}, one for each token, that do not fall along a row"
        if documents.shape != tokens.shape or documents.is_floating_point() or documents.is_complex():
            raise ValueError(f"documents have shape {tuple(documents.shape)} and dtype {documents.dtype}; {accepted}")
        before, after = documents[:, :-1], documents[:, 1:]
        if (after < before).any():
            raise ValueError(f"documents fall along a row; {accepted}")
        first = F.pad(after != before, (1, 0), value=True)
        starts = first.flatten().nonzero().flatten().tolist()
        self.shape, self.lengths = tokens.shape, [b - a for a, b in pairwise([*starts, tokens.numel()])]

    def apart(self, ids: Tensor, padding: int = 0) -> Tensor:
        """Return ids `[B, L]` with a row for each document, `[documents, longest]`."""
        return pad_sequence(ids.flatten().split(self.lengths), batch_first=True, padding_value=padding)

    def together(self, rows: Tensor) -> Tensor:
        """Return what rows `[documents, longest, ...]` hold of the documents as windows, `[B, L, ...]`."""
        lengths = torch.tensor(self.lengths, device=rows.device)
        held = torch.arange(rows.shape[1], device=rows.device) < lengths[:, None]
        return rows[held].view(*self.shape, *rows.shape[2:])


def micro_batches(batch: Tensor, size: int, end_of_text: int | None = None,
                  few_shapes: bool = False) -> list[tuple[Tensor, float]]:
    """Cut a batch into parts of as many tokens as `size` of its rows have, or fewer.

    Args:
        batch: inputs and targets, ids `[2, B, L]`, B a multiple of `size`.
        end_of_text: the id that ends a document: then documents have rows of their own, those of like lengths
            together, so that there is little padding.  None: the rows are those of the batch.
        few_shapes: pad the documents to three shapes, for compiled kernels.

    Returns:
        of each part its inputs and targets, `[2, rows, longest]`, where a target that is none is -100, and how many
        times as many targets the batch has: the mean loss is the sum of those of the parts, each divided by that.
    """
    if end_of_text is None:
        return [(part.contiguous(), batch.shape[1] / size) for part in batch.split(size, 1)]
    length, parts = batch.shape[2], []
    documents = PackedDocuments(document_ids(batch[0], end_of_text), batch[0])
    rows = sorted(batch.flatten(1).split(documents.lengths, 1), key=lambda row: -row.shape[1])
    while rows:
        longest = rows[0].shape[1]
        if few_shapes:
            longest = next(n for n in (-(-length // 4), -(-length // 2), length) if n >= longest)
        most = size * length // longest
        held, rows = rows[:most], rows[most:]
        part = pad_sequence([row.t() for row in held], batch_first=True, padding_value=-100).movedim(-1, 0)
        if few_shapes:
            part = F.pad(part, (0, longest - part.shape[2], 0, most - len(held)), value=-100)
        targets = sum(row.shape[1] for row in held)
        parts.append((torch.stack([part[0].clamp(min=0), part[1]]), batch[1].numel() / targets))
    return parts
