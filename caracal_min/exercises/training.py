"""Checkers for the exercises of chapter 12, training.

Texts and logits are drawn from fixed seeds; the models are small enough to check in a second.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from ..config import CaracalConfig
from ..generation import filter_logits
from ..model import Caracal
from . import checker, expect_close, expect_equal

__all__ = ["accumulated_gradients", "bits_per_byte", "nucleus", "trigram_model"]


@checker
def bits_per_byte(answer: Callable[[float, int, int], float]) -> str:
    """Check `bits_per_byte(loss, tokens, text_bytes)`: nats per token to bits per byte."""
    cases = [(math.log(2), 100, 100), (5.5, 1000, 4200), (3.2, 7, 31), (0.0, 5, 20)]
    for loss, tokens, text_bytes in cases:
        case = f"bits_per_byte({loss:.4g}, {tokens}, {text_bytes})"
        given = answer(loss, tokens, text_bytes)
        if not isinstance(given, float | int):
            raise AssertionError(f"{case}: expected a number, given a {type(given).__name__}")
        expected = loss * tokens / (math.log(2) * text_bytes)
        if not math.isclose(given, expected, rel_tol=1e-9, abs_tol=1e-12):
            raise AssertionError(f"{case}: expected {expected:.6g}, given {given:.6g}")
    return f"{len(cases)} cases"


@checker
def nucleus(answer: Callable[[Tensor, float], Tensor]) -> str:
    """Check `nucleus(probabilities, p)`: keep the fewest most likely tokens that hold at least p, rescale to sum 1."""
    cases = 0
    for seed in range(6):
        draw = torch.Generator().manual_seed(seed)
        logits = 2 * torch.randn(3 + 5 * seed, generator=draw, dtype=torch.float64)
        for p in (0.05, 0.5, 0.9, 1.0):
            expected = filter_logits(logits, top_p=p).softmax(-1)
            case = f"nucleus of {len(logits)} tokens, seed {seed}, p={p}"
            expect_close(case, answer(logits.softmax(-1), p), expected, tolerance=1e-12)
            cases += 1
    return f"{cases} cases"


@checker
def trigram_model(answer: Callable[[np.ndarray, int], Callable[[int, int], np.ndarray]]) -> str:
    """Check `trigram_model(train, vocabulary)`, a function from the last two tokens to probabilities.

    The text is drawn from a known second-order source: no model of pairs can predict it, and the loss of the
    source itself bounds what any model can reach.
    """
    vocabulary = 12
    source, train, held_out = _second_order_text(vocabulary)
    predict = answer(train, vocabulary)
    for a in range(vocabulary):
        for b in range(vocabulary):
            p = np.asarray(predict(a, b), dtype=np.float64)
            case = f"probabilities after tokens {a}, {b}"
            expect_equal(f"{case}: shape", p.shape, (vocabulary,))
            if not (np.isfinite(p).all() and (p > 0).all()):
                raise AssertionError(f"{case}: every token needs a probability above 0, the smallest is {p.min():.3g}")
            if not math.isclose(p.sum(), 1.0, abs_tol=1e-9):
                raise AssertionError(f"{case}: they should sum to 1, given {p.sum():.6g}")
    history = list(zip(held_out[:-2], held_out[1:-1], held_out[2:], strict=True))
    loss = -np.mean([math.log(predict(a, b)[c]) for a, b, c in history])
    floor = -np.mean([math.log(source[a, b, c]) for a, b, c in history])
    if loss > floor + 0.15:
        raise AssertionError(f"held-out loss {loss:.3f} nats; the source itself has {floor:.3f}, and counting triples "
                             "with a smoothing that fades as counts grow gets within 0.15 of it")
    return f"{vocabulary**2} contexts, held-out loss {loss:.3f} nats (the source itself: {floor:.3f})"


def _second_order_text(vocabulary: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw a source p(c | a, b), and from it 12,000 tokens to train on and 2,000 held out."""
    draw = np.random.default_rng(0)
    source = draw.dirichlet(np.full(vocabulary, 0.3), size=(vocabulary, vocabulary)) + 1e-4
    source /= source.sum(-1, keepdims=True)
    text = [0, 1]
    for _ in range(14_000):
        text.append(int(draw.choice(vocabulary, p=source[text[-2], text[-1]])))
    return source, np.array(text[:12_000], dtype=np.uint16), np.array(text[12_000:], dtype=np.uint16)


@checker
def accumulated_gradients(answer: Callable[[nn.Module, Tensor, Tensor, list[int]], None]) -> str:
    """Check `accumulated_gradients(model, x, y, sizes)`: the whole batch's gradients, from parts of unequal size."""
    torch.manual_seed(0)
    model = Caracal(CaracalConfig(vocab_size=20, d_model=16, n_layers=3, n_heads=2, window_size=4)).double()
    x, y = torch.randint(20, (2, 7, 10))
    model(x, y)[1].backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    splits = [[7], [3, 4], [1, 6], [1, 2, 4], [1] * 7]
    for sizes in splits:
        model.zero_grad(set_to_none=True)
        answer(model, x, y, sizes)
        for name, p in model.named_parameters():
            if p.grad is None:
                raise AssertionError(f"parts {sizes}: {name} has no gradient")
            expect_close(f"parts {sizes}, gradient of {name}", p.grad.flatten(), expected[name].flatten(), 1e-9)
    return f"{len(splits)} ways to cut a batch of {len(x)}"
