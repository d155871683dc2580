"""Which documents are held out: one rule, for every source and every way of storing it.

A document is held out by a hash of its own text.  So it is on the same side in a file, in a folder, in a stream and in
shards of any size, wherever it stands there and however much is read; and two documents with one text are never on two
sides.  No training uses a document that the rule holds out, not even when another text is measured.
"""

import hashlib

__all__ = ["ALL", "HELD_OUT", "RULE", "TRAIN", "is_held_out", "text_digest"]

_ONE_IN = 20  # the smallest corpus of the book has 505 documents, and a loss is measured on some dozens

RULE = f"sha256 of the text, one document in {_ONE_IN}"
"""The rule in words, for manifests and records."""
TRAIN, HELD_OUT, ALL = "train", "held_out", "all"
"""The splits of a source: what may be trained on, what may not, and both."""


def is_held_out(text: str | bytes) -> bool:
    """Whether a document is held out: whether SHA-256 of its UTF-8, as a big-endian number, is a multiple of 20.

    Args:
        text: the document, or its `text_digest` where that is known already.
    """
    digest = text_digest(text) if isinstance(text, str) else text
    return int.from_bytes(digest, "big") % _ONE_IN == 0


def text_digest(text: str) -> bytes:
    """Return the SHA-256 of the UTF-8 of a document, 32 bytes."""
    return hashlib.sha256(text.encode()).digest()
