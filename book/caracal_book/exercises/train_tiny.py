"""Checkers for the exercises of chapter 12, Train Tiny on FineWeb.

Gradients are drawn from fixed seeds; the models are small enough to check in a second.
"""

import math
import numbers
from collections.abc import Callable

import torch
from torch import Tensor, nn

from caracal_min.config import CaracalConfig
from caracal_min.model import Caracal

from . import checker, expect_close

__all__ = ["accumulated_gradients", "bits_per_byte", "mixed", "stop_in_time"]


@checker
def bits_per_byte(answer: Callable[[float, int, int], float]) -> str:
    """Check `bits_per_byte(loss, tokens, text_bytes)`: nats per token to bits per byte."""
    cases = [(math.log(2), 100, 100), (5.5, 1000, 4200), (3.2, 7, 31), (0.0, 5, 20)]
    for of in cases:
        loss, tokens, text_bytes = of
        case = f"bits_per_byte({loss:.4g}, {tokens}, {text_bytes})"
        given = answer(loss, tokens, text_bytes)
        if not isinstance(given, numbers.Real):  # NumPy's floats of any precision are
            raise AssertionError(f"{case}: expected a number, given a {type(given).__name__}")
        expected = loss * tokens / (math.log(2) * text_bytes)
        if not math.isclose(given, expected, rel_tol=1e-6, abs_tol=1e-12):  # float32 is enough
            raise AssertionError(f"{case}: expected {expected:.6g}, given {given:.6g}{_hint_on_bits(given, *of)}")
    return f"{len(cases)} cases"


def _hint_on_bits(given: float, loss: float, tokens: int, text_bytes: int) -> str:
    """Return what a wrong number of bits suggests, or "" if it has no usual cause."""
    nats, bits = loss * tokens / text_bytes, loss / math.log(2)
    mistakes = {
        "these are nats per byte: a bit is ln 2 nats, so divide by it": nats,
        "divide by ln 2: a bit is ln 2 nats, so the number of bits is the larger one": nats * math.log(2),
        "the loss is per token, so the whole text costs loss * tokens, and not loss * text_bytes": (
            bits * text_bytes / tokens),
        "these are bits per token: the text has tokens of them and text_bytes bytes": bits,
    }
    return next((f"; {hint}" for hint, number in mistakes.items() if math.isclose(given, number, rel_tol=1e-6)), "")


@checker
def accumulated_gradients(answer: Callable[[nn.Module, Tensor, Tensor, list[int]], None]) -> str:
    """Check `accumulated_gradients(model, x, y, sizes)`: the whole batch's gradients, from parts of unequal size.

    Each part has its own forward pass and, before the next, its own backward pass.
    """
    torch.manual_seed(0)
    model = Caracal(CaracalConfig(vocab_size=20, d_model=16, n_layers=3, n_heads=2, window_size=4)).double()
    x, y = torch.randint(20, (2, 7, 10))
    model(x, y)[1].backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    splits = [[7], [3, 4], [1, 6], [1, 2, 4], [1] * 7]
    for sizes in splits:
        model.zero_grad(set_to_none=True)
        with _Passes(model) as passes:
            answer(model, x, y, sizes)
        for name, p in model.named_parameters():
            if p.grad is None:
                raise AssertionError(f"parts {sizes}: {name} has no gradient")
            try:
                expect_close(f"parts {sizes}, gradient of {name}", p.grad.flatten(), expected[name].flatten(), 1e-9)
            except AssertionError as error:
                raise AssertionError(f"{error}; {_hint_on_parts(model, x, y, sizes)}") from None
        if sorted(passes.sizes) != sorted(sizes):
            raise AssertionError(f"parts {sizes}: expected a pass over each part, given passes over {passes.sizes} "
                                 "sequences")
        if passes.waiting > 1:
            raise AssertionError(f"parts {sizes}: expected the backward pass of each part before the next part begins, "
                                 f"given {passes.waiting} parts at once in memory")
    return f"{len(splits)} ways to cut a batch of {len(x)}"


def _hint_on_parts(model: nn.Module, x: Tensor, y: Tensor, sizes: list[int]) -> str:
    """Return what wrong gradients suggest: those of the last part alone, at any weight, were zeroed before it."""
    given = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    _, loss = model(x[-sizes[-1]:], y[-sizes[-1]:])
    last = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    if len(sizes) > 1 and len(given) == len(last) and torch.cosine_similarity(given, last, dim=0) > 1 - 1e-9:
        return "these are of the last part alone: do not zero the gradients between the parts, backward() adds to them"
    return "each part counts by its share of the batch, not all alike"


class _Passes:
    """Note how many sequences each pass of a model takes, and how many passes wait at once for their gradient."""

    def __init__(self, model: Caracal):
        self.model, self.sizes, self.waiting, self._open = model, [], 0, 0

    def __enter__(self):
        self.hooks = [self.model.register_forward_hook(self._forward, with_kwargs=True),
                      self.model.embedding.weight.register_hook(self._backward)]
        return self

    def __exit__(self, *error):
        for hook in self.hooks:
            hook.remove()

    def _forward(self, model: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], result: object) -> None:
        self.sizes.append(len((*args, *kwargs.values())[0]))
        self._open += 1
        self.waiting = max(self.waiting, self._open)

    def _backward(self, gradient: Tensor) -> None:
        self._open = 0


@checker
def stop_in_time(answer: Callable[[list[float], int], tuple[int, int]]) -> str:
    """Check `stop_in_time(losses, patience)`: the measurement to keep, and the one after which the run stops."""
    cases = [([3.0], 1), ([3.0, 2.5, 2.6, 2.4], 2), ([3.0, 2.5, 2.6, 2.7, 2.4], 2), ([3.0, 2.0, 1.0], 1),
             ([2.0, 2.0, 2.0, 1.0], 2), ([2.0, 2.1, 1.9, 2.2, 2.3, 1.0], 3), ([5.0, 4.0, 4.5, 3.9, 4.2, 4.3, 4.4], 3)]
    for losses, patience in cases:
        case = f"stop_in_time({losses}, {patience})"
        given = answer(list(losses), patience)
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise AssertionError(f"{case}: expected two indices, given {given!r}")
        best = last = 0
        while last + 1 < len(losses) and last - best < patience:
            last += 1
            best = last if losses[last] < losses[best] else best
        if tuple(given) != (best, last):
            raise AssertionError(f"{case}: expected {(best, last)}, given {tuple(given)}"
                                 f"{_hint_on_stopping(tuple(given), losses, patience, last)}")
    return f"{len(cases)} runs"


def _hint_on_stopping(given: tuple[int, int], losses: list[float], patience: int, last: int) -> str:
    """Return what wrong indices suggest, or "" if they have no usual cause."""
    if given[1] == len(losses) - 1 > last:
        return "; the run stops before its end, and what would come later is never measured"
    if given == (last, last):
        return "; keep the best measurement, which need not be the last"
    if given[1] < last:
        return f"; it stops after {patience} measurements in a row without a new best, and a loss as low is none"
    return ""


@checker
def mixed(answer: Callable[[list[str], list[str], int], list[str]]) -> str:
    """Check `mixed(new, old, every)`: an old document after each full group of `every` new ones."""
    cases = [("abcdef", "XYZ", 2), ("abcdef", "XY", 1), ("abcde", "XYZ", 2), ("abc", "", 1), ("", "XY", 3),
             ("ab", "XY", 3), ("abcdefgh", "X", 4)]
    for new, old, every in cases:
        case = f"mixed({[*new]}, {[*old]}, {every})"
        given = answer([*new], [*old], every)
        left, expected = [*old], []
        for i in range(0, len(new), every):
            expected += new[i:i + every]
            if i + every <= len(new):
                expected += left[:1]
                left = left[1:]
        if given is None or [*given] != expected:
            ended = given is not None and [*given][:len(expected)] == expected
            hint = "; nothing old comes after a group that is not full" if ended else ""
            raise AssertionError(f"{case}: expected {expected}, given {given}{hint}")
    return f"{len(cases)} mixtures"
