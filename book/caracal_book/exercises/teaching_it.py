"""Checkers for the exercises of chapter 9, teaching it."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from . import checker, drawer, ensure, expect

__all__ = ["adamw", "cost_of_letters", "silent_parameters"]


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
    """Check `adamw(theta, dtheta, moments, step, rate, decay)`: steps against those of PyTorch's optimiser."""
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
                mu, nu = moments = kept["exp_avg"].clone(), kept["exp_avg_sq"].clone()
                famous = _wrong_steps(before, mu, nu, step, rate, decay)
                ensure(isinstance(given, tuple | list) and len(given) == 2,
                       f"{case}: expected (theta, (mu, nu)), given a {type(given).__name__}")
                expect(f"{case}: theta", given[0], weight.detach(), famous)
                expect(f"{case}: (mu, nu)", given[1], moments, {
                    "return the moments uncorrected": (mu / (1 - 0.9**step), nu / (1 - 0.95**step))})
    return f"{2 * len(shapes)} weights, {len(scales)} steps each"


def _wrong_steps(theta: Tensor, mu: Tensor, nu: Tensor, step: int, rate: float, decay: float) -> dict[str, Tensor]:
    """Return new weights by the mistake that makes them; what is none of them has the decay elsewhere."""
    mean, square, shrunk = mu / (1 - 0.9**step), nu / (1 - 0.95**step), (1 - rate * decay) * theta
    wrong = {"the step takes the corrected means": shrunk - rate * mu / (nu.sqrt() + 1e-8),
             "the 1e-8 is added to the root, outside of it": shrunk - rate * mean / (square + 1e-8).sqrt(),
             "the step goes against the gradient: mind its sign": shrunk + rate * mean / (square.sqrt() + 1e-8)}
    if decay and step == 1:
        wrong["decay takes rate * decay * theta off, beside the step and not through the moments"] = (
            theta - rate * (mu * 10 + decay * theta) / ((mu * 10 + decay * theta).abs() + 1e-8))
    return wrong


@checker
def cost_of_letters(answer: Callable) -> str:
    """Check `cost_of_letters(pieces, losses)`: the mean losses of letters after a space, and after a letter."""
    draw = drawer(9)
    texts = ["the cat sat on the mat"], ["The Cat sat", " on the mat"], ["a1b c-d _e `{", "g h\ni jk, lmn"]
    for rows in texts:
        pieces = torch.tensor([list(row.encode()) for row in rows])
        losses = draw(*pieces[:, 1:].shape).abs()
        right = _cost(pieces, losses)
        expect(f"cost_of_letters of {rows}", answer(pieces.clone(), losses.clone()),
               dict(zip(("first", "inner"), right, strict=True)), {
                   "the first letters come first": right[::-1],
                   "capital letters do not count": _cost(pieces, losses, "A"),
                   "column t of the losses belongs to column t + 1 of the pieces": _cost(pieces[:, 1:],
                                                                                         losses[:, :-1])})
    return f"{len(texts)} texts"


def _cost(pieces: Tensor, losses: Tensor, least: str = "a") -> tuple[float, float]:
    letter = (pieces >= ord(least)) & (pieces <= ord("z"))
    return tuple(losses[before[:, :-1] & letter[:, 1:]].mean().item() for before in (pieces == ord(" "), letter))
