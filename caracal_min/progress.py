"""Progress bars, for people alone: in a terminal or a notebook, never in a log file."""

import sys
from typing import Any

__all__ = ["progress_bar"]


def progress_bar(*arguments: Any, show: bool = True, **options: Any) -> Any:
    """Return `tqdm(*arguments, **options)`; nothing is drawn unless `show` is true and somebody can watch."""
    from tqdm import tqdm

    watched = sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")
    return tqdm(*arguments, disable=not (show and watched), **options)
