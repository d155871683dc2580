"""Checkers for the exercises of chapter 9, teaching it.

Texts and gradients are drawn from fixed seeds; the models are small enough to check in a second.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from caracal_min.config import PRESETS
from caracal_min.model import Caracal

from . import checker, expect_close, expect_equal

__all__ = ["adamw", "silent_parameters", "trigram_model"]


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
    """Check `adamw(w, g, moments, step, rate, decay)`: one step, against PyTorch's optimiser over several steps."""
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
                    raise AssertionError(f"{case}: expected (w, (m, s)), given a {type(result).__name__}") from None
                kept = optimizer.state[weight]
                for what, part, expected in (("w", given, weight.detach()), ("m", mean, kept["exp_avg"]),
                                             ("s", square, kept["exp_avg_sq"])):
                    try:
                        expect_close(f"{case}: {what}", part, expected.clone())
                    except AssertionError as error:
                        hint = (_hint_on_weight(part, before, kept, step, rate, decay) if what == "w"
                                else "the moments are returned uncorrected, and without the decay")
                        raise AssertionError(f"{error}; {hint}") from None
    return f"{2 * len(shapes)} weights, {steps} steps each"


def _hint_on_weight(given: Tensor, before: Tensor, kept: dict[str, Tensor], step: int, rate: float,
                    decay: float) -> str:
    """Return what a wrong new weight suggests: the answers with one usual mistake are compared with it."""
    m, s = kept["exp_avg"], kept["exp_avg_sq"]
    mean, square, shrunk = m / (1 - 0.9**step), s / (1 - 0.95**step), (1 - rate * decay) * before
    mistakes = {
        "the step goes against the gradient: mind its sign": [shrunk + rate * mean / (square.sqrt() + 1e-8),
                                                              before + (before - shrunk)
                                                              + rate * mean / (square.sqrt() + 1e-8)],
        "the 1e-8 is added to the root, outside of it": [shrunk - rate * mean / (square + 1e-8).sqrt(),
                                                         shrunk - rate * mean / square.sqrt()],
        "the step takes the corrected means": [shrunk - rate * m / (s.sqrt() + 1e-8)],
    }
    for hint, answers in mistakes.items():
        if isinstance(given, Tensor) and any(torch.allclose(given, answer, rtol=0, atol=1e-9) for answer in answers
                                             if answer.shape == given.shape and answer.dtype == given.dtype):
            return hint
    return ("decay takes rate * decay * w off, beside the step and not through the moments" if decay
            else "the step is the rate times m / (root of s + 1e-8), both means corrected")


@checker
def trigram_model(answer: Callable[[np.ndarray, int], Callable[[int, int], np.ndarray]]) -> str:
    """Check `trigram_model(train, vocabulary)`, a function from the last two tokens to probabilities.

    The text is drawn from a known second-order source: no model of pairs can predict it, and the loss of the
    source itself bounds what any model can reach.  Some tokens never stand together; after those a model of pairs
    is all there is to lean on.
    """
    vocabulary = 12
    source, train, held_out = _second_order_text(vocabulary)
    predict, triples, expected = answer(train, vocabulary), *_witten_bell(train, vocabulary)
    for a in range(vocabulary):
        for b in range(vocabulary):
            p = np.asarray(predict(a, b), dtype=np.float64)
            case = f"probabilities after tokens {a}, {b}"
            expect_equal(f"{case}: shape", p.shape, (vocabulary,))
            if not (np.isfinite(p).all() and (p > 0).all()):
                raise AssertionError(f"{case}: every token needs a probability above 0, the smallest is {p.min():.3g}")
            if not math.isclose(p.sum(), 1.0, abs_tol=1e-9):
                raise AssertionError(f"{case}: they should sum to 1, given {p.sum():.6g}")
            if not np.allclose(p, expected[a, b], rtol=1e-6):
                c, seen = int(np.abs(p - expected[a, b]).argmax()), triples[a, b]
                often = (f"came {seen.sum()} times, before {np.count_nonzero(seen)} different tokens" if seen.any()
                         else "never stand together in the text")
                raise AssertionError(f"{case}, which {often}: expected {expected[a, b, c]:.4f} for token {c}, given "
                                     f"{p[c]:.4f}; as many tokens as different ones came are added, drawn from the "
                                     "chapter's bigram table")
    history = list(zip(held_out[:-2], held_out[1:-1], held_out[2:], strict=True))
    loss, floor = (-np.mean([math.log(model(a, b)[c]) for a, b, c in history])
                   for model in (predict, lambda a, b: source[a, b]))
    return f"{vocabulary**2} contexts, held-out loss {loss:.3f} nats (the source itself: {floor:.3f})"


def _witten_bell(train: np.ndarray, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each triple came, and p(c | a, b), both `[V, V, V]`."""
    p = (np.bincount(train, minlength=vocabulary) + 0.5) / (len(train) + vocabulary / 2)
    counts = np.zeros(0)
    for tokens in (2, 3):
        counts = np.zeros((vocabulary,) * tokens, dtype=np.int64)
        np.add.at(counts, tuple(train[k:len(train) - tokens + 1 + k] for k in range(tokens)), 1)
        new = np.count_nonzero(counts, axis=-1, keepdims=True).clip(min=1)
        p = (counts + new * p) / (counts.sum(-1, keepdims=True) + new)
    return counts, p


def _second_order_text(vocabulary: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw a source p(c | a, b), and from it 12,000 tokens to train on and 2,000 held out.

    Half of it depends on b alone, and token b never stands behind token b + 5, counted around.
    """
    draw = np.random.default_rng(0)
    source = draw.dirichlet(np.full(vocabulary, 0.3), size=(vocabulary, vocabulary)) + 1e-4
    source += draw.dirichlet(np.full(vocabulary, 0.3), size=vocabulary)
    tokens = np.arange(vocabulary)
    source[:, (tokens + 5) % vocabulary, tokens] = 0
    source /= source.sum(-1, keepdims=True)
    text = [0, 1]
    for _ in range(14_000):
        text.append(int(draw.choice(vocabulary, p=source[text[-2], text[-1]])))
    return source, np.array(text[:12_000], dtype=np.uint16), np.array(text[12_000:], dtype=np.uint16)
