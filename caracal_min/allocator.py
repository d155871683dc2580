"""Moved to training.trainer."""
from .training.trainer import keep_freed_memory  # noqa: F401
