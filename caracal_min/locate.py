"""Moved to model."""

from .model import locate_model, shipped_models  # noqa: F401
