"""Moved to `layers`."""

from .layers import Block, MultiHeadFourier, SlidingWindowAttention, SwiGLU  # noqa: F401
