"""Checkers for the exercises of chapter 8, the whole model."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from caracal_min.config import PRESETS, CaracalConfig
from caracal_min.model import Caracal

from . import checker, drawer, ensure, expect

__all__ = ["count_parameters", "decided_after", "tied_gradients"]


@checker
def decided_after(answer: Callable) -> str:
    """Check `decided_after(model, ids)`: after how many blocks each likeliest token is the final one and stays so.

    The weights are large and random, so predictions come and go.
    """
    sizes, ids = (1, 3, 6), torch.randint(7, (40,), generator=torch.Generator().manual_seed(8))
    for n in sizes:
        torch.manual_seed(8)
        model = Caracal(replace(PRESETS["nano"], vocab_size=7, d_model=32, n_layers=n, init_std=0.3)).double()
        said, plain = _said(model, ids, model.norm), _said(model, ids, lambda x: x)
        final = _stays(said)
        expect(f"decided_after, {n} blocks", answer(model, ids.clone()), final, {
            "a prediction may come and go: look for where it stays": (said == said[-1]).long().argmax(0),
            "0 stands for the embedding, before any block": final + 1,
            "the last norm stands between the stream and the logits": _stays(plain)})
    return f"{len(sizes)} models"


@torch.no_grad()
def _said(model: nn.Module, ids: Tensor, norm: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the likeliest tokens after the embedding and after each block, (blocks + 1, L)."""
    stream = [model.embedding(ids[None])]
    for block in model.blocks:
        stream.append(block(stream[-1]))
    return torch.cat([(norm(x) @ model.embedding.weight.T).argmax(-1) for x in stream])


def _stays(said: Tensor) -> Tensor:
    return len(said) - (said == said[-1]).flip(0).long().cumprod(0).sum(0)


@checker
def count_parameters(answer: Callable) -> str:
    """Check `count_parameters(config)`: the parameters of `Caracal(config)`, from the configuration alone."""
    small = CaracalConfig(vocab_size=300, d_model=96, n_layers=7, n_heads=6)
    pure = replace(small, pre_conv=False, gate="single_stage", fourier_per_attention=None)
    cases = PRESETS | {
        "d_model=96, n_layers=7": small,
        "no attention": replace(small, fourier_per_attention=None),
        "ratio 1:1": replace(small, fourier_per_attention=1),
        "ratio 5:1, 3 layers": replace(small, fourier_per_attention=5, n_layers=3),
        "pre_conv=False": replace(small, pre_conv=False),
        "a single-stage gate": replace(small, gate="single_stage"),
        "one head": replace(small, n_heads=1),
        "learned positions": replace(small, positional_encoding="learned", max_positions=70),
        "pre_conv=False, single stage, no attention": pure,
    }
    for name, config in cases.items():
        attention = len(config.attention_layers)
        late = -(-config.n_layers // (1 + (config.fourier_per_attention or config.n_layers)))
        changes = {
            "the embedding is the output matrix, too: it counts once": {"vocab_size": 2 * config.vocab_size},
            "the short convolution counts, too": {"pre_conv": False},
            "the second stage of the gate counts, too": {"gate": "single_stage"},
            "the second stage has a matrix for each head, not a whole one": {"n_heads": 1},
            "attention layers have other parameters than Fourier modules": {"fourier_per_attention": None},
            "learned positions count, too": {"positional_encoding": None}}
        wrong = {hint: partial(_parameters, replace(config, **change)) for hint, change in changes.items()}
        right = _parameters(config)
        with _Built() as built:
            given = answer(config)
        ensure(not built.by, f"count_parameters, {name}: a {built.by} was built; count from the configuration alone")
        expect(f"count_parameters, {name}", given, right, wrong | {
            "attention comes after the Fourier modules of its group, so there are n_layers // (k + 1) of it":
                lambda config=config, more=late - attention, right=right: right + more * _of_a_layer(config)})
    return f"{len(cases)} configurations"


def _parameters(config: CaracalConfig) -> int:
    with torch.device("meta"):
        return Caracal(config).num_parameters()


def _of_a_layer(config: CaracalConfig) -> int:
    """Return by how many parameters an attention layer exceeds a Fourier module."""
    pure, mixed = (replace(config, fourier_per_attention=k, n_layers=2) for k in (None, 1))
    return _parameters(mixed) - _parameters(pure)


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
def tied_gradients(answer: Callable) -> str:
    """Check `tied_gradients(E, body, tokens, targets)`: the gradient of a tied matrix, by input and by output."""
    draw = drawer(8)
    inner = draw(4, 4)
    bodies = {"no body": lambda x: x, "a causal sum": lambda x: F.layer_norm(x.cumsum(1) @ inner, (4,))}
    for name, body in bodies.items():
        for grad in (False, True):
            E, tokens, targets = draw(7, 4).requires_grad_(grad), *draw(2, 2, 6).abs().mul(2).long().clamp(max=4)
            rows, columns = (E.detach().clone().requires_grad_() for _ in range(2))
            loss = F.cross_entropy((body(rows[tokens]) @ columns.T).flatten(0, 1), targets.flatten())
            by_input, by_output = torch.autograd.grad(loss, (rows, columns))
            both = by_input + by_output
            expect(f"tied_gradients with {name}{', E with requires_grad' * grad}", answer(E, body, tokens, targets),
                   {"by the input": by_input, "by the output": by_output}, {
                "you returned the sum of both parts; use a copy of the matrix for each": (both, both),
                "the two are exchanged: first by the input, then by the output": (by_output, by_input),
                "the loss is the mean over all positions, and not the sum": (12 * by_input, 12 * by_output)})
    return f"{len(bodies)} bodies"
