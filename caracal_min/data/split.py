"""Moved to sources."""
from .sources import ALL, HELD_OUT, RULE, TRAIN, is_held_out, text_digest  # noqa: F401
