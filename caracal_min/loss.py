"""Cross-entropy in nats: from logits, or from hidden states without ever holding all logits.

Logits over GPT-2's vocabulary are the largest thing in a training step: 32 sequences of 512 tokens are 3.3 GB of
them in float32, and their gradient as much again.  `linear_cross_entropy` works on some rows at a time and computes
the gradient of the hidden states and of the output matrix in the forward pass, so nothing of that size is kept.

PyTorch 2.13 has a function of this name, which holds all logits; in chunks it took 7 to 30 times as long as ours on a
CPU and does not compile.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .spectral import transformed

__all__ = ["linear_cross_entropy", "rows_at_once", "token_loss"]

_CHUNK = 1 << 28  # logits held at once: 512 MiB in half precision, 1 GiB in float32
_TILE = 128  # rows and columns of logits come in multiples of this; tensor cores need rows that start at 16 bytes
_CACHED = 1 << 21  # numbers that a CPU's cache holds in float32


def rows_at_once(vocabulary: int) -> int:
    """Return for how many positions logits over a vocabulary are held at one time, a multiple of 128."""
    return max(_TILE, _CHUNK // _padded(vocabulary) // _TILE * _TILE)


def _padded(vocabulary: int) -> int:
    return -(-vocabulary // _TILE) * _TILE


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
    differentiated once, and a second derivative is refused.  Under a transform of `torch.func` it is that, and holds
    all logits.

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
    rows = rows_at_once(weight.shape[0]) if rows is None else rows
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
        wide, vocabulary = torch.promote_types(hidden.dtype, torch.float32), weight.shape[0]
        if not hidden.is_meta and torch.is_autocast_enabled(hidden.device.type):
            hidden_, weight_ = (x.to(torch.get_autocast_dtype(hidden.device.type)) for x in (hidden, weight))
        else:
            hidden_, weight_ = hidden, weight
        if _padded(vocabulary) > vocabulary:
            weight_ = F.pad(weight_, (0, 0, 0, _padded(vocabulary) - vocabulary))
        counted = targets != -100
        known = (targets >= 0) & (targets < vocabulary)
        share = (1 / counted.sum(dtype=wide)).masked_fill((counted & ~known).any(), float("nan"))
        targets = targets.masked_fill(~known, 0)
        slope_share = share.masked_fill(~counted.any(), 0)  # the mean of nothing is NaN, and its slope is zero
        total = torch.zeros((), dtype=wide, device=hidden.device)
        d_hidden = torch.empty_like(hidden) if of_hidden else None
        d_weight = torch.zeros_like(weight, dtype=wide) if of_weight and not len(hidden) else None
        for start in range(0, hidden.shape[0], rows):
            part = slice(start, start + rows)
            logits = F.linear(hidden_[part], weight_)
            logits[:, vocabulary:] = -torch.inf  # of the rows that were added: probability zero
            losses = _losses_into_slopes(logits, targets[part], wide)
            kept = counted[part, None]
            total = total + losses.masked_fill(~counted[part], 0).sum()
            if of_hidden:
                d_hidden[part] = (logits @ weight_).masked_fill_(~kept, 0)
            if of_weight:
                added = (logits.t() @ (hidden_[part] * kept))[:vocabulary]
                d_weight = added.to(wide) if d_weight is None else d_weight.add_(added)
        ctx.save_for_backward(d_hidden, d_weight, slope_share)
        ctx.dtype = weight.dtype
        return total * share

    @staticmethod
    def backward(ctx: Any, d_total: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # asked for by create_graph
            raise RuntimeError("the gradient of a loss that never holds all logits has no gradient of its own; for "
                               "second derivatives take token_loss of logits, or model(tokens, targets)[1] within "
                               "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)")
        d_hidden, d_weight, share = ctx.saved_tensors
        share = share * d_total
        return (None if d_hidden is None else (d_hidden * share).to(d_hidden.dtype),
                None if d_weight is None else (d_weight * share).to(ctx.dtype), None, None)


def _losses_into_slopes(logits: Tensor, wanted: Tensor, wide: torch.dtype) -> Tensor:
    """Return the losses `[N]`, in nats, of logits `[N, vocabulary]`, which become their derivatives by these.

    Logarithms are taken in the wide type, on a CPU for as many rows at once as its cache holds.
    """
    losses = torch.empty(len(wanted), dtype=wide, device=logits.device)
    in_cache = len(wanted)
    if logits.device.type == "cpu" and not torch.compiler.is_compiling():
        in_cache = max(1, _CACHED // logits.shape[1])
    for start in range(0, len(wanted), in_cache):
        part = slice(start, start + in_cache)
        x, here = logits[part], (torch.arange(len(wanted[part]), device=logits.device), wanted[part])
        if x.dtype == torch.bfloat16:  # it has the range of float32, so no probability vanishes
            torch.softmax(x, -1, out=x)
            losses[part] = x[here].to(wide).clamp(min=torch.finfo(torch.bfloat16).tiny).log().neg()
        else:  # the largest logit minus the logarithm of its probability is the logarithm of the sum of exponentials
            losses[part] = x.amax(1).to(wide) - x[here]
            torch.softmax(x, -1, out=x)
            losses[part] -= x.amax(1).to(wide).log()
        x[here] -= 1
    return losses
