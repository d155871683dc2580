"""Moved to `decoding`."""
from .decoding import DotProductConvolution, RelaxedConvolution  # noqa: F401
