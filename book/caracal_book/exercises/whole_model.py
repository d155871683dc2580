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

__all__ = ["count_parameters", "decided_after", "tied_gradients"]


@checker
def decided_after(answer: Callable[[nn.Module, Tensor], Tensor]) -> str:
    """Check `decided_after(model, ids)`: after how many blocks each likeliest token is the final one and stays so.

    The weights are large and random, so predictions come and go.
    """
    models = {f"{layers} blocks": replace(PRESETS["nano"], vocab_size=7, d_model=32, n_layers=layers, init_std=0.3)
              for layers in (1, 3, 6)}
    returned = 0  # predictions that were final once before, and then another
    for name, config in models.items():
        torch.manual_seed(8)
        model = Caracal(config).double()
        ids = torch.randint(7, (40,))
        with torch.no_grad():
            x, said = model.embedding(ids[None]), []
            for block in (*model.blocks, None):
                said.append((model.norm(x) @ model.embedding.weight.T)[0].argmax(-1).tolist())
                x = x if block is None else block(x)
        columns = list(zip(*said, strict=True))
        decided = [max((i for i, token in enumerate(column, 1) if token != column[-1]), default=0)
                   for column in columns]
        returned += sum(column.index(column[-1]) < at for column, at in zip(columns, decided, strict=True))
        given = answer(model, ids.clone())
        expect_close(f"decided_after, {name}", given.detach() if isinstance(given, Tensor) else given,
                     torch.tensor(decided))
    assert returned > 0
    return f"{len(models)} models, {returned} predictions that came, went and came back"


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
