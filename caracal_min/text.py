"""Moved to generation."""

from .generation import stream_text  # noqa: F401
