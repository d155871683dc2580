"""Moved to trainer."""
from .trainer import StoppedError  # noqa: F401
