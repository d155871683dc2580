"""Cross-entropy in nats: from logits, or from hidden states without ever holding all logits.

Logits over GPT-2's vocabulary are the largest thing in a training step: 32 sequences of 512 tokens are 3.3 GB of
them in float32, and their gradient as much again.  `linear_cross_entropy` works on some rows at a time and computes
the gradient of the hidden states and of the output matrix in the forward pass, so nothing of that size is kept.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from .spectral import transformed

__all__ = ["linear_cross_entropy", "rows_at_once", "token_loss"]

# Numbers of logits held at once, by kind of device: 512 MiB of bfloat16 on a CPU, 1 GiB of float32 elsewhere.
_CHUNK = {"cpu": 1 << 28}
_LARGE_CHUNK = 1 << 28
_CACHED = 1 << 21  # numbers that a CPU's cache holds in float32


def rows_at_once(device: torch.device, vocabulary: int) -> int:
    """Return for how many positions logits over a vocabulary are held at one time, at least 1."""
    return max(1, _CHUNK.get(device.type, _LARGE_CHUNK) // vocabulary)


def token_loss(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy in nats, computed in at least float32.

    Args:
        logits: `[..., vocabulary]`, floating point.  targets: ids `[...]`; -100 is left out.
        reduction: "mean", or "none" for one loss per target, `[...]`.

    Returns:
        the mean, NaN where no target counts, or the losses.

    Raises:
        ValueError: targets that are no ids, of another shape or on another device, or an id out of range (the range
            is checked on a CPU only).
    """
    _require_targets(logits, logits.shape[-1], targets)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten().long(), reduction=reduction)
    return loss if reduction == "mean" else loss.view(targets.shape)


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, rows: int | None = None) -> Tensor:
    """Mean cross-entropy in nats of the logits `hidden @ weight.T`, of which only a part is held at any time.

    Equals `token_loss(F.linear(hidden, weight), targets)` up to rounding, under autocast too; it can be
    differentiated once.  Under a transform of `torch.func` it is that, and holds all logits.

    Args:
        hidden: `[..., D]`, floating point.  weight: `[vocabulary, D]`.  targets: ids `[...]`; -100 is left out.
        rows: positions whose logits are held at once, >= 1; None takes `rows_at_once`.

    Returns:
        a scalar in at least float32; NaN where no target counts, or where an id is out of range on another device
        than a CPU.

    Raises:
        ValueError: targets that are no ids, of another shape or on another device, or an id out of range on a CPU;
            a weight of another width; rows below 1.

    Source: the output layer in chunks, as in Wijmans et al. 2024 (Cut Cross-Entropy) and Hsu et al. 2024 (Liger).
    """
    if weight.ndim != 2 or weight.shape[1:] != hidden.shape[-1:]:
        raise ValueError(f"hidden has shape {tuple(hidden.shape)} and weight {tuple(weight.shape)}; "
                         "give [..., D] and [vocabulary, D]")
    _require_targets(hidden, weight.shape[0], targets)
    if rows is not None and rows < 1:
        raise ValueError(f"rows={rows}; give a whole number >= 1, or None")
    if transformed():
        return token_loss(F.linear(hidden, weight), targets)
    rows = rows_at_once(hidden.device, weight.shape[0]) if rows is None else rows
    return _LinearCrossEntropy.apply(hidden.reshape(-1, hidden.shape[-1]), weight, targets.flatten().long(), rows)


def _require_targets(inputs: Tensor, vocabulary: int, targets: Tensor) -> None:
    """Raise ValueError, in one line, unless there is an id below `vocabulary`, or -100, for each of the inputs."""
    if not inputs.is_floating_point():
        raise ValueError(f"the loss got {inputs.dtype} for {tuple(inputs.shape)} logits or hidden states; "
                         "give floating-point numbers")
    if targets.dtype not in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        raise ValueError(f"targets have dtype {targets.dtype}; give integer ids")
    if targets.shape != inputs.shape[:-1] or targets.device != inputs.device:
        raise ValueError(f"targets have shape {tuple(targets.shape)} and are on {targets.device}; give one id for each "
                         f"of {tuple(inputs.shape[:-1])} positions, on {inputs.device}")
    if targets.device.type == "cpu" and not torch.compiler.is_compiling() and not transformed():
        bad = targets[(targets != -100) & ((targets < 0) | (targets >= vocabulary))]
        if bad.numel():
            raise ValueError(f"targets hold id {bad[0].item()}; accepted: 0 to {vocabulary - 1}, and -100, "
                             "which is left out")


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, rows: int) -> Tensor:
        of_hidden, of_weight = ctx.needs_input_grad[:2]
        wide = torch.promote_types(hidden.dtype, torch.float32)
        if torch.is_autocast_enabled(hidden.device.type):
            hidden_, weight_ = (x.to(torch.get_autocast_dtype(hidden.device.type)) for x in (hidden, weight))
        else:
            hidden_, weight_ = hidden, weight
        counted = targets != -100
        known = (targets >= 0) & (targets < weight.shape[0])
        share = (1 / counted.sum(dtype=wide)).masked_fill((counted & ~known).any(), float("nan"))
        targets = targets.masked_fill(~known, 0)
        slope_share = share.masked_fill(~counted.any(), 0)  # the mean of nothing is NaN, and its slope is zero
        total = torch.zeros((), dtype=wide, device=hidden.device)
        d_hidden = torch.empty_like(hidden) if of_hidden else None
        d_weight = torch.zeros_like(weight, dtype=wide) if of_weight and not len(hidden) else None
        for start in range(0, hidden.shape[0], rows):
            part = slice(start, start + rows)
            losses, slope = _loss_and_slope(F.linear(hidden_[part], weight_), targets[part], wide)
            kept = counted[part, None]
            total = total + losses.masked_fill(~counted[part], 0).sum()
            if of_hidden:
                d_hidden[part] = (slope @ weight_).to(wide).mul_(slope_share).masked_fill_(~kept, 0)
            if of_weight:  # the narrow factor first: it is the one that is copied to be transposed
                added = ((hidden_[part] * kept).t().contiguous() @ slope).t()
                d_weight = added.to(wide).contiguous() if d_weight is None else d_weight.add_(added)
        if d_weight is not None:
            d_weight *= slope_share
        ctx.save_for_backward(d_hidden, d_weight)
        ctx.dtype = weight.dtype
        return total * share

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        d_hidden, d_weight = ctx.saved_tensors
        return (None if d_hidden is None else (d_hidden * d_total).to(d_hidden.dtype),
                None if d_weight is None else (d_weight * d_total).to(ctx.dtype), None, None)


def _loss_and_slope(logits: Tensor, wanted: Tensor, wide: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the losses `[N]`, in nats, of logits `[N, vocabulary]`, and their derivatives by these, in their place.

    Logarithms and sums are taken in the wide type, on a CPU for as many rows at once as its cache holds.
    """
    losses = torch.empty(len(wanted), dtype=wide, device=logits.device)
    in_cache = len(wanted)
    if logits.device.type == "cpu" and not torch.compiler.is_compiling():
        in_cache = max(1, _CACHED // logits.shape[1])
    for start in range(0, len(wanted), in_cache):
        part = slice(start, start + in_cache)
        here = torch.arange(len(wanted[part]), device=logits.device), wanted[part]
        if logits.dtype == torch.bfloat16:  # it has the range of float32, so no probability vanishes
            slope = logits[part].softmax(-1)
            losses[part] = slope[here].to(wide).clamp(min=torch.finfo(torch.bfloat16).tiny).log().neg()
        else:
            slope = logits[part].to(wide).log_softmax(-1)
            losses[part] = slope[here].neg()
            slope.exp_()
        slope[here] -= 1
        logits[part] = slope
    return losses, logits
