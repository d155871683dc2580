"""Checkers for the exercises of chapter 8, the whole model."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from caracal_min.config import PRESETS, CaracalConfig
from caracal_min.model import Caracal

from . import checker, drawer, ensure, expect

__all__ = ["count_parameters", "inputs_and_targets", "tied_gradients"]


@checker
def inputs_and_targets(answer: Callable) -> str:
    """Check `inputs_and_targets(ids, padding)`: inputs and targets, moved by one, nothing learnt from padding."""
    cases = [([[5, 6, 7, 8], [1, 2, 3, 4]], 0), ([[5, 6, 7, 8, 9], [1, 2, 0, 0, 0]], 0),
             ([[0, 6, 0, 8], [1, 2, 9, 9]], 9), ([[4, 5]], 0), ([[4, 5, 6], [2, -1, -1]], -1)]
    for rows, padding in cases:
        ids, kept, case = torch.tensor(rows), torch.tensor(rows), f"inputs_and_targets, ids {rows}, padding {padding}"
        inputs, moved = kept[:, :-1], kept[:, 1:]
        given = answer(ids, padding)
        ensure(torch.equal(ids, kept), f"{case}: the answer wrote into ids; a slice is a view, so clone it first")
        expect(case, given, {"inputs": inputs, "targets": moved.masked_fill(moved == padding, -100)}, {
            "padding has no successor to learn: its targets are -100": (inputs, moved),
            "the target is the next token, and here it is the token itself": (
                inputs, inputs.masked_fill(inputs == padding, -100))})
    return f"{len(cases)} batches"


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
            "attention layers have other parameters than Fourier layers": {"fourier_per_attention": None},
            "learned positions count, too": {"positional_encoding": None}}
        wrong = {hint: partial(_parameters, replace(config, **change)) for hint, change in changes.items()}
        right = _parameters(config)
        with _Built() as built:
            given = answer(config)
        ensure(not built.by, f"count_parameters, {name}: a {built.by} was built; count from the configuration alone")
        expect(f"count_parameters, {name}", given, right, wrong | {
            "attention comes after the Fourier layers of its group, so there are n_layers // (k + 1) of it":
                lambda config=config, more=late - attention, right=right: right + more * _of_a_layer(config)})
    return f"{len(cases)} configurations"


def _parameters(config: CaracalConfig) -> int:
    with torch.device("meta"):
        return Caracal(config).num_parameters()


def _of_a_layer(config: CaracalConfig) -> int:
    """Return by how many parameters an attention layer exceeds a Fourier layer."""
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
