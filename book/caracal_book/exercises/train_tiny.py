"""Checkers for the exercises of chapter 12, Train Tiny on FineWeb.

Gradients are drawn from fixed seeds; the models are small enough to check in a second.
"""

import math
import numbers
import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn

from caracal_min.config import CaracalConfig
from caracal_min.model import Caracal

from . import checker, expect_close

__all__ = ["accumulated_gradients", "bits_per_byte", "hours_to_go"]


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
def hours_to_go(answer: Callable[[list[float], int, int], float]) -> str:
    """Check `hours_to_go(seconds, tokens_per_step, tokens)`: hours for a run, from its first steps by their median."""
    cases = [([2.0], 3600, 7_200_000), ([40.0, 0.5, 0.5], 4096, 15_000_000),
             ([9.0, 1.0, 1.5, 1.25, 1.0], 32_768, 10**10), ([1.0, 3.0], 512, 1_000_000),
             ([0.25] * 6, 524_288, 10**10), ([5.0, 1.0, 2.0, 2.0], 1000, 0)]
    for seconds, each, tokens in cases:
        case = f"hours_to_go({seconds}, {each}, {tokens})"
        given = answer(list(seconds), each, tokens)
        if not isinstance(given, numbers.Real):
            raise AssertionError(f"{case}: expected a number, given a {type(given).__name__}")
        hours, mean = (of(seconds) * tokens / each / 3600 for of in (statistics.median, statistics.mean))
        if not math.isclose(given, hours, rel_tol=1e-6, abs_tol=1e-12):
            mistakes = {"these are seconds": 3600 * hours, "these are minutes": 60 * hours,
                        "the first step also prepares; take the median": mean}
            hint = next((f"; {of}" for of, wrong in mistakes.items() if math.isclose(given, wrong, rel_tol=1e-6)), "")
            raise AssertionError(f"{case}: expected {hours:.6g}, given {given:.6g}{hint}")
    return f"{len(cases)} runs"
