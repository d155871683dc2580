"""Moved to sources."""
from .sources import file_texts  # noqa: F401
