"""Moved to the package itself."""

from . import __version__  # noqa: F401
