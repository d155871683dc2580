"""Checkers for the exercises of chapter 10, generating.

Expected values come from the schedule itself, run pair by pair, and from the package.
"""

from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

from .. import relaxed
from ..config import CaracalConfig
from ..generation import filter_logits
from . import checker, expect_close

__all__ = ["cache_bytes", "nucleus", "semi_relaxed", "when_counted"]


@checker
def cache_bytes(answer: Callable[[CaracalConfig, int, int], int]) -> str:
    """Check `cache_bytes(config, tokens, bytes_each)`: what a model must keep to continue exactly."""
    configs = (CaracalConfig(256, 8, 2, 2, fourier_per_attention=None),
               CaracalConfig(256, 8, 2, 2, fourier_per_attention=None, pre_conv=False),
               CaracalConfig(256, 8, 3, 2, window_size=16),
               CaracalConfig(256, 12, 7, 3, window_size=5, pre_conv=False),
               CaracalConfig(256, 12, 4, 3, window_size=64, fourier_per_attention=1))
    for config in configs:
        attention = len(config.attention_layers)
        fourier = config.n_layers - attention
        for tokens in (1, 2, 16, 100):
            for size in (2, 4):
                tail = 2 * fourier if config.pre_conv else 0
                vectors = 2 * fourier * tokens + tail + 2 * attention * min(tokens, config.window_size)
                case = (f"cache_bytes with {fourier} Fourier and {attention} window layers, "
                        f"d_model={config.d_model}, window_size={config.window_size}, "
                        f"pre_conv={config.pre_conv}, {tokens} tokens of {size} bytes")
                _expect_number(case, answer(config, tokens, size), vectors * config.d_model * size)
    return f"{len(configs)} models"


@checker
def when_counted(answer: Callable[[int, int], int]) -> str:
    """Check `when_counted(j, i)`: the number of tokens after which the schedule adds the pair."""
    after = relaxed.schedule(72)
    for (j, i), n in sorted(after.items(), key=lambda item: (sum(item[0]), item[0])):
        _expect_number(f"when_counted({j}, {i})", answer(j, i), n)
    _expect_number("when_counted(300000, 5)", answer(300_000, 5), 300_004)
    return f"{len(after) + 1} pairs"


@checker
def nucleus(answer: Callable[[Tensor, float], Tensor]) -> str:
    """Check `nucleus(logits, p)`: top-p on logits of any shape."""
    source = torch.Generator().manual_seed(10)
    shapes = ((5,), (1,), (3, 50), (2, 3, 20))
    for shape in shapes:
        logits = 3 * torch.randn(shape, dtype=torch.float64, generator=source)
        for p in (0.01, 0.3, 0.5, 0.9, 0.999):
            case = f"nucleus with logits of shape {shape}, p={p}"
            _same_tokens(case, answer(logits.clone(), p), filter_logits(logits, None, p))
    thirds = torch.tensor([0.1, 0.5, 0.15, 0.25], dtype=torch.float64).log()
    for p, kept in ((0.4, [1]), (0.6, [1, 3]), (0.74, [1, 3]), (0.8, [1, 2, 3]), (0.95, [0, 1, 2, 3])):
        expected = torch.full_like(thirds, -torch.inf)
        expected[kept] = thirds[kept]
        _same_tokens(f"nucleus with probabilities 0.1, 0.5, 0.15, 0.25, p={p}", answer(thirds.clone(), p), expected)
    return f"{len(shapes) + 1} batches"


@checker
def semi_relaxed(answer: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Check `semi_relaxed(v, g)`: the block after len(v) contents, with the whole kernel known."""
    source = torch.Generator().manual_seed(10)
    lengths = (*range(1, 41), 48, 64, 96, 100, 127, 128)
    for n in lengths:
        m = n & -n
        v = torch.randn(n, dtype=torch.float64, generator=source)
        for spare in (0, 7):
            g = torch.randn(2 * m + spare, dtype=torch.float64, generator=source)
            expected = torch.stack([(v[n - m:] * g[t - n + 1:t - n + m + 1].flip(0)).sum() for t in range(n, n + m)])
            case = f"semi_relaxed after n={n} contents (m={m}) with {len(g)} numbers of the kernel"
            expect_close(case, answer(v.clone(), g.clone()), expected)
    return f"{len(lengths)} blocks"


def _expect_number(case: str, given: object, expected: int) -> None:
    """Compare whole numbers, whatever holds them."""
    value = given.item() if isinstance(given, Tensor) and given.numel() == 1 else given
    if isinstance(value, bool) or not isinstance(value, Real) or value != expected:
        raise AssertionError(f"{case}: expected {expected}, given {given!r}")


def _same_tokens(case: str, given: object, expected: Tensor) -> None:
    """Compare logits of which some are minus infinity."""
    if not isinstance(given, Tensor) or given.shape != expected.shape:
        what = f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else f"a {type(given).__name__}"
        raise AssertionError(f"{case}: expected a tensor of shape {tuple(expected.shape)}, given {what}")
    wrong = (given > -torch.inf) != (expected > -torch.inf)
    if wrong.any():
        kept, right = int((given > -torch.inf).sum()), int((expected > -torch.inf).sum())
        index = tuple(wrong.nonzero()[0].tolist())
        verdict = "kept" if expected[index] > -torch.inf else "left out"
        raise AssertionError(f"{case}: token {index} should be {verdict}; expected {right} kept tokens, given {kept}")
    finite = expected > -torch.inf
    expect_close(f"{case}: logits of the kept tokens", given[finite], expected[finite])
