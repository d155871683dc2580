# goes when training and commands no longer import it
"""The cost of one more token at a context: rows `mixer` and `generation`."""

import statistics
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from ..model import Caracal
from ..relaxed import DotProductConvolution, RelaxedConvolution
from .config import BenchmarkConfig, Row
from .measure import mean_time, medians

__all__ = ["generation", "mixer"]

LONG = 16384  # tokens from which on generation has targets


@torch.inference_mode()
def mixer(config: BenchmarkConfig) -> Iterator[Row]:
    """Measure the online convolution.

    Ours is the mean over the second half of a context, so that every size of block counts; the others cost the same
    for every token of it.
    """
    width, _ = config.width
    for context in config.contexts:
        v, g = torch.randn(2, 1, width, context + 64, device=config.device)
        times = []
        for _ in range(config.repeats):
            relaxed, twin = (kind(1, width, context + 64, device=config.device)
                             for kind in (RelaxedConvolution, DotProductConvolution))
            relaxed.prefill(v[..., :context // 2 - 1], g[..., :context // 2 - 1])
            twin.prefill(v[..., :context], g[..., :context])
            token, fused = (v[..., 0], g[..., 0]), partial(torch.einsum, "bdt,bdt->bd", v, g)
            times.append([mean_time(partial(relaxed.step, *token), context // 2 + 1),
                          mean_time(partial(twin.step, *token), 32), mean_time(fused, 32)])
        ours, plain, fused = medians(times)
        what = "mixer alone, a token"
        yield Row(what, context, "its dot-product twin", "ms", ours, plain, 15.0 if context >= LONG else None)
        yield Row(what, context, "bare fused dot product", "ms", ours, fused, None)


@torch.inference_mode()
def generation(config: BenchmarkConfig) -> Iterator[Row]:
    """Measure a whole model.

    Ours is the mean over the last 1,024 tokens of a context; rarer, larger blocks would add less than 1 %.
    """
    model = Caracal.from_preset(config.preset).to(config.device).eval()
    what = f"{config.preset}, generating a token"
    cost, rounds, probes = {}, 4, 16
    for context in config.contexts:
        tokens = torch.randint(model.config.vocab_size, (1, context), device=config.device)
        steps = max(1, min(context // 2, 1024) // rounds)
        sides = {"relaxed": steps, "dot_product": min(steps, probes)}
        next_logits, times = {}, []
        for kind, count in sides.items():
            caches = model.new_caches(1, context, kind)
            model.hidden(tokens[:, :max(1, context - rounds * count - 1)], caches)
            next_logits[kind] = partial(_next_logits, model, tokens[:, :1], caches)
            next_logits[kind]()
        for _ in range(rounds):
            times.append([mean_time(next_logits[kind], count) for kind, count in sides.items()])
        cost[context], twin = (statistics.mean(column) for column in zip(*times, strict=True))
        whole = medians([[mean_time(partial(model, tokens), 1)] for _ in range(min(3, config.repeats))])[0]
        targets = (2.5, 500.0) if context >= LONG else (None, None)
        yield Row(what, context, "dot-product cache", "ms", cost[context], twin, targets[0])
        yield Row(what, context, "the whole forward pass", "ms", cost[context], whole, targets[1])
    shortest, longest = min(cost), max(cost)
    yield Row(what, longest, f"the same at {shortest}", "ms", cost[longest], cost[shortest], 0.5)


def _next_logits(model: Caracal, token: Tensor, caches: list) -> Tensor:
    return model.unembed(model.hidden(token, caches))
