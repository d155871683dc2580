"""Moved to training.distributed."""
from .training.distributed import keep_freed_memory  # noqa: F401
