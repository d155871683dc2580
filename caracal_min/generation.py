"""Exact decoding: read the prompt in one parallel pass, then continue it a token at a time.

The caches of the layers (`decoding`) hold what the parallel pass would have seen, so the logits are
equal up to rounding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from .config import require_known
from .decoding import Cache
from .tokenizer import Tokenizer

__all__ = ["Prompt", "Sampling", "draw", "filter_logits", "generate", "stream", "stream_text"]

Prompt = Tensor | Sequence[Sequence[int] | Tensor]
_CUT = "\N{REPLACEMENT CHARACTER}"  # decoders give it for bytes that are no whole character


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
    """Draw among the fewest tokens whose probabilities reach p (nucleus sampling); None: all."""
    seed: int | None = None
    """Makes the draws reproducible on one device and version; None: torch's own generator."""
    stop: int | Sequence[int] | None = None
    """Id or ids that end a sequence, which then repeats its stop id until all have ended."""
    convolution: str = "relaxed"
    """Of new caches: "relaxed", O(log^2 L) a token and channel, or "dot_product", O(L)."""

    def __post_init__(self):
        # None filters nothing, as these do.
        top_k = 1 if self.top_k is None else self.top_k
        top_p = 1 if self.top_p is None else self.top_p
        if not (self.temperature >= 0 and top_k >= 1 and 0 < top_p <= 1):
            raise ValueError(f"{self}; give a temperature >= 0, top_k >= 1 and 0 < top_p <= 1")

    @property
    def stops(self) -> Sequence[int]:
        """The ids that end a sequence."""
        if self.stop is None:
            return []
        return self.stop if isinstance(self.stop, Sequence) else [self.stop]


def stream(
        model: Any, prompt: Prompt, max_new_tokens: int, *, caches: list[Cache] | None = None,
        **options: Any
) -> Iterator[Tensor]:
    """Yield the ids `[B]` of each new token as soon as it is drawn; all else as `generate`.

    Example:
        >>> from caracal_min import Caracal
        >>> model = Caracal.from_preset("nano")
        >>> for ids in model.stream(torch.tensor([[72]]), max_new_tokens=2, temperature=0.0):
        ...     print(ids.shape)
        torch.Size([1])
        torch.Size([1])
    """
    accepted = [field.name for field in fields(Sampling)]
    for name in options:
        require_known("option", name, accepted)
    sampling = Sampling(**options)
    ids, lengths = _as_batch(prompt, model.device)
    ids = model.require_tokens(ids, "prompt")
    # Inference mode takes less time a token than no_grad, but a cache written in it cannot be
    # continued outside of it, as a caller may wish who gives one.
    mode = torch.no_grad
    if caches is None:
        mode = torch.inference_mode
        caches = model.new_caches(len(ids), max(lengths) + max_new_tokens, sampling.convolution)
    else:
        ids, lengths = _unread(ids, lengths, caches[0].held)
    return _draws(model, ids, lengths, max_new_tokens, caches, mode, sampling)


def generate(
    model: Any, prompt: Prompt, max_new_tokens: int, **options: Any
) -> Tensor | list[Tensor]:
    """Continue a prompt by up to `max_new_tokens` tokens.  It is a method of the model, too.

    It does not stop at an end of text, unless `stop` is its id; `generate_text` does.

    Args:
        prompt: ids, `[B, P]`, P >= 1, on the model's device; or B sequences of one or more ids.
        max_new_tokens: most tokens to draw for each row.
        options: by keyword, the fields of `Sampling`: temperature=1.0 (0.0 takes the most likely
            token), top_k=None, top_p=None, seed=None, stop=None, convolution="relaxed"; and
            caches=None, or those of an earlier call, or of `new_caches`, to go on from.  The prompt
            is then the whole text so far, of which only what the caches do not hold is read.
            Afterwards they hold all but the last token drawn.

    Memory for prompt and max_new_tokens is taken at the start, 3 D numbers per token and Fourier
    layer (2 D by dot products), of at most gate_length tokens where there is one, and 2 D for each
    token of the window and attention layer.

    Returns:
        ids `[B, P + new]`, new <= max_new_tokens; for B sequences B tensors, `[P_i + new]`.

    Raises:
        ValueError: an unknown option or one out of range, ids that are none of this model, or
            weights that give no finite logits.

    Example:
        >>> from caracal_min import Caracal
        >>> model = Caracal.from_preset("nano")
        >>> prompt = torch.tensor([[72, 101, 108]])
        >>> model.generate(prompt, max_new_tokens=5, temperature=0.8, seed=1).shape
        torch.Size([1, 8])
        >>> [len(row) for row in model.generate([[72], [72, 101, 108]], max_new_tokens=2)]
        [3, 5]
    """
    drawn = list(stream(model, prompt, max_new_tokens, **options))
    ids, lengths = _as_batch(prompt, model.device)
    ids = ids.long()
    new = torch.stack(drawn, dim=1) if drawn else ids[:, :0]
    if isinstance(prompt, Tensor):
        return torch.cat([ids, new], dim=1)
    return [torch.cat([row[:n], more]) for row, n, more in zip(ids, lengths, new, strict=True)]


def stream_text(
        model: Any, tokenizer: Tokenizer, prompt: str, max_new_tokens: int, stop: int |
        Sequence[int] | None = None, **options: Any
) -> Iterator[str]:
    """Yield the text that continues a prompt in pieces, which end with a whole character.

    Args:
        prompt: text to continue, at least one character.
        max_new_tokens: most tokens to draw.
        stop: id or ids that end the text, and are no part of it; None: the tokenizer's end of text.
        options: other options of `generate`.

    Raises:
        ValueError: as `generate`.
    """
    ends = Sampling(stop=tokenizer.end_of_text if stop is None else stop).stops
    ids = tokenizer.encode(prompt)
    # A decoder may drop the space before its first word, so a piece is what its ids add to the text
    # of the piece before.
    before, text_before = ids, tokenizer.decode(ids)
    piece: list[int] = []
    for drawn in stream(model, [ids], max_new_tokens, stop=ends, **options):
        if drawn.item() in ends:
            break
        piece.append(drawn.item())
        text = tokenizer.decode([*before, *piece])
        if not text.endswith(_CUT):
            yield text[len(text_before):]
            before, text_before = piece, tokenizer.decode(piece)
            piece = []
    if piece:  # the text ends in the middle of a character
        text = tokenizer.decode([*before, *piece])
        yield text[len(text_before):].rstrip(_CUT)


def draw(
        logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None =
        None, generator: torch.Generator | None = None
) -> Tensor:
    """Draw one id `[B]` from each row of logits `[B, vocabulary]`.  Options as `Sampling`.

    Raises:
        ValueError: the largest logit of a row is NaN or infinite; minus infinity elsewhere excludes
            a token.
    """
    logits = logits.float()  # in half precision too many tokens would tie
    if temperature:
        logits = logits / temperature
    largest, likeliest = logits.max(-1)  # NaN wherever a logit is
    if not largest.isfinite().all():
        raise ValueError("the largest logit is NaN or infinite, so no token can be chosen: so are "
                         "weights of the model, or their products overflow")
    if temperature == 0:
        return likeliest
    probabilities = filter_logits(logits, top_k, top_p).softmax(-1)
    # torch.multinomial draws one id in this way, after checks that wait for the device.
    noise = torch.empty_like(probabilities).exponential_(generator=generator)
    return (probabilities / noise).argmax(-1)


def filter_logits(
    logits: Tensor, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """Set the logits of excluded tokens to minus infinity; `[..., vocabulary]` in and out.

    `top_p` acts on the distribution that `top_k` leaves.  The most likely token always stays.
    """
    if top_k is not None:
        least = logits.topk(min(top_k, logits.shape[-1])).values[..., -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if top_p is not None and top_p < 1:
        ordered, order = logits.softmax(-1).sort(descending=True)
        excluded = ordered.cumsum(-1) - ordered >= top_p
        excluded[..., 0] = False
        logits = logits.masked_fill(excluded.scatter(-1, order, excluded), -torch.inf)
    return logits


def _draws(
        model: Any, ids: Tensor, lengths: list[int], max_new_tokens: int, caches: list[Cache], mode:
        type, sampling: Sampling
) -> Iterator[Tensor]:
    """Yield the draws: the first call reads the prompt, each later one the token drawn before."""
    how = sampling.temperature, sampling.top_k, sampling.top_p
    generator = None
    if sampling.seed is not None:
        generator = torch.Generator(ids.device).manual_seed(sampling.seed)
    # Prompts of unequal lengths are padded once; from the first draw on all rows grow alike.
    stops = torch.tensor(sampling.stops, device=ids.device)
    ended = torch.zeros_like(ids[:, 0], dtype=torch.bool)
    ragged = None if min(lengths) == max(lengths) else lengths
    for _ in range(max_new_tokens):
        # The mode must not stay on while the consumer of this generator runs: enter it each time.
        with mode():
            logits, _ = model(ids, caches=caches, lengths=ragged, keep="last")
            drawn = draw(logits[:, 0], *how, generator)
            if len(stops):
                # A row that has ended repeats its last id, so that the batch stays a rectangle.
                drawn = torch.where(ended, ids[:, -1], drawn)
                ended = ended | torch.isin(drawn, stops)
            ids, ragged = drawn[:, None], None
        # A clone is an ordinary tensor, which the consumer may give to autograd.
        yield drawn.clone()
        if len(stops) and ended.all():
            return


def _as_batch(prompt: Prompt, device: torch.device) -> tuple[Tensor, list[int]]:
    """Return the prompts as one tensor, padded on the right with zeros, and their lengths."""
    if isinstance(prompt, Tensor):
        return prompt, [prompt.shape[-1]] * len(prompt)
    if isinstance(prompt, str):
        raise ValueError("prompt is text; give ids, or call generate_text")
    rows = [torch.as_tensor(row, device=device) for row in prompt]
    if any(row.ndim != 1 or len(row) == 0 for row in rows):
        raise ValueError("prompt is no batch; give a tensor [batch, length], or sequences of at "
                         "least one id: [[5, 7]]")
    return _padded(rows)


def _unread(ids: Tensor, lengths: list[int], held: list[int]) -> tuple[Tensor, list[int]]:
    """Return the part of each text that caches do not hold, padded on the right, and lengths."""
    rows = [row[n:total] for row, n, total in zip(ids, held, lengths, strict=True)]
    if not all(map(len, rows)):
        raise ValueError(f"the caches hold {held} tokens of the rows; give the whole text, with "
                         "one or more beyond these")
    return _padded(rows)


def _padded(rows: list[Tensor]) -> tuple[Tensor, list[int]]:
    """Return rows as one tensor, padded on the right with zeros, and their lengths."""
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), [len(row) for row in rows]
