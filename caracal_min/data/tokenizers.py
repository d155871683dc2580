"""Moved to `caracal_min.tokenizer`."""

import re

from ..tokenizer import (  # noqa: F401
    TOKENIZER,
    TOKENIZER_CONFIG,
    ByteTokenizer,
    JSONTokenizer,
    Tokenizer,
    load_tokenizer,
    make_tokenizer,
    save_tokenizer,
    tokenizer_sha256,
)


class GPT2Tokenizer:
    """Its numbers, for who does not load it: `make_tokenizer("gpt2")` does."""

    name, vocab_size, end_of_text = "gpt2", 50_257, 50_256


def require_tokenizer_name(name: str) -> None:
    """`make_tokenizer` says this itself."""
    if not re.fullmatch(r"byte|gpt2(:\d+)?|.*\.json", name):
        raise ValueError(f"unknown tokenizer {name!r}; accepted: byte, gpt2, gpt2:N, or a path that ends in .json")
