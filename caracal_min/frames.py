"""Moved to `spectral`."""
from .spectral import fast_length, fft_points, overlapping  # noqa: F401
