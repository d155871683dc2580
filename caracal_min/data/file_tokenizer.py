"""Moved to `caracal_min.tokenizer`, as JSONTokenizer."""

from ..tokenizer import TOKENIZER, TOKENIZER_CONFIG, JSONTokenizer  # noqa: F401


class FileTokenizer(JSONTokenizer):
    """A class of its own, so that `export` still tells a file of its own from a first part of GPT-2."""
