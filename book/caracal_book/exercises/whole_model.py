"""Checkers for the exercises of chapter 8, the whole model."""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from caracal_min.config import PRESETS, CaracalConfig
from caracal_min.model import Caracal

from . import checker, expect_close, expect_equal

__all__ = ["count_parameters", "inputs_and_targets", "silent_parameters", "tied_gradients"]


@checker
def inputs_and_targets(answer: Callable[[Tensor, int], tuple[Tensor, Tensor]]) -> str:
    """Check `inputs_and_targets(ids, padding)`: inputs and targets, moved by one, nothing learnt from padding."""
    cases = {
        "two documents of one length": ([[5, 6, 7, 8], [1, 2, 3, 4]], 0),
        "a shorter document": ([[5, 6, 7, 8, 9], [1, 2, 0, 0, 0]], 0),
        "padding that is not 0": ([[0, 6, 0, 8], [1, 2, 9, 9]], 9),
        "a document of one token": ([[3, 7, 7], [1, 2, 3]], 7),
        "two tokens": ([[4, 5]], 0),
        "negative padding": ([[4, 5, 6], [2, -1, -1]], -1),
        "all documents shorter": ([[4, 5, 0, 0], [2, 0, 0, 0]], 0),
    }
    for name, (rows, padding) in cases.items():
        ids = torch.tensor(rows)
        case = f"inputs_and_targets, {name}, ids {rows}, padding {padding}"
        given_ids = ids.clone()
        given = _pair(case, answer(given_ids, padding))
        if not torch.equal(given_ids, ids):
            raise AssertionError(f"{case}: expected ids to stay as they were; the answer wrote into them")
        expect_close(f"{case}: inputs", given[0], ids[:, :-1])
        targets = ids[:, 1:].masked_fill((ids[:, 1:] == padding) | (ids[:, :-1] == padding), -100)
        expect_close(f"{case}: targets", given[1], targets)
    return f"{len(cases)} batches"


def _pair(case: str, given: object) -> tuple[Tensor, Tensor]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise AssertionError(f"{case}: expected two tensors, given {type(given).__name__}")
    return given[0], given[1]


@checker
def count_parameters(answer: Callable[[CaracalConfig], int]) -> str:
    """Check `count_parameters(config)`: the parameters of `Caracal(config)`, from the configuration alone."""
    small = CaracalConfig(vocab_size=300, d_model=96, n_layers=7, n_heads=6)
    cases = {name: config for name, config in PRESETS.items()}
    cases |= {
        "d_model=96, n_layers=7": small,
        "no attention": replace(small, fourier_per_attention=None),
        "ratio 1:1": replace(small, fourier_per_attention=1),
        "ratio 5:1": replace(small, fourier_per_attention=5),
        "ratio 5:1, 3 layers": replace(small, fourier_per_attention=5, n_layers=3),
        "pre_conv=False": replace(small, pre_conv=False),
        "a single-stage gate": replace(small, gate="single_stage"),
        "one head": replace(small, n_heads=1),
        "learned positions": replace(small, positional_encoding="learned", max_positions=70),
        "pre_conv=False, single stage, learned positions, no attention": replace(
            small, pre_conv=False, gate="single_stage", positional_encoding="learned", fourier_per_attention=None),
        "another window": replace(small, window_size=31),
    }
    for name, config in cases.items():
        with torch.device("meta"):
            expected = sum(p.numel() for p in Caracal(config).parameters())
        with _Built() as built:
            given = answer(config)
        if built.by:
            raise AssertionError(f"count_parameters, {name}: expected a count from the configuration alone, "
                                 f"given one that builds {built.by}")
        if isinstance(given, Tensor) and given.numel() == 1:
            given = given.item()
        if isinstance(given, float) and given.is_integer():
            given = int(given)
        expect_equal(f"count_parameters, {name}", given, expected)
    return f"{len(cases)} configurations"


class _Built:
    """Note a module of PyTorch that gets parameters inside the `with` block."""

    by = ""

    def __enter__(self):
        self.hook = register_module_parameter_registration_hook(self._note)
        return self

    def __exit__(self, *error):
        self.hook.remove()

    def _note(self, module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        self.by = self.by or type(module).__name__


@checker
def tied_gradients(answer: Callable[..., tuple[Tensor, Tensor]]) -> str:
    """Check `tied_gradients(E, body, tokens, targets)`: the gradient of a tied matrix, by input and by output.

    The bodies are causal sums, a map of each vector, and none at all; E is float64.
    """
    source = torch.Generator().manual_seed(8)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=source)

    inner = draw(4, 4)
    bodies = {"no body": lambda x: x, "a map of each vector": lambda x: torch.tanh(x @ inner),
              "a causal sum": lambda x: F.layer_norm(x.cumsum(1) @ inner, (4,))}
    for name, body in bodies.items():
        for grad in (False, True):
            E = draw(7, 4).requires_grad_(grad)
            tokens, targets = (torch.randint(0, 5, (2, 6), generator=source) for _ in range(2))
            expected = _two_gradients(E.detach(), body, tokens, targets)
            wanted = ", E with requires_grad" if grad else ""
            case = f"tied_gradients with {name}{wanted}"
            given = _pair(case, answer(E, body, tokens, targets))
            for part, a, b in zip(("by the input", "by the output"), given, expected, strict=True):
                expect_close(f"{case}: {part}", a.detach() if isinstance(a, Tensor) else a, b)
    return f"{len(bodies)} bodies"


def _two_gradients(E: Tensor, body: Callable[[Tensor], Tensor], tokens: Tensor, targets: Tensor) -> list[Tensor]:
    rows, columns = (E.clone().requires_grad_() for _ in range(2))
    logits = body(rows[tokens]) @ columns.T
    return list(torch.autograd.grad(F.cross_entropy(logits.flatten(0, 1), targets.flatten()), (rows, columns)))


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
