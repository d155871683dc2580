"""Moved to batches."""

from itertools import islice

from ..tokenizer import make_tokenizer
from .batches import Corpus, load_corpus, tokens_of  # noqa: F401
from .shards import is_shards
from .sources import documents


def require_readable(tokenizer, *sources, shards=None) -> None:
    """Goes with its callers: what they load next says the same, a little later."""
    make_tokenizer(tokenizer)
    for source in sources:
        if source != "fineweb" and not is_shards(source) and not (shards and is_shards(shards)):
            list(islice(documents(source), 1))
