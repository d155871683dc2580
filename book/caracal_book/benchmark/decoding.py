"""The cost of one more token at a context: rows `mixer` and `generation`."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from caracal_min import Caracal
from caracal_min.decoding import DotProductConvolution, RelaxedConvolution

from .config import BenchmarkConfig, Row
from .measure import in_turns, mean_time, medians

__all__ = ["generation", "mixer"]

LONG = 16384  # tokens from which on generation has goals


@torch.inference_mode()
def mixer(config: BenchmarkConfig) -> Iterator[Row]:
    """Measure the online convolution, one token at a context.

    Ours is the mean over the second half of a context, so that every size of block counts; the twin costs about the
    same for each of its last tokens.
    """
    for context in config.contexts:
        v, g = torch.randn(2, 1, config.size.d_model, context, device=config.device).unbind()
        sides = partial(_mixing_time, RelaxedConvolution, v, g, context // 2), partial(
            _mixing_time, DotProductConvolution, v, g, min(context // 2, 32))
        times = medians([[side() for side in sides] for _ in range(config.repeats)])
        goal = 15.0 if context >= LONG else None
        yield Row("mixer alone, a token", context, "its dot-product twin", "ms", *times, goal)


@torch.inference_mode()
def generation(config: BenchmarkConfig) -> Iterator[Row]:
    """Measure a whole model, with one text and, on a GPU, with 64 at a time.

    Ours is the mean over the last 1,024 tokens of a context; rarer, larger blocks would add less than 1 %.
    """
    model = Caracal.from_preset(config.preset).to(config.device).eval()
    what, cost = f"{config.preset}, generating a token", {}
    for context in config.contexts:
        tokens = torch.randint(config.size.vocab_size, (1, context), device=config.device)
        cost[context] = _token_time(model, tokens, "relaxed", min(context // 2, 1024))
        twin = _token_time(model, tokens, "dot_product", min(context // 2, 64))
        (whole,) = in_turns([partial(model, tokens)], 3)
        goals = (2.5, 500.0) if context >= LONG else (None, None)
        yield Row(what, context, "dot-product cache", "ms", cost[context], twin, goals[0])
        yield Row(what, context, "the whole forward pass", "ms", cost[context], whole, goals[1])
        if config.device == "cuda" and context < LONG:
            many = _token_time(model, tokens.expand(64, -1), "relaxed", context // 2)
            yield Row(f"{what}, 64 texts", context, "64 times one text", "ms", many, 64 * cost[context])
    shortest, longest = min(cost), max(cost)
    yield Row(what, longest, f"the same at {shortest}", "ms", cost[longest], cost[shortest], 0.5)


def _token_time(model: Caracal, tokens: Tensor, kind: str, steps: int) -> float:
    """Return the mean milliseconds of the last `steps` tokens of a context."""
    caches = model.new_caches(len(tokens), tokens.shape[1], kind)
    model(tokens[:, :-steps - 1], keep="last", caches=caches)
    next_token = partial(model, tokens[:, :1], keep="last", caches=caches)
    next_token()
    return mean_time(next_token, steps)


def _mixing_time(kind: type, v: Tensor, g: Tensor, steps: int) -> float:
    """Return the mean milliseconds of the last `steps` tokens of streams `[1, D, L]`."""
    convolution = kind(1, v.shape[1], v.shape[2], device=v.device)
    convolution.prefill(v[..., :-steps], g[..., :-steps])
    return mean_time(partial(convolution.step, v[..., -1], g[..., -1]), steps)
