"""Checkers for the exercises of chapter 12, Train Tiny on FineWeb."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from caracal_min.config import CaracalConfig
from caracal_min.model import Caracal

from . import checker, ensure, expect

__all__ = ["accumulated_gradients", "bits_per_byte", "mixed", "stop_in_time"]


@checker
def bits_per_byte(answer: Callable) -> str:
    """Check `bits_per_byte(loss, tokens, text_bytes)`: nats per token to bits per byte."""
    cases = [(math.log(2), 100, 100), (5.5, 1000, 4200), (3.2, 7, 31), (0.0, 5, 20)]
    for loss, tokens, text_bytes in cases:
        nats, bits = loss * tokens / text_bytes, loss / math.log(2)
        expect(f"bits_per_byte({loss:.4g}, {tokens}, {text_bytes})", answer(loss, tokens, text_bytes),
               nats / math.log(2), {
            "these are nats per byte: a bit is ln 2 nats, so divide by it": nats,
            "divide by ln 2: a bit is ln 2 nats, so the number of bits is the larger one": nats * math.log(2),
            "the loss is per token, so the whole text costs loss * tokens, and not loss * text_bytes":
                bits * text_bytes / tokens,
            "these are bits per token: the text has tokens of them and text_bytes bytes": bits})
    return f"{len(cases)} cases"


@checker
def accumulated_gradients(answer: Callable) -> str:
    """Check `accumulated_gradients(model, x, y, sizes)`: the whole batch's gradients, from parts of unequal size.

    Each part has its own forward pass and, before the next, its own backward pass.
    """
    torch.manual_seed(0)
    model = Caracal(CaracalConfig(vocab_size=20, d_model=16, n_layers=3, n_heads=2, window_size=4)).double()
    x, y = torch.randint(20, (2, 7, 10))

    def gradients(x: Tensor = x, y: Tensor = y) -> Tensor:
        grads = torch.autograd.grad(model(x, y)[1], list(model.parameters()))
        return torch.cat([grad.flatten() for grad in grads])

    right, splits = gradients(), [[7], [3, 4], [1, 6], [1, 2, 4], [1] * 7]
    for sizes in splits:
        parts = [gradients(*part) for part in zip(x.split(sizes), y.split(sizes), strict=True)]
        model.zero_grad(set_to_none=True)
        passes = _Passes(model)
        answer(model, x, y, sizes)
        passes.end()
        for name, p in model.named_parameters():
            ensure(p.grad is not None, f"accumulated_gradients, parts {sizes}: {name} has no gradient; call backward()")
        case, given = f"accumulated_gradients, parts {sizes}", [p.grad.flatten() for p in model.parameters()]
        expect(case, torch.cat(given), right, {
            "each part counts by its share of the batch, not all alike": sum(parts) / len(sizes),
            "the means of the parts are added up; each counts by its share of the batch": sum(parts),
            "these are of the last part alone: do not zero the gradients between the parts, backward() adds to them":
                parts[-1] * sizes[-1] / len(x)})
        ensure(sorted(passes.sizes) == sorted(sizes), f"{case}: expected a pass over each part, given passes over "
               f"{passes.sizes} sequences; a batch in one pass is what does not fit")
        ensure(passes.waiting == 1, f"{case}: {passes.waiting} parts were in memory at once; the backward pass of each "
               "part comes before the next part")
    return f"{len(splits)} ways to cut a batch of {len(x)}"


class _Passes:
    """Note how many sequences each pass of a model takes, and how many passes wait at once for their gradient."""

    def __init__(self, model: Caracal):
        self.sizes, self.waiting, self._open = [], 0, 0
        self._hooks = [model.register_forward_hook(self._forward, with_kwargs=True),
                       model.embedding.weight.register_hook(self._backward)]

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _forward(self, model: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], result: object) -> None:
        self.sizes.append(len((*args, *kwargs.values())[0]))
        self._open += 1
        self.waiting = max(self.waiting, self._open)

    def _backward(self, gradient: Tensor) -> None:
        self._open = 0


@checker
def stop_in_time(answer: Callable) -> str:
    """Check `stop_in_time(losses, patience)`: the measurement to keep, and the one after which the run stops."""
    cases = [([3.0], 1), ([3.0, 2.5, 2.6, 2.4], 2), ([3.0, 2.5, 2.6, 2.7, 2.4], 2), ([3.0, 2.0, 1.0], 1),
             ([2.0, 2.0, 2.0, 1.0], 2), ([2.0, 2.1, 1.9, 2.2, 2.3, 1.0], 3)]
    for losses, patience in cases:
        right = _stopped(losses, patience)
        expect(f"stop_in_time({losses}, {patience})", answer(list(losses), patience), right, {
            "what would come after the stop is never measured": _stopped(losses, len(losses)),
            "keep the best measurement, which need not be the last": (right[1], right[1]),
            f"it stops after {patience} in a row without a new best": _stopped(losses, 1)})
    return f"{len(cases)} runs"


def _stopped(losses: list[float], patience: int) -> tuple[int, int]:
    best = last = 0
    while last + 1 < len(losses) and last - best < patience:
        last += 1
        best = last if losses[last] < losses[best] else best
    return best, last


@checker
def mixed(answer: Callable) -> str:
    """Check `mixed(new, old, every)`: an old document after each full group of `every` new ones."""
    cases = [("abcdef", "XYZ", 2), ("abcdef", "XY", 1), ("abcde", "XYZ", 2), ("abc", "", 1), ("", "XY", 3),
             ("ab", "XY", 3), ("abcdefgh", "X", 4)]
    for new, old, every in cases:
        groups = [[*new[i:i + every], *old[i // every:i // every + 1]] for i in range(0, len(new), every)]
        all_followed = [document for group in groups for document in group]
        ends_short = len(new) % every and len(old) > len(new) // every
        expect(f"mixed({[*new]}, {[*old]}, {every})", answer([*new], [*old], every),
               all_followed[:-1] if ends_short else all_followed,
               {"nothing old comes after a group that is not full": all_followed})
    return f"{len(cases)} mixtures"
