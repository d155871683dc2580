"""Text in, text out: a model with its tokenizer continues a prompt."""

from collections.abc import Iterator, Sequence
from typing import Any

from .data.tokenizers import Tokenizer
from .generation import Decoder, Sampling, stream

__all__ = ["stream_text"]

_CUT = "\N{REPLACEMENT CHARACTER}"  # what decoders give for bytes that are no whole character


def stream_text(model: Decoder, tokenizer: Tokenizer, prompt: str, max_new_tokens: int,
                stop: int | Sequence[int] | None = None, **sampling: Any) -> Iterator[str]:
    """Yield the text that continues a prompt in pieces, as it is drawn; a piece ends with a whole character.

    Args:
        prompt: text to continue, at least one character.
        max_new_tokens: most tokens to draw.
        stop: id or ids that end the text, and are no part of it; None: the end of text of the tokenizer.
        sampling: other options of `generation.Sampling`.

    Raises:
        ValueError: an empty prompt, one that is not Unicode, an id drawn that the tokenizer does not know, or what
            `generation.stream` refuses.
    """
    if not isinstance(prompt, str) or not prompt:
        raise ValueError(f"prompt={prompt!r}; give a text of at least one character")
    ends = Sampling(stop=tokenizer.end_of_text if stop is None else stop).stops
    try:
        ids = tokenizer.encode(prompt)
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start + 1} of the prompt is half of a surrogate pair, from bytes that are "
                         "not UTF-8; give text") from None
    # A decoder may drop the space before the first word, so a piece is what decoding the last pieces again adds.
    context, decoded = ids, tokenizer.decode(ids)
    pending: list[int] = []
    for drawn in stream(model, [ids], max_new_tokens, stop=ends, **sampling):
        if (token := drawn.item()) in ends:
            break
        if token >= tokenizer.vocab_size:
            raise ValueError(f"the model draws id {token}, and the tokenizer {tokenizer.name} has "
                             f"{tokenizer.vocab_size} ids; give the tokenizer that it was trained with")
        pending.append(token)
        text = tokenizer.decode([*context, *pending])
        if not text.endswith(_CUT):
            yield text[len(decoded):]
            context, pending, decoded = pending, [], tokenizer.decode(pending)
    if pending:
        yield tokenizer.decode([*context, *pending])[len(decoded):].rstrip(_CUT)
