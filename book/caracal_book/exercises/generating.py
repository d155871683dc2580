"""Checkers for the exercises of chapter 10, generating.

Expected values come from the schedule itself, run pair by pair, and from the package.
"""

from collections.abc import Callable, Iterator
from numbers import Real

import torch
from torch import Tensor

from caracal_min.config import CaracalConfig

from ..viz.schedule import pairs_by_time
from . import checker, expect_close
from .streams import Stream, numbers_kept

__all__ = ["cache_bytes", "fixed_state", "semi_relaxed", "speculative", "when_counted"]


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
    after = pairs_by_time(72)
    for (j, i), n in sorted(after.items(), key=lambda item: (sum(item[0]), item[0])):
        _expect_number(f"when_counted({j}, {i})", answer(j, i), n)
    _expect_number("when_counted(300000, 5)", answer(300_000, 5), 300_004)
    return f"{len(after) + 1} pairs"


@checker
def speculative(answer: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> str:
    """Check `speculative(p, q)`: the probability of keeping a draft drawn from q, and what is drawn from otherwise.

    Both answers follow from two demands: what is written has the distribution p, and no draft that can be kept is
    refused.
    """
    source = torch.Generator().manual_seed(10)
    cases = []
    for shape in ((4,), (2,), (3, 50), (2, 3, 20)):
        p, q = (2 * torch.randn(2, *shape, dtype=torch.float64, generator=source)).softmax(-1)
        cases.append((f"rows of shape {shape}", p, q))
    p, q = torch.tensor([[0.5, 0.3, 0.2, 0.0], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
    cases += [("0.5, 0.3, 0.2, 0 checking 0.25, 0.25, 0.25, 0.25", p, q), ("p and q the same, so none refused", q, q),
              ("two rows, one with p and q the same", torch.stack([p, q]), torch.stack([q, q]))]
    for what, p, q in cases:
        result = answer(p.clone(), q.clone())
        try:
            kept, other = result
        except (TypeError, ValueError):
            raise AssertionError(f"speculative, {what}: expected two tensors, given a "
                                 f"{type(result).__name__}") from None
        expect_close(f"speculative, {what}: probability of keeping a draft", kept, (p / q).clamp(max=1))
        missing = (p - q).clamp(min=0)
        refused = missing.sum(-1, keepdim=True)
        expect_close(f"speculative, {what}: distribution after a refusal", other,
                     torch.where(refused > 0, missing / refused, p))
    return f"{len(cases)} pairs of models"


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


@checker
def fixed_state(answer: Callable[[Iterator[tuple[Tensor, Tensor]], int], Iterator[Tensor]]) -> str:
    """Check `fixed_state(stream, K)`: a generator of r_t, the sum over k < K of g_k v_{t-k}, from a fixed state.

    stream yields (v_t, g_t), each `(D,)`, float64, and does not say how long it is.  Result t comes before pair t + 1
    is drawn.  Contents older than the last K and gates after the first K may not stay, nor copies of them.
    """
    channels, source = 4, torch.Generator().manual_seed(9)
    sizes = [(K, length) for K in (1, 3, 8) for length in sorted({1, 2, K, K + 1, 150})]
    for K, length in sizes:
        v, g = torch.randn(2, length, channels, dtype=torch.float64, generator=source)
        case = f"fixed_state with K={K}, length {length}"
        stream, ended = Stream(v, g), object()
        results = answer(stream, K)
        if not isinstance(results, Iterator):
            raise AssertionError(f"{case}: expected a generator, given a {type(results).__name__}; is a yield missing?")
        for t in range(length):
            given = next(results, ended)
            if given is ended:
                raise AssertionError(f"{case}: expected {length} results, given {t}")
            if stream.drawn != t + 1:
                raise AssertionError(f"{case}: expected result {t} between the draws of pairs {t} and {t + 1}, "
                                     f"given it with {stream.drawn} drawn")
            lags = range(min(t + 1, K))
            expect_close(f"{case}: r_{t}", given, sum(g[k] * v[t - k] for k in lags))
            del given
            stream.expect_dropped(case, K)
            most, kept = channels * (10 * K + 16), numbers_kept(results)
            if kept > most:
                raise AssertionError(f"{case}: after token {t} expected a state of about {2 * K * channels} numbers, "
                                     f"given {kept}")
        if next(results, ended) is not ended:
            raise AssertionError(f"{case}: expected {length} results, given more")
    return f"{len(sizes)} texts"


def _expect_number(case: str, given: object, expected: int) -> None:
    """Compare whole numbers, whatever holds them."""
    value = given.item() if isinstance(given, Tensor) and given.numel() == 1 else given
    if isinstance(value, bool) or not isinstance(value, Real) or value != expected:
        raise AssertionError(f"{case}: expected {expected}, given {given!r}")

