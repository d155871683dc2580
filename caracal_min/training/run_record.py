"""Goes when caracal_book.experiments no longer imports it."""

from ..data.corpus import Corpus
from ..data.tokenizers import tokenizer_sha256

__all__ = ["data_of"]


def data_of(corpus: Corpus, validation: str | None) -> dict:
    """Return what a record says of the text and its tokenizer."""
    return {"source": corpus.source, "validation": validation, "tokenizer": corpus.tokenizer.name,
            "tokenizer_sha256": tokenizer_sha256(corpus.tokenizer),
            "train_tokens": len(corpus.train), "validation_tokens": len(corpus.validation),
            "rule": corpus.rule, "sha256": corpus.digest}
