"""Moved to `decoding`."""
from .decoding import PartitionedConvolution, RollingConvolution  # noqa: F401
