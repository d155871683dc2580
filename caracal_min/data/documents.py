"""Moved to sources."""
from .sources import DOCUMENTED, EMBEDDED, SOURCES, documents, fineweb_revision  # noqa: F401
