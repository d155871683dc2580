"""Checkers for the exercises of chapter 9, teaching it.

Losses and gradients are drawn from fixed seeds; the models are small enough to check in a second.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from caracal_min.config import PRESETS
from caracal_min.model import Caracal

from . import checker, expect_close, expect_equal, expect_numbers

__all__ = ["adamw", "cost_of_letters", "silent_parameters"]


class _Parts(nn.Module):
    """A small model with parameters that are used, unused, cut off, multiplied by zero (or nearly), or frozen."""

    def __init__(self, **how: str):
        super().__init__()
        self.how = how
        for name in ("a", "b", "c"):
            self.register_parameter(name, nn.Parameter(torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)))
            getattr(self, name).requires_grad_(how.get(name) != "frozen")

    def loss(self) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for name, way in {**dict.fromkeys("abc", "used"), **self.how}.items():
            p = getattr(self, name)
            total = total + {"used": lambda p: p.square().sum(), "one entry": lambda p: 3 * p[1],
                             "cancels": lambda p: p.sum() - p.sum() + (p - p.detach()).square().sum(),
                             "unused": lambda p: 0.0, "cut off": lambda p: p.detach().sum(),
                             "times zero": lambda p: 0 * p.sum(), "whisper": lambda p: 1e-20 * p.sum(),
                             "frozen": lambda p: p.sum()}[way](p)
        return total


@checker
def silent_parameters(answer: Callable[[nn.Module, Callable[[nn.Module], Tensor]], list[str]]) -> str:
    """Check `silent_parameters(model, loss_of)`: the names without a gradient; the model stays as it was."""
    cases = {
        "all used": ({}, []),
        "b is unused": ({"b": "unused"}, ["b"]),
        "c is cut off by detach": ({"c": "cut off"}, ["c"]),
        "a is multiplied by zero": ({"a": "times zero"}, ["a"]),
        "c and a are unused": ({"c": "unused", "a": "unused"}, ["a", "c"]),
        "one entry of b is used": ({"b": "one entry"}, []),
        "the gradient of b cancels": ({"b": "cancels"}, ["b"]),
        "the gradient of c is tiny": ({"c": "whisper"}, []),
        "a is not meant to learn": ({"a": "frozen"}, []),
        "a is not meant to learn, c is unused": ({"a": "frozen", "c": "unused"}, ["c"]),
    }
    for name, (how, expected) in cases.items():
        for old in (False, True):
            model = _Parts(**how)
            before = {k: p.detach().clone() for k, p in model.named_parameters()}
            if old:  # as after a step
                for p in model.parameters():
                    p.grad = torch.ones_like(p) if p.requires_grad else None
            given = answer(model, lambda m: m.loss())
            case = f"silent_parameters where {name}" + (", with old gradients in the model" if old else "")
            expect_equal(case, list(given) if isinstance(given, tuple) else given, expected)
            for k, p in model.named_parameters():
                if not torch.equal(p.detach(), before[k]):
                    raise AssertionError(f"{case}: parameter {k} was changed; expected {before[k].tolist()}")
                kept = (p.grad is not None and bool((p.grad == 1).all())) if old and p.requires_grad else p.grad is None
                if not kept:
                    raise AssertionError(f"{case}: the gradient of {k} was changed; expected it as before the call")
    tiny = Caracal(replace(PRESETS["nano"], d_model=32, n_layers=3))
    tiny.blocks[0].mixer.register_forward_hook(lambda module, x, y: y.detach())
    tokens = torch.randint(0, 256, (1, 12), generator=torch.Generator().manual_seed(8))
    given = answer(tiny, lambda m: m(tokens, tokens.roll(-1, 1))[1])
    mixer = [f"blocks.0.mixer.{k}" for k, _ in tiny.blocks[0].mixer.named_parameters()]
    norm = [f"blocks.0.mixer_norm.{k}" for k in ("weight", "bias")]
    expect_equal("silent_parameters of a Caracal whose first mixer is cut off",
                 list(given) if isinstance(given, tuple) else given, norm + mixer)
    return f"{2 * len(cases) + 1} models"


@checker
def adamw(answer: Callable[..., tuple[Tensor, tuple[Tensor, Tensor]]]) -> str:
    """Check `adamw(theta, dtheta, moments, step, rate, decay)`: steps against those of PyTorch's optimiser."""
    source = torch.Generator().manual_seed(12)
    shapes, steps = ((3,), (1,), (4, 5)), 6
    for shape in shapes:
        for decay in (0.0, 0.1):
            weight = nn.Parameter(torch.randn(shape, dtype=torch.float64, generator=source))
            optimizer = torch.optim.AdamW([weight], betas=(0.9, 0.95), eps=1e-8, weight_decay=decay)
            given = weight.detach().clone()
            moments = torch.zeros_like(given), torch.zeros_like(given)
            for step in range(1, steps + 1):
                scale = (1e-6, 1.0, 1e3, 0.0, 1e-8, 1.0)[step - 1]
                weight.grad = scale * torch.randn(shape, dtype=torch.float64, generator=source)
                optimizer.param_groups[0]["lr"] = rate = 0.01 * step
                case = f"adamw, step {step} of a weight of shape {shape}, gradient of size {scale:g}, decay {decay}"
                before = weight.detach().clone()
                result = answer(given, weight.grad.clone(), moments, step, rate, decay)
                optimizer.step()
                try:
                    given, moments = result
                    mean, square = moments
                except (TypeError, ValueError):
                    raise AssertionError(f"{case}: expected (theta, (mu, nu)), "
                                         f"given a {type(result).__name__}") from None
                kept = optimizer.state[weight]
                for what, part, expected in (("theta", given, weight.detach()), ("mu", mean, kept["exp_avg"]),
                                             ("nu", square, kept["exp_avg_sq"])):
                    try:
                        expect_close(f"{case}: {what}", part, expected.clone())
                    except AssertionError as error:
                        hint = (_hint_on_weight(part, before, kept, step, rate, decay) if what == "theta"
                                else "the moments are returned uncorrected, and without the decay")
                        raise AssertionError(f"{error}; {hint}") from None
    return f"{2 * len(shapes)} weights, {steps} steps each"


def _hint_on_weight(given: Tensor, before: Tensor, kept: dict[str, Tensor], step: int, rate: float,
                    decay: float) -> str:
    """Return what a wrong new weight suggests: the answers with one usual mistake are compared with it."""
    mu, nu = kept["exp_avg"], kept["exp_avg_sq"]
    mean, square, shrunk = mu / (1 - 0.9**step), nu / (1 - 0.95**step), (1 - rate * decay) * before
    mistakes = {
        "the step goes against the gradient: mind its sign": [shrunk + rate * mean / (square.sqrt() + 1e-8),
                                                              before + (before - shrunk)
                                                              + rate * mean / (square.sqrt() + 1e-8)],
        "the 1e-8 is added to the root, outside of it": [shrunk - rate * mean / (square + 1e-8).sqrt(),
                                                         shrunk - rate * mean / square.sqrt()],
        "the step takes the corrected means": [shrunk - rate * mu / (nu.sqrt() + 1e-8)],
    }
    for hint, answers in mistakes.items():
        if isinstance(given, Tensor) and any(torch.allclose(given, answer, rtol=0, atol=1e-9) for answer in answers
                                             if answer.shape == given.shape and answer.dtype == given.dtype):
            return hint
    return ("decay takes rate * decay * theta off, beside the step and not through the moments" if decay
            else "the step is the rate times mu / (root of nu + 1e-8), both means corrected")


@checker
def cost_of_letters(answer: Callable[[Tensor, Tensor], tuple[float, float]]) -> str:
    """Check `cost_of_letters(pieces, losses)`: the mean losses of letters after a space, and after a letter."""
    source = torch.Generator().manual_seed(9)
    texts = {"the cat sat on the mat": ["the cat sat on the mat"], "a capital": ["The Cat sat", " on the mat"],
             "letters of other alphabets": ["na\u00efve  caf\u00e9 `z{"],
             "digits and signs": ["a1b c-d _e (f", "g h\ni jk, lmn"]}
    for name, rows in texts.items():
        data = [row.encode() for row in rows]
        width = min(map(len, data))
        pieces = torch.tensor([list(row[:width]) for row in data])
        losses = torch.rand(len(rows), width - 1, dtype=torch.float64, generator=source)
        small = [[97 <= byte <= 122 for byte in row[:width]] for row in data]
        cost: dict[bool, list[float]] = {True: [], False: []}  # of first letters, and of inner ones
        for row, letters, found in zip(data, small, losses.tolist(), strict=True):
            for t in range(1, width):
                if letters[t] and (row[t - 1] == 32 or letters[t - 1]):
                    cost[row[t - 1] == 32].append(found[t - 1])
        case = f"cost_of_letters of {rows}, {name}"
        given = expect_numbers(case, answer(pieces.clone(), losses.clone()), ("first", "inner"))
        for what, expected in (("first", cost[True]), ("inner", cost[False])):
            mean = math.fsum(expected) / len(expected)
            if not math.isclose(given[what], mean, abs_tol=1e-9):
                other = cost[what == "inner"]
                swapped = math.isclose(given[what], math.fsum(other) / len(other))
                hint = ("; this is the mean of the other kind" if swapped else
                        f"; {len(expected)} letters count, each at the column before its own")
                raise AssertionError(f"{case}: {what} letters should cost {mean:.4f}, given {given[what]:.4f}{hint}")
    return f"{len(texts)} texts"
