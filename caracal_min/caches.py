"""Moved to `decoding`; the cache of `transformers` moved to `hf`."""

from contextlib import nullcontext

from .decoding import Cache, FourierCache, WindowCache, is_one_token

__all__ = ["Cache", "FourierCache", "WindowCache", "advance_together", "is_one_token"]

# Does nothing; it goes with this module.
advance_together = nullcontext
