"""Exact decoding: read the prompt in one parallel pass, then continue it a token at a time.

The caches of the layers hold what the parallel pass would have seen, so that the logits are the same up to
rounding.  A Fourier layer needs all of v and g for that (2 D numbers a token, as keys and values of full
attention would), and relaxed multiplication makes each new token cost O(log^2 L) per channel on average.
With a gate_length K in the configuration, the last K of v and the first K of g are enough, however long the text:
the "fixed-size rolling buffer" of Caracal, Section 3.3 and Appendix F.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Protocol, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .caches import Cache

__all__ = ["Decoder", "Prompt", "draw", "filter_logits", "generate", "stream"]

Prompt = Tensor | Sequence[Sequence[int] | Tensor]


class Decoder(Protocol):
    """What generation calls of a model; `model.Caracal` has it."""

    embedding: nn.Embedding

    def require_tokens(self, ids: Tensor, name: str) -> None:
        """Raise TypeError or ValueError unless these are ids `[B, L]` of the model, and where it is."""

    def new_caches(self, batch: int, capacity: int, convolution: str) -> list[Cache]:
        """Return empty caches for `batch` sequences of up to `capacity` tokens."""

    def hidden(self, tokens: Tensor, caches: list[Cache], lengths: Sequence[int] | None = None) -> Tensor:
        """Append ids `[B, L]` to the caches and return their hidden states, `[B, L, D]`."""

    def unembed(self, hidden: Tensor) -> Tensor:
        """Return the logits `[..., vocab_size]` of hidden states `[..., D]`."""


@torch.inference_mode()
def stream(
    model: Decoder,
    prompt: Prompt,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop: int | Sequence[int] | None = None,
    convolution: str = "relaxed",
) -> Iterator[Tensor]:
    """Yield the ids `[B]` of each new token as soon as it is drawn.

    Args:
        prompt: ids, `[B, P]`, P >= 1, on the model's device; or B sequences of ids, of any lengths >= 1.
        max_new_tokens: most tokens to draw.
        temperature: logits are divided by it; 0.0 takes the most likely token (greedy).
        top_k: draw among the k most likely tokens only.
        top_p: draw among the fewest tokens whose probabilities sum to at least p (nucleus sampling).
        seed: makes the draws reproducible on one device and version; None continues torch's own generator.
        stop: id or ids that end a sequence.  A sequence that has ended repeats its stop id until all have.
        convolution: "relaxed", or its slow twin "dot_product".

    Memory for prompt and max_new_tokens is taken at the start, 3 D numbers per token and Fourier layer (2 D by
    dot products), of at most gate_length tokens where there is one, and 2 D for each token of the window and
    attention layer.

    Raises:
        ValueError: an option out of range, a prompt that holds other than ids of this model, or logits that are NaN
            or infinite, as those of a model with such weights.
    """
    prompt, lengths = _as_batch(prompt, model.embedding.weight.device)
    model.require_tokens(prompt, "prompt")
    _require_options(max_new_tokens, temperature, top_k, top_p)
    stops = torch.tensor([] if stop is None else [stop] if isinstance(stop, int) else list(stop), device=prompt.device)
    generator = None if seed is None else torch.Generator(prompt.device).manual_seed(seed)

    batch, length = prompt.shape
    caches = model.new_caches(batch, max(1, length + max_new_tokens), convolution)
    ended = torch.zeros(batch, dtype=torch.bool, device=prompt.device)
    last = torch.tensor(lengths, device=prompt.device) - 1
    previous = prompt[torch.arange(batch, device=prompt.device), last]
    for i in range(max_new_tokens):
        if i == 0:
            ragged = lengths if min(lengths) < length else None
            hidden = model.hidden(prompt, caches, ragged)[torch.arange(batch, device=prompt.device), last]
        else:
            hidden = model.hidden(previous[:, None], caches)[:, 0]
        drawn = draw(model.unembed(hidden), temperature, top_k, top_p, generator)
        drawn = torch.where(ended, previous, drawn)
        yield drawn
        ended |= torch.isin(drawn, stops)
        if ended.all():
            return
        previous = drawn


@overload
def generate(model: Decoder, prompt: Tensor, max_new_tokens: int, *, temperature: float = ..., top_k: int | None = ...,
             top_p: float | None = ..., seed: int | None = ..., stop: int | Sequence[int] | None = ...,
             convolution: str = ...) -> Tensor: ...


@overload
def generate(model: Decoder, prompt: Sequence[Sequence[int] | Tensor], max_new_tokens: int, *, temperature: float = ...,
             top_k: int | None = ..., top_p: float | None = ..., seed: int | None = ...,
             stop: int | Sequence[int] | None = ..., convolution: str = ...) -> list[Tensor]: ...


def generate(model: Decoder, prompt: Prompt, max_new_tokens: int, *, temperature: float = 1.0,
             top_k: int | None = None, top_p: float | None = None, seed: int | None = None,
             stop: int | Sequence[int] | None = None, convolution: str = "relaxed") -> Tensor | list[Tensor]:
    """Continue `prompt` `[B, P]` and return `[B, P + new]`, new <= max_new_tokens.

    A prompt of B sequences of ids returns a list of B tensors, `[P_i + new]`.  Options and errors as `stream`.
    """
    drawn = list(stream(model, prompt, max_new_tokens, temperature, top_k, top_p, seed, stop, convolution))
    if isinstance(prompt, Tensor):
        return torch.cat([prompt, *(d[:, None] for d in drawn)], dim=1)
    device = model.embedding.weight.device
    new = torch.stack(drawn, dim=1) if drawn else torch.empty(len(prompt), 0, dtype=torch.int64, device=device)
    return [torch.cat([torch.as_tensor(p, device=device), n]) for p, n in zip(prompt, new, strict=True)]


def draw(logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None,
         generator: torch.Generator | None = None) -> Tensor:
    """Draw one id `[B]` from each row of logits `[B, vocabulary]`.  Options as `stream`.

    Raises:
        ValueError: the largest logit of a row is NaN or infinite; minus infinity elsewhere excludes a token.
    """
    logits = logits.float()
    if temperature != 0.0:
        logits = logits / temperature
    largest, first = logits.max(-1)  # NaN wherever a logit is
    for row, value in enumerate(largest.tolist()):
        if not math.isfinite(value):
            raise ValueError(f"the largest logit of row {row} is {value}, so no token can be chosen; "
                             "the weights hold NaN or infinity, or their numbers overflow: load others")
    if temperature == 0.0:
        return first
    probabilities = filter_logits(logits, top_k, top_p).softmax(-1)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)


def filter_logits(logits: Tensor, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """Set the logits of excluded tokens to minus infinity; `[..., vocabulary]` in and out.

    `top_p` acts on the distribution that `top_k` leaves.  The most likely token always stays.
    """
    if top_k is not None and top_k < logits.shape[-1]:
        kept = logits.topk(top_k, dim=-1)
        logits = torch.full_like(logits, float("-inf")).scatter(-1, kept.indices, kept.values)
    if top_p is not None and top_p < 1.0:
        ordered, order = logits.sort(dim=-1, descending=True)
        probabilities = F.softmax(ordered, dim=-1)
        excluded = probabilities.cumsum(-1) - probabilities >= top_p  # the tokens before it already reach p
        excluded[..., 0] = False  # a p that float32 takes for zero
        ordered = ordered.masked_fill(excluded, float("-inf"))
        logits = torch.full_like(logits, float("-inf")).scatter(-1, order, ordered)
    return logits


def _as_batch(prompt: Prompt, device: torch.device) -> tuple[Tensor, list[int]]:
    """Return the prompts as one tensor, padded on the right with zeros, and their lengths."""
    accepted = "give a tensor [batch, length] of ids, or at least one sequence of at least one id"
    if isinstance(prompt, Tensor):
        if prompt.ndim == 2 and not len(prompt):
            raise ValueError(f"prompt has shape {tuple(prompt.shape)}; {accepted}")
        return prompt, [prompt.shape[-1]] * (prompt.shape[0] if prompt.ndim == 2 else 1)
    try:
        rows = [torch.as_tensor(p, device=device) for p in prompt]
    except (TypeError, ValueError, RuntimeError):  # what torch says of words, nested lists and numbers beyond int64
        raise ValueError(f"prompt holds other than whole numbers; {accepted}") from None
    if not rows or any(r.ndim != 1 or r.numel() == 0 or r.is_floating_point() for r in rows):
        raise ValueError(f"prompt holds sequences of shapes {[tuple(r.shape) for r in rows]}; {accepted}")
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), [r.numel() for r in rows]


def _require_options(max_new_tokens: int, temperature: float, top_k: int | None, top_p: float | None) -> None:
    if not isinstance(max_new_tokens, int) or max_new_tokens < 0:
        raise ValueError(f"max_new_tokens={max_new_tokens}; give a whole number >= 0")
    if temperature != 0.0 and not 1e-30 < temperature < float("inf"):
        raise ValueError(f"temperature={temperature}; give a number > 1e-30, or 0.0 for greedy decoding")
    if top_k is not None and (not isinstance(top_k, int) or top_k < 1):
        raise ValueError(f"top_k={top_k}; give a whole number >= 1, or None for all tokens")
    if top_p is not None and not 0.0 < top_p <= 1.0:
        raise ValueError(f"top_p={top_p}; give a number in (0, 1], or None for all tokens")
