"""Exact decoding: read the prompt in one parallel pass, then continue it a token at a time.

The caches of the layers hold what the parallel pass would have seen, so that the logits are the same up to
rounding.  A Fourier layer needs all of v and g for that (2 D numbers a token, as keys and values of full
attention would), and relaxed multiplication makes each new token cost O(log^2 L) per channel on average.
With a gate_length K in the configuration, the last K of v and the first K of g are enough, however long the text:
the "fixed-size rolling buffer" of Caracal, Section 3.3 and Appendix F.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from operator import index
from typing import Any, Protocol, TypedDict, Unpack, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .caches import Cache

__all__ = ["Decoder", "Prompt", "Sampling", "SamplingOptions", "draw", "filter_logits", "generate", "stream"]

Prompt = Tensor | Sequence[Sequence[int] | Tensor]


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: the options of `generate` and `stream`.

    Raises:
        ValueError: an option out of range, in one line.
    """

    temperature: float = 1.0
    """Logits are divided by it; 0.0 takes the most likely token (greedy)."""
    top_k: int | None = None
    """Draw among the k most likely tokens only; None: among all."""
    top_p: float | None = None
    """Draw among the fewest tokens whose probabilities sum to at least p (nucleus sampling); None: among all."""
    seed: int | None = None
    """Makes the draws reproducible on one device and version; None continues torch's own generator."""
    stop: int | Sequence[int] | None = None
    """Id or ids that end a sequence; a sequence that has ended repeats its stop id until all have."""
    convolution: str = "relaxed"
    """Of new caches: "relaxed", O(log^2 L) a token and channel on average, or its slow twin "dot_product", O(L)."""

    def __post_init__(self):
        if self.temperature != 0.0 and not 1e-30 < self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature}; give a number > 1e-30, or 0.0 for greedy decoding")
        if self.top_k is not None:
            _require_whole("top_k", self.top_k, 1, ", or None for all tokens")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p={self.top_p}; give a number in (0, 1], or None for all tokens")
        if self.seed is not None:
            _require_whole("seed", self.seed, 0, ", or None for other draws each time")
        try:
            _ = self.stops
        except TypeError:
            raise ValueError(f"stop={self.stop}; give an id, a sequence of ids, or None") from None

    @property
    def stops(self) -> list[int]:
        """The ids that end a sequence."""
        return [] if self.stop is None else [index(i) for i in ([self.stop] if _is_whole(self.stop) else self.stop)]


class SamplingOptions(TypedDict, total=False):
    """The fields of `Sampling` as keywords, for type checkers."""

    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int | None
    stop: int | Sequence[int] | None
    convolution: str


class Decoder(Protocol):
    """What generation calls of a model; `model.Caracal` has it."""

    @property
    def device(self) -> torch.device:
        """Where ids are read."""

    @property
    def max_tokens(self) -> int | None:
        """Most tokens of a text; None: any number."""

    def require_tokens(self, ids: Tensor, name: str) -> None:
        """Raise TypeError or ValueError unless these are ids `[B, L]` of the model, and where it is."""

    def new_caches(self, batch: int, capacity: int, convolution: str, device: torch.device) -> list[Cache]:
        """Return empty caches for `batch` sequences of up to `capacity` tokens."""

    def __call__(self, tokens: Tensor, *, caches: list[Cache], lengths: list[int] | None, keep: str) -> tuple[Any, Any]:
        """Append ids `[B, L]` to the caches and return logits, those of the last tokens `[B, 1, vocabulary]`."""


def stream(model: Decoder, prompt: Prompt, max_new_tokens: int, *, caches: list[Cache] | None = None,
           **options: Unpack[SamplingOptions]) -> Iterator[Tensor]:
    """Yield the ids `[B]` of each new token as soon as it is drawn.  Arguments and errors as `generate`.

    Example:
        >>> from caracal_min import Caracal
        >>> model = Caracal.from_preset("nano")
        >>> for ids in model.stream(torch.tensor([[72]]), max_new_tokens=2, temperature=0.0):
        ...     print(ids.shape)
        torch.Size([1])
        torch.Size([1])
    """
    return _steps(model, *_as_batch(prompt, model.device), max_new_tokens, caches, "stream", options)


@overload
def generate(model: Decoder, prompt: Tensor, max_new_tokens: int, *, caches: list[Cache] | None = ...,
             **options: Unpack[SamplingOptions]) -> Tensor: ...


@overload
def generate(model: Decoder, prompt: Sequence[Sequence[int] | Tensor], max_new_tokens: int, *,
             caches: list[Cache] | None = ..., **options: Unpack[SamplingOptions]) -> list[Tensor]: ...


def generate(model: Decoder, prompt: Prompt, max_new_tokens: int, *, caches: list[Cache] | None = None,
             **options: Unpack[SamplingOptions]) -> Tensor | list[Tensor]:
    """Continue a prompt by up to `max_new_tokens` tokens.  It is a method of the model, too.

    Args:
        prompt: ids, `[B, P]`, P >= 1, on the model's device; or B sequences of ids, of any lengths >= 1.
        max_new_tokens: most tokens to draw for each row.
        caches: those of an earlier call, or of `new_caches`, to go on from.  The prompt is the whole text so far, of
            which only what they do not hold is read, in each row one token or more.  Afterwards they hold all but the
            last token drawn.
        options: by keyword, the fields of `Sampling`: temperature=1.0 (0.0 takes the most likely token), top_k=None,
            top_p=None, seed=None, stop=None, convolution="relaxed".

    Memory for prompt and max_new_tokens is taken at the start, 3 D numbers per token and Fourier layer (2 D by
    dot products), of at most gate_length tokens where there is one, and 2 D for each token of the window and
    attention layer.

    Returns:
        ids `[B, P + new]`, new <= max_new_tokens; for B sequences a list of B tensors, `[P_i + new]`.

    Raises:
        TypeError: an option that does not exist.
        ValueError: an option out of range, ids that are none of this model, more tokens than it or the caches take
            (before any work), or weights that give no finite logits.

    Example:
        >>> from caracal_min import Caracal
        >>> model = Caracal.from_preset("nano")
        >>> tokens = model.generate(torch.tensor([[72, 101, 108]]), max_new_tokens=5, temperature=0.8, seed=1)
        >>> tokens.shape
        torch.Size([1, 8])
        >>> [len(row) for row in model.generate([[72], [72, 101, 108]], max_new_tokens=2)]
        [3, 5]
    """
    ids, lengths = _as_batch(prompt, model.device)
    drawn = list(_steps(model, ids, lengths, max_new_tokens, caches, "generate", options))
    new = torch.stack(drawn, dim=1) if drawn else ids[:, :0]
    if isinstance(prompt, Tensor):
        return torch.cat([ids, new], dim=1)
    return [torch.cat([row[:n], more]) for row, n, more in zip(ids, lengths, new, strict=True)]


def _steps(model: Decoder, ids: Tensor, lengths: list[int], max_new_tokens: int, caches: list[Cache] | None,
           called: str, options: SamplingOptions) -> Iterator[Tensor]:
    """Check everything, and return an iterator over the steps."""
    known = [f.name for f in fields(Sampling)]
    for unknown in options.keys() - set(known):
        raise TypeError(f"{type(model).__name__}.{called}() got an unexpected keyword argument {unknown!r}; accepted: "
                        f"caches, {', '.join(known)}")
    model.require_tokens(ids, "prompt")
    if (sampling := Sampling(**options)).stops:
        model.require_tokens(torch.tensor([sampling.stops], device=ids.device), "stop")
    _require_whole("max_new_tokens", max_new_tokens, 0)
    end = max(lengths) + max(0, max_new_tokens - 1)  # the last token that is drawn is not read
    if model.max_tokens is not None and end > model.max_tokens:
        raise ValueError(f"a prompt of {max(lengths)} tokens and {max_new_tokens} more need {end} positions, and the "
                         f"learned positional encoding covers {model.max_tokens}; ask for fewer")
    if caches is None:
        # Inference mode takes an eighth less time a token; its tensors, FSDP2's gathered weights too, serve it alone.
        context = torch.no_grad if any(hasattr(w, "full_tensor") for w in model.parameters()) else torch.inference_mode
        caches = model.new_caches(len(ids), end, sampling.convolution, ids.device)
    else:
        ids, lengths, context = *_unread(ids, lengths, caches, end), torch.no_grad
    return _draws(model, ids, lengths, int(max_new_tokens), caches, context, sampling)


def _unread(ids: Tensor, lengths: list[int], caches: list[Cache], end: int) -> tuple[Tensor, list[int]]:
    """Return what caches do not hold of a text, padded on the right, and how many tokens that is in each row."""
    held = caches[0].lengths
    if len(held) != len(ids) or any(n >= total for n, total in zip(held, lengths, strict=True)):
        raise ValueError(f"the caches hold {held} tokens and the prompt has {lengths}; give the whole text, for each "
                         "row at least one token that they do not hold")
    room = min((c.capacity for c in caches if c.capacity is not None), default=end)
    if end > room:
        raise ValueError(f"{end} tokens do not fit caches for {room}; make them with new_caches({len(ids)}, {end})")
    rows = [row[n:total] for row, n, total in zip(ids, held, lengths, strict=True)]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), [len(row) for row in rows]


def _draws(model: Decoder, ids: Tensor, lengths: list[int], max_new_tokens: int, caches: list[Cache],
           context: type, sampling: Sampling) -> Iterator[Tensor]:
    generator = None if sampling.seed is None else torch.Generator(ids.device).manual_seed(int(sampling.seed))
    stops = torch.tensor(sampling.stops, device=ids.device)
    ended = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    ragged, drawn = lengths if min(lengths) < max(lengths) else None, None
    for _ in range(max_new_tokens):
        with context():
            logits, _ = model(ids, caches=caches, lengths=ragged, keep="last")
            new, largest = _choose(logits[:, 0], sampling.temperature, sampling.top_k, sampling.top_p, generator)
            drawn = new if drawn is None or not len(stops) else torch.where(ended, drawn, new)
            if len(stops):
                ended = ended | torch.isin(drawn, stops)
                largest = torch.cat([largest, ended.all().to(largest.dtype)[None]])
            found = largest.tolist()  # the one place that waits for the device
            _require_finite(found[:len(ids)])
            ids, ragged = drawn[:, None], None
        yield drawn.clone()  # outside the context, so that it is an ordinary tensor
        if found[len(ids):] == [1.0]:
            return


def draw(logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None,
         generator: torch.Generator | None = None) -> Tensor:
    """Draw one id `[B]` from each row of logits `[B, vocabulary]`.  Options as `Sampling`.

    Raises:
        ValueError: the largest logit of a row is NaN or infinite; minus infinity elsewhere excludes a token.
    """
    drawn, largest = _choose(logits, temperature, top_k, top_p, generator)
    _require_finite(largest.tolist())
    return drawn


def _choose(logits: Tensor, temperature: float, top_k: int | None, top_p: float | None,
            generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Return ids `[B]`, and the largest logit of each row, without which they mean nothing unless it is finite."""
    logits = logits.float()
    if temperature != 0.0:
        logits = logits / temperature
    largest, first = logits.max(-1)  # NaN wherever a logit is
    if temperature == 0.0:
        return first, largest
    probabilities = filter_logits(logits, top_k, top_p).softmax(-1)
    # As torch.multinomial draws one, which checks more: it ends the process where a GPU meets NaN.
    return (probabilities / torch.empty_like(probabilities).exponential_(generator=generator)).argmax(-1), largest


def _require_finite(largest: list[float]) -> None:
    for row, value in enumerate(largest):
        if not math.isfinite(value):
            raise ValueError(f"the largest logit of row {row} is {value}, so no token can be chosen; "
                             "the weights hold NaN or infinity, or their numbers overflow: load others")


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


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)  # numpy's too


def _require_whole(name: str, value: object, least: int, otherwise: str = "") -> None:
    if not _is_whole(value) or value < least:
        raise ValueError(f"{name}={value}; give a whole number >= {least}{otherwise}")
