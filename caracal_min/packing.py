"""Several documents in one window, kept apart: each is read in a row of its own, padded right.

Nothing in a layer separates the documents of a window: a Fourier layer sums over all earlier
tokens, and has no mask.  But the model is causal, so padding on the right changes nothing: in a row
of its own a document has its own sums, windows and positions, and no layer knows of documents.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

__all__ = ["PackedDocuments", "document_ids", "micro_batches"]


def document_ids(tokens: Tensor, end_of_text: int) -> Tensor:
    """Number the documents of ids `[B, L]`, row by row: int64 `[B, L]`.

    The id that ends a document belongs to it.

    Example:
        >>> document_ids(torch.tensor([[5, 0, 7, 8, 0, 9]]), end_of_text=0)
        tensor([[0, 0, 1, 1, 1, 2]])
    """
    ends = (tokens == end_of_text).long()
    return ends.cumsum(-1) - ends


class PackedDocuments:
    """Where the documents of some windows begin and end.

    Args:
        documents: integers `[B, L]` that do not fall along a row: a new number begins a new
            document, and so does a new row.
        tokens: the ids, `[B, L]`.

    Attributes:
        lengths: tokens of each document, in order.

    Raises:
        ValueError: documents of another shape, or that fall along a row.
    """

    def __init__(self, documents: Tensor, tokens: Tensor):
        if documents.shape != tokens.shape:
            shape = tuple(documents.shape)
            raise ValueError(f"documents have shape {shape}; give {list(tokens.shape)}")
        steps = documents.diff(dim=1)
        if (steps < 0).any():
            raise ValueError("documents fall along a row; give numbers that stay or rise")
        rises = steps > 0
        begins = F.pad(rises, (1, 0), value=True)
        starts = begins.flatten().nonzero()
        bounds = [*starts.flatten().tolist(), tokens.numel()]
        self.shape = tokens.shape
        self.lengths = [end - start for start, end in pairwise(bounds)]

    def apart(self, ids: Tensor, padding: int = 0) -> Tensor:
        """Return ids `[B, L]` with a row for each document, `[documents, longest]`."""
        rows = ids.flatten().split(self.lengths)
        return pad_sequence(rows, batch_first=True, padding_value=padding)

    def together(self, rows: Tensor) -> Tensor:
        """Return rows `[documents, longest, ...]` as windows again, `[B, L, ...]`."""
        pairs = zip(rows, self.lengths, strict=True)
        texts = [row[:length] for row, length in pairs]
        tokens = torch.cat(texts)
        return tokens.unflatten(0, self.shape)


def micro_batches(
    batch: Tensor, size: int, end_of_text: int | None = None, few_shapes: bool = False
) -> list[tuple[Tensor, float]]:
    """Cut a batch into parts of as many tokens as `size` of its rows have, or fewer.

    Args:
        batch: inputs and targets, ids `[2, B, L]`, B a multiple of `size`.
        size: rows of a part.
        end_of_text: the id that ends a document: then documents have rows of their own, similar
            lengths together, so that there is little padding.  None: the rows are the batch's.
        few_shapes: pad the documents to three shapes, for compiled kernels.

    Returns:
        for each part its inputs and targets, `[2, rows, longest]`, with targets -100 at padding,
        and how many times as many targets the batch has: the mean loss of the batch is the sum of
        the parts' mean losses, each divided by that.
    """
    _, count, length = batch.shape
    if end_of_text is None:
        return [(part.contiguous(), count / size) for part in batch.split(size, 1)]

    inputs = batch[0]
    ids = document_ids(inputs, end_of_text)
    documents = PackedDocuments(ids, inputs)
    rows = batch.flatten(1).split(documents.lengths, 1)
    # Similar lengths together, the longest first: each part is padded to the first of its rows.
    rows = sorted(rows, key=lambda row: -row.shape[1])
    # A compiler builds kernels for each shape: a quarter of a window, half of one, all of it.
    quarter = -(-length // 4)
    half = -(-length // 2)
    parts = []
    while rows:
        longest = rows[0].shape[1]
        if few_shapes:
            longest = min(n for n in (quarter, half, length) if n >= longest)
        # As many documents as fit the tokens of `size` windows.
        most = size * length // longest
        taken = rows[:most]
        rows = rows[most:]
        height = most if few_shapes else len(taken)
        # The loss leaves -100 out; among the inputs any id will do, since no token reads ahead.
        part = batch.new_full((2, height, longest), -100)
        targets = 0
        for i, row in enumerate(taken):
            end = row.shape[1]
            part[:, i, :end] = row
            targets += end
        part[0].clamp_(min=0)
        parts.append((part, count * length / targets))
    return parts
