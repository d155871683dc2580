"""Goes when caracal_book.experiments.grid and __main__ no longer import it."""

from pathlib import Path

__all__ = ["RunFolder", "RunInUseError"]


class RunInUseError(OSError):
    """Never raised."""


class RunFolder:
    """A folder, made if absent, with the name of the record in it."""

    def __init__(self, path: Path, is_main: bool = True):
        self.path, self.record = path, path / "record.json"
        if is_main:
            path.mkdir(parents=True, exist_ok=True)

    @property
    def complete(self) -> bool:
        """Whether the record is there."""
        return self.record.exists()

    def require_held(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
