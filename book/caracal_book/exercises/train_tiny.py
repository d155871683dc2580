"""Checkers for the exercises of chapter 12, training.

Texts and gradients are drawn from fixed seeds; the models are small enough to check in a second.
"""

import math
import numbers
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from caracal_min.config import CaracalConfig
from caracal_min.model import Caracal

from . import checker, expect_close, expect_equal

__all__ = ["accumulated_gradients", "adamw", "bits_per_byte", "trigram_model"]


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
                                     "chapter's model of pairs")
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
