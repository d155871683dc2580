"""Moved to config."""
from .config import TrainConfig, learning_rate, model_changes  # noqa: F401
