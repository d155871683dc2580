"""What is trained on and what is held out: one rule, for every source and every way of storing it.

A document is held out by a hash of its own text.  So it is on the same side in a file, in a folder, in a stream and in
shards of any size, wherever in them it stands and however much of them is read; and two documents with one text are
never on two sides.  Nothing here trains on a document that the rule holds out, not even when another text is measured.
"""

import hashlib

__all__ = ["ALL", "EVERY_TENTH", "HELD_OUT", "LAST_HUNDREDTH", "RULE", "TRAIN", "is_held_out"]

_ONE_IN = 20  # the smallest corpus of the book has 505 documents, and a loss is measured on some dozens

RULE = f"sha256 of the text, one document in {_ONE_IN}"
"""The rule in words, for manifests and records."""
EVERY_TENTH, LAST_HUNDREDTH = "every tenth document", "the documents in the last hundredth of the tokens"
"""What earlier versions held out, of texts in memory and of shards.  Only runs that began so go on so."""
TRAIN, HELD_OUT, ALL = "train", "held_out", "all"
"""The parts of a source, which are what may be trained on, what may not, and both."""


def is_held_out(text: str) -> bool:
    """Whether a document is held out: whether SHA-256 of its UTF-8, as a big-endian number, is a multiple of 20."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big") % _ONE_IN == 0
