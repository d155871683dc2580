"""Checkers for the exercises of chapter 9, teaching it."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from . import checker, drawer, ensure, expect

__all__ = ["adamw", "silent_parameters", "trigram_model"]


class _Parts(nn.Module):
    """Three parameters of three numbers, each used, unused, frozen, ... in the loss."""

    def __init__(self, how: dict[str, str]):
        super().__init__()
        self.how = dict.fromkeys("abc", "used") | how
        for name, way in self.how.items():
            self.register_parameter(name, nn.Parameter(torch.tensor([0.5, -1.0, 2.0]), requires_grad=way != "frozen"))

    def loss(self) -> Tensor:
        ways = {"used": lambda p: p.square().sum(), "one entry": lambda p: 3 * p[1], "unused": lambda p: 0.0,
                "cut off": lambda p: p.detach().sum(), "times zero": lambda p: 0 * p.sum(),
                "whisper": lambda p: 1e-20 * p.sum(), "frozen": lambda p: p.sum()}
        return sum(ways[way](getattr(self, name)) for name, way in self.how.items())


@checker
def silent_parameters(answer: Callable) -> str:
    """Check `silent_parameters(model, loss_of)`: the names without a gradient; the model stays as it was."""
    # How the parameters are used, which are silent, and the usual wrong answer with what it suggests.
    cases = [({}, [], None, ""), ({"b": "unused"}, ["b"], [], "a gradient of None is silent, too"),
             ({"c": "cut off"}, ["c"], [], "a gradient of None is silent, too"),
             ({"a": "times zero"}, ["a"], [], "exact zeros are silent, too"),
             ({"b": "one entry"}, [], ["b"], "one entry with a gradient is enough"),
             ({"c": "whisper"}, [], ["c"], "a small gradient is none of zeros"),
             ({"a": "frozen", "c": "unused"}, ["c"], ["a", "c"], "a parameter not meant to learn does not count")]
    for how, right, wrong, hint in cases:
        for old in (False, True):
            model = _Parts(how)
            before = {k: p.detach().clone() for k, p in model.named_parameters()}
            for p in model.parameters():  # as after a step
                p.grad = torch.ones_like(p) if old and p.requires_grad else None
            what = ", ".join(f"{name} is {way}" for name, way in how.items()) or "all are used"
            case = f"silent_parameters where {what}{', with old gradients in the model' * old}"
            expect(case, answer(model, lambda m: m.loss()), right, {hint: wrong})
            for k, p in model.named_parameters():
                kept = p.grad is None or old and bool((p.grad == 1).all())
                ensure(torch.equal(p, before[k]) and kept and (p.grad is not None) == (old and p.requires_grad),
                       f"{case}: {k} or its gradient was changed; torch.autograd.grad leaves the model as it is")
    return f"{2 * len(cases)} models"


@checker
def adamw(answer: Callable) -> str:
    """Check `adamw(w, g, moments, step, rate, decay)`: one step, against PyTorch's optimiser over several steps."""
    draw, shapes, scales = drawer(12), ((3,), (4, 5)), (1e-6, 1.0, 1e3, 0.0, 1e-8, 1.0)
    for shape in shapes:
        for decay in (0.0, 0.1):
            weight = nn.Parameter(draw(*shape))
            optimizer = torch.optim.AdamW([weight], betas=(0.9, 0.95), eps=1e-8, weight_decay=decay)
            moments = torch.zeros_like(weight.detach()), torch.zeros_like(weight.detach())
            for step, scale in enumerate(scales, 1):
                before, weight.grad = weight.detach().clone(), scale * draw(*shape)
                optimizer.param_groups[0]["lr"] = rate = 0.01 * step
                case = f"adamw, step {step} of a weight of shape {shape}, gradient of size {scale:g}, decay {decay}"
                given = answer(before.clone(), weight.grad.clone(), moments, step, rate, decay)
                optimizer.step()
                kept = optimizer.state[weight]
                m, s = moments = kept["exp_avg"].clone(), kept["exp_avg_sq"].clone()
                famous = _wrong_steps(before, m, s, step, rate, decay)
                ensure(isinstance(given, tuple | list) and len(given) == 2,
                       f"{case}: expected (w, (m, s)), given a {type(given).__name__}")
                expect(f"{case}: w", given[0], weight.detach(), famous)
                expect(f"{case}: (m, s)", given[1], moments, {
                    "return the moments uncorrected": (m / (1 - 0.9**step), s / (1 - 0.95**step))})
    return f"{2 * len(shapes)} weights, {len(scales)} steps each"


def _wrong_steps(w: Tensor, m: Tensor, s: Tensor, step: int, rate: float, decay: float) -> dict[str, Tensor]:
    """Return new weights by the mistake that makes them; what is none of them has the decay elsewhere."""
    mean, square, shrunk = m / (1 - 0.9**step), s / (1 - 0.95**step), (1 - rate * decay) * w
    wrong = {"the step takes the corrected means": shrunk - rate * m / (s.sqrt() + 1e-8),
             "the 1e-8 is added to the root, outside of it": shrunk - rate * mean / (square + 1e-8).sqrt(),
             "the step goes against the gradient: mind its sign": shrunk + rate * mean / (square.sqrt() + 1e-8)}
    if decay and step == 1:
        wrong["decay takes rate * decay * w off, beside the step and not through the moments"] = (
            w - rate * (m * 10 + decay * w) / ((m * 10 + decay * w).abs() + 1e-8))
    return wrong


@checker
def trigram_model(answer: Callable) -> str:
    """Check `trigram_model(train, vocabulary)`, a function from the last two tokens to probabilities.

    In the text some tokens never stand together; after those a model of pairs is all there is to lean on.
    """
    vocabulary = 12
    draw = np.random.default_rng(0)
    rows = draw.dirichlet(np.full(vocabulary, 0.3), size=(vocabulary, vocabulary)).cumsum(-1)
    text = [0, 1]
    for chance in draw.random(6000):
        text.append(int((rows[text[-2], text[-1]] < chance * rows[text[-2], text[-1], -1]).sum()))
    train = np.array([token for token in text if token < 11], dtype=np.uint16)  # token 11 never comes
    predict, (triples, pairs, right) = answer(train, vocabulary), _witten_bell(train, vocabulary)
    for a in range(vocabulary):
        for b in range(vocabulary):
            p, seen = np.asarray(predict(a, b), dtype=np.float64), triples[a, b]
            case = f"trigram_model, probabilities after tokens {a}, {b}, which came {seen.sum()} times"
            ensure(p.shape == (vocabulary,), f"{case}: expected shape ({vocabulary},), given {p.shape}")
            ensure((p > 0).all(), f"{case}: every token needs a probability above 0, the smallest is {p.min():.3g}; "
                                  "without smoothing a token that never came is held to be impossible")
            expect(f"{case}: their sum", p.sum(), 1.0, {"divide by the tokens that came and those that are added":
                                                        float(p.sum())})
            kinds = np.count_nonzero(seen)
            expect(case, torch.from_numpy(p), torch.from_numpy(right[a, b]), {
                "that adds one of each token; add as many as different ones came, drawn from the bigram table":
                    torch.from_numpy((seen + 1) / (seen.sum() + vocabulary)),
                "the tokens that are added are drawn from the bigram table after b, not evenly":
                    torch.from_numpy((seen + max(1, kinds) / vocabulary) / (seen.sum() + max(1, kinds))),
                "that is the bigram table alone": torch.from_numpy(pairs[b])}, 1e-6)
    return f"{vocabulary**2} contexts"


def _witten_bell(train: np.ndarray, vocabulary: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how often each triple came, p(c | b) and p(c | a, b)."""
    tables = [(np.bincount(train, minlength=vocabulary) + 0.5) / (len(train) + vocabulary / 2)]
    counts = np.zeros(0)
    for tokens in (2, 3):
        counts = np.zeros((vocabulary,) * tokens, dtype=np.int64)
        np.add.at(counts, tuple(train[k:len(train) - tokens + 1 + k] for k in range(tokens)), 1)
        new = np.count_nonzero(counts, axis=-1, keepdims=True).clip(min=1)
        tables.append((counts + new * tables[-1]) / (counts.sum(-1, keepdims=True) + new))
    return counts, tables[1], tables[2]
