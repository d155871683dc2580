"""Checkers for the exercises of chapter 10, generating."""

import inspect
from collections.abc import Callable, Generator

import torch

from caracal_min.config import CaracalConfig

from ..viz.schedule import pairs_by_time
from . import checker, drawer, ensure, expect
from .counting import numbers_kept

__all__ = ["cache_bytes", "fixed_state", "speculative", "when_counted"]


@checker
def cache_bytes(answer: Callable) -> str:
    """Check `cache_bytes(config, tokens, bytes_each)`: what a model must keep to continue exactly."""
    configs = (CaracalConfig(256, 8, 2, 2, fourier_per_attention=None),
               CaracalConfig(256, 8, 2, 2, fourier_per_attention=None, pre_conv=False),
               CaracalConfig(256, 8, 3, 2, window_size=16), CaracalConfig(256, 12, 7, 3, window_size=5, pre_conv=False))
    for config in configs:
        attention = len(config.attention_layers)
        fourier = config.n_layers - attention
        for tokens, size in ((1, 2), (100, 2), (16, 4), (100, 4)):
            def kept(sums: int, keys: int, inputs: int, size=size, fourier=fourier, attention=attention,
                     width=config.d_model) -> int:
                return 2 * width * size * (fourier * (sums + inputs) + attention * keys)

            inputs, keys = int(config.pre_conv), min(tokens, config.window_size)
            case = (f"cache_bytes with {fourier} Fourier and {attention} window layers, d_model={config.d_model}, "
                    f"window_size={config.window_size}, pre_conv={config.pre_conv}, {tokens} tokens of {size} bytes")
            expect(case, answer(config, tokens, size), kept(tokens, keys, inputs), {
                "a Fourier module keeps the contents and gates of all tokens, and not of a fixed number":
                    kept(min(tokens, 16), keys, inputs),
                "a window keeps at most window_size keys and values": kept(tokens, tokens, inputs),
                "the short convolution keeps its last two inputs, zeros before the text": kept(tokens, keys, 0),
                "that is how many numbers: each has bytes_each bytes": kept(tokens, keys, inputs) // size})
    return f"{len(configs)} models"


@checker
def when_counted(answer: Callable) -> str:
    """Check `when_counted(j, k)`: the number of tokens after which the schedule adds the pair."""
    after = pairs_by_time(72) | {(300_000, 5): 300_004}
    for (j, k), t in sorted(after.items(), key=lambda item: (sum(item[0]), item[0])):
        expect(f"when_counted({j}, {k})", answer(j, k), t, {
            "a block is added as a whole: when its pairs are known, and before the first of them is due": max(j, k) + 1,
            "when it is due is the latest time: its block is added earlier": j + k})
    return f"{len(after)} pairs"


@checker
def speculative(answer: Callable) -> str:
    """Check `speculative(p, q)`: the probability of keeping a draft drawn from q, and what is drawn from otherwise."""
    draw, cases = drawer(10), []
    for shape in ((4,), (2,), (3, 50)):
        cases.append((f"rows of shape {shape}", *(2 * draw(2, *shape)).softmax(-1)))
    p, q = torch.tensor([[0.5, 0.3, 0.2, 0.0], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
    cases += [("p and q the same, so none refused", q, q),
              ("two rows, one with p and q the same", torch.stack([p, q]), torch.stack([q, q]))]
    for what, p, q in cases:
        kept, missing = (p / q).clamp(max=1), (p - q).clamp(min=0)
        rest = missing / missing.sum(-1, keepdim=True)
        right = torch.where(rest.isnan(), p, rest)
        expect(f"speculative, {what}", answer(p.clone(), q.clone()),
               {"probability of keeping a draft": kept, "distribution after a refusal": right}, {
            "a refusal draws what drafts leave missing of p, and not from p itself": (kept, p),
            "where none is refused, what is missing is 0: no division": (kept, rest),
            "divide what is missing by its sum": (kept, missing),
            "p and q both count: a draft is kept with probability p / q": (p, right)})
    return f"{len(cases)} pairs of models"


@checker
def fixed_state(answer: Callable) -> str:
    """Check `fixed_state(stream, K)`: a generator of r_t, the sum over k < K of g_k v_{t-k}, from a fixed state.

    stream yields (v_t, g_t), each `(D,)`, float64.  Result t comes before pair t + 1 is drawn.
    """
    channels, draw = 4, drawer(9)
    sizes = [(K, length) for K in (1, 3, 8) for length in sorted({1, 2, K, K + 1, 150})]
    for K, length in sizes:
        v, g = draw(2, length, channels)
        case, drawn, ended = f"fixed_state with K={K}, length {length}", [], object()
        stream = (drawn.append(t) or (v[t].clone(), g[t].clone()) for t in range(length))
        results = answer(stream, K)
        ensure(isinstance(results, Generator),
               f"{case}: expected a generator, given a {type(results).__name__}; is a yield missing?")
        for t in range(length):
            given = next(results, ended)
            ensure(given is not ended, f"{case}: expected {length} results, given {t}")
            ensure(len(drawn) == t + 1, f"{case}: result {t} should come before pair {t + 1} is drawn, and "
                                        f"{len(drawn)} pairs were; the text may go on for ever")
            most = range(min(t + 1, K))
            expect(f"{case}: r_{t}", given, sum(g[k] * v[t - k] for k in most), {
                "the gates that stay are the first K, since g_k weighs what is k back; of contents the last K stay":
                    sum(g[max(0, t - K + 1) + k] * v[t - k] for k in most)})
            kept = numbers_kept([x for x in inspect.getgeneratorlocals(results).values() if x is not stream])
            ensure(kept <= channels * (10 * K + 16), f"{case}: after token {t} expected a state of about "
                   f"{2 * K * channels} numbers, given {kept}; keep the first K gates and the last K contents")
        ensure(next(results, ended) is ended, f"{case}: expected {length} results, given more")
    return f"{len(sizes)} texts"
