"""Moved to `kernel`."""
from .kernel import convolve, convolve_backward  # noqa: F401
