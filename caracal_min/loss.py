"""Cross-entropy in nats: from logits, or from hidden states without ever holding all logits.

Logits over GPT-2's vocabulary are the largest tensor of a training step: for 32 sequences of 512
tokens 3.3 GB in float32, and their gradient as much again.  `linear_cross_entropy` works on chunks
of rows and computes both gradients in the forward pass, so nothing of that size is kept.

PyTorch 2.13 has a function of this name, which holds all logits; in chunks it took 7 to 30 times as
long as ours on a CPU, and does not compile.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["linear_cross_entropy", "rows_at_once", "token_loss"]

# Logits held at once: 512 MiB in half precision, 1 GiB in float32.
_CHUNK = 1 << 28
# Tensor cores need rows that start at 16 bytes: the vocabulary is padded to a multiple of this.
_MULTIPLE = 128
# Logits in one step of the softmax on a CPU: what its cache holds.
_CACHED = 1 << 21


def rows_at_once(vocabulary: int, device: torch.device | str = "cpu") -> int:
    """Return how many positions have their logits held at one time, a multiple of 128.

    A GPU with more than 16 GB holds more of them: fewer products, each a larger one.
    """
    device = torch.device(device)
    logits = _CHUNK
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
        logits = max(logits, memory // 64)
    rows = logits // vocabulary
    rows -= rows % _MULTIPLE
    return max(_MULTIPLE, rows)


def token_loss(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy in nats, computed in at least float32.

    Args:
        logits: `[..., vocabulary]`, floating point.
        targets: ids `[...]`, integer; -100 is left out.
        reduction: "mean", or "none" for one loss per target, `[...]`.

    Returns:
        the mean, NaN where no target counts, or the losses.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    rows = logits.flatten(0, -2).to(wide)
    ids = targets.flatten().long()
    loss = F.cross_entropy(rows, ids, reduction=reduction)
    return loss if reduction == "mean" else loss.view(targets.shape)


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, targets: Tensor, rows: int | None = None
) -> Tensor:
    """Mean cross-entropy in nats of the logits `hidden @ weight.T`, held a chunk at a time.

    Equals `token_loss(F.linear(hidden, weight), targets)` up to rounding, under autocast too.
    It can be differentiated once; a second derivative is refused.

    Args:
        hidden: `[..., D]`, floating point.
        weight: `[vocabulary, D]`.
        targets: ids `[...]`, integer; -100 is left out.
        rows: positions whose logits are held at once; None takes `rows_at_once`.

    Returns:
        a scalar in at least float32; no valid targets: loss NaN, gradient 0.

    Raises:
        ValueError: targets of another shape, or an id out of range (checked on a CPU only).

    Example:
        >>> hidden, weight = torch.randn(2, 9, 16), torch.randn(50, 16)
        >>> linear_cross_entropy(hidden, weight, torch.randint(50, (2, 9))).shape
        torch.Size([])

    Source: chunks of the output layer as in Wijmans et al. 2024 (Cut Cross-Entropy) and Hsu et al.
    2024 (Liger).
    """
    _require_targets(targets, hidden, len(weight))
    rows = rows or rows_at_once(len(weight), hidden.device)
    hidden = hidden.reshape(-1, hidden.shape[-1])
    ids = targets.flatten().long()
    return _LinearCrossEntropy.apply(hidden, weight, ids, rows)


def _require_targets(targets, hidden, vocabulary):
    if targets.shape != hidden.shape[:-1]:
        shapes = f"{tuple(targets.shape)}, hidden {tuple(hidden.shape)}"
        raise ValueError(f"targets have shape {shapes}; give one id for each position")
    # On a GPU, a look at the ids would make the host wait for it.
    if targets.device.type == "cpu" and not torch.compiler.is_compiling():
        bad = targets[(targets < 0) & (targets != -100) | (targets >= vocabulary)]
        if bad.numel():
            raise ValueError(f"targets hold id {bad[0]}; accepted: 0 to {vocabulary - 1}, and -100")


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, targets, rows):
        need_hidden, need_weight = ctx.needs_input_grad[:2]
        wide = torch.promote_types(hidden.dtype, torch.float32)
        d_hidden, d_weight = torch.zeros_like(hidden), None

        # Autocast would cast the weight anew in each chunk.
        device = hidden.device.type
        if not hidden.is_meta and torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            hidden = hidden.to(dtype)
            weight = weight.to(dtype)
        vocabulary = len(weight)
        weight = F.pad(weight, (0, 0, 0, -vocabulary % _MULTIPLE))

        # Rows that are left out: hidden 0 adds nothing to the gradient of the weight.
        ignored = targets == -100
        column = ignored[:, None]
        hidden = hidden.masked_fill(column, 0)
        ids = targets.masked_fill(ignored, 0)

        total = torch.zeros((), dtype=wide, device=hidden.device)
        for start in range(0, len(hidden), rows):
            part = slice(start, start + rows)
            logits = F.linear(hidden[part], weight)
            # A padded id has probability 0.
            logits[:, vocabulary:] = -torch.inf
            losses = _losses_(logits, ids[part], wide)
            total += losses.masked_fill(ignored[part], 0).sum()
            # The logits are now their own gradient.
            if need_hidden:
                d_hidden[part] = logits @ weight
            if need_weight:
                product = (logits.t() @ hidden[part])[:vocabulary].to(wide)
                d_weight = product if d_weight is None else d_weight.add_(product)

        d_hidden.masked_fill_(column, 0)
        count = (~ignored).sum()
        ctx.save_for_backward(d_hidden, d_weight, count)
        return total / count

    @staticmethod
    def backward(ctx, d_loss):
        # Only create_graph leaves grad mode on here.  The gradients are constants to autograd, so a
        # second derivative would silently lack its largest part.
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(
                "the fused loss has no second derivative; differentiate model(tokens, targets)[1] "
                "within torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
            )
        d_hidden, d_weight, count = ctx.saved_tensors
        # No valid targets: gradient 0, not NaN.
        scale = d_loss / count.clamp(min=1)
        if d_weight is not None:
            d_weight = d_weight * scale
        return d_hidden * scale, d_weight, None, None


def _losses_(logits, ids, wide):
    """Return losses `[N]` of logits `[N, vocabulary]`, which become their own gradient."""
    compiling = torch.compiler.is_compiling()
    tile = len(logits)
    if logits.device.type == "cpu" and not compiling:
        tile = max(1, _CACHED // logits.shape[1])

    losses = []
    for x, target in zip(logits.split(tile), ids.split(tile), strict=True):
        device = x.device
        peak = x.amax(1).to(wide)
        # Gradient: softmax minus one-hot.  The largest probability is exp(peak - logsumexp).
        if compiling:
            # One expression over all logits becomes one kernel; indices would be another.
            id_ = torch.arange(x.shape[1], device=device)
            one_hot = id_ == target[:, None]
            right = torch.where(one_hot, x, 0).sum(1)
            p = (x.to(wide) - peak[:, None]).exp()
            largest = 1 / p.sum(1)
            x.copy_(p * largest[:, None] - one_hot.to(wide))
        else:
            # The library's softmax makes no wide copy.
            row = torch.arange(len(x), device=device)
            right = x[row, target]
            torch.softmax(x, 1, out=x)
            largest = x.amax(1).to(wide)
            x[row, target] -= 1
        losses.append(peak - right - largest.log())
    return torch.cat(losses)
