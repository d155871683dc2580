"""The model in one file: the same numbers as `Caracal`, from the same weights, and fit to be copied."""

import ast
import dataclasses
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from caracal_book.rivals import VARIANTS
from caracal_min import Caracal, CaracalConfig, minimal
from caracal_min.config import PRESETS
from caracal_min.minimal import Config, Minimal

FILE = Path(minimal.__file__)
SMALL = CaracalConfig(vocab_size=50, d_model=24, n_layers=7, n_heads=4, window_size=7, max_positions=64)
# The rows of the paper's tables, and what they do not combine.
CONFIGS = {name: replace(SMALL, **changes) for name, changes in VARIANTS.items()} | {
    "one head, a window of one token": replace(SMALL, n_heads=1, window_size=1),
    "no attention, sslp, pe": replace(SMALL, fourier_per_attention=None, gate="single_stage",
                                      positional_encoding="learned"),
    "a gate of one token": replace(SMALL, gate_length=1),
    "a gate of 12 tokens": replace(SMALL, gate_length=12),
}


def twins(config, seed=0):
    """A Caracal in float64 in which no parameter is 0 or 1, and a Minimal with its weights."""
    torch.manual_seed(seed)
    caracal = Caracal(config).double()
    with torch.no_grad():
        for p in caracal.parameters():
            p += 0.2 * torch.randn_like(p)
    copy = Minimal(config).double()
    copy.load_state_dict(caracal.state_dict())
    return caracal, copy


def assert_equal_logits_and_loss(config, length):
    caracal, copy = twins(config)
    tokens, targets = torch.randint(config.vocab_size, (2, 2, length))
    targets[:, 1::5] = -100
    logits, nothing = copy(tokens)
    expected, expected_loss = caracal(tokens, targets)
    assert nothing is None
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-11 * expected.abs().max().item())
    torch.testing.assert_close(copy(tokens, targets)[1], expected_loss, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset(name):
    """Its own layers, heads, pattern and window; a sixteenth of its width."""
    config = replace(PRESETS[name], vocab_size=97, d_model=PRESETS[name].d_model // 16)
    assert_equal_logits_and_loss(config, length=config.window_size + 33)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("length", [1, 31])
def test_every_variant(name, length):
    assert_equal_logits_and_loss(CONFIGS[name], length)


def test_gradients_are_the_same():
    caracal, copy = twins(SMALL)
    tokens, targets = torch.randint(50, (2, 2, 31))
    for model in (caracal, copy):
        model(tokens, targets)[1].backward()
    for (name, a), b in zip(caracal.named_parameters(), copy.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize("name", ["default", "a gate of 12 tokens"])
def test_greedy_generation(name):
    caracal, copy = twins(CONFIGS[name], seed=1)
    prompt = torch.randint(50, (3, 5))
    given = copy.generate(prompt, 25)
    assert torch.equal(given, caracal.generate(prompt, 25, temperature=0.0))
    assert given[:, 5:].unique().numel() > 5  # no token that repeats itself for ever
    assert torch.equal(copy.generate(prompt, 0), prompt)


def test_its_own_configuration_is_that_of_the_package():
    """Same fields, same defaults: what `save_pretrained` wrote makes a `Config`."""
    ours, theirs = ([(f.name, f.default) for f in dataclasses.fields(c)] for c in (Config, CaracalConfig))
    assert ours == theirs


def test_it_is_short_and_narrow():
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 88  # what a page of the book shows without scrolling


def test_it_imports_torch_and_the_standard_library_alone():
    roots = set()
    for node in ast.walk(ast.parse(FILE.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            roots.add(node.module.split(".")[0])
    assert "torch" in roots
    assert roots - {"torch"} <= sys.stdlib_module_names
