"""Runs that the book shows and did not run again: JSON records in this folder, each written by a command::

    names()            what there is
    load(name)         one of them, if it is as it was written and a commit holds its code
    describe(record)   which run it is, in a line

`caracal_book.records` says what a record holds, and writes and checks them.
"""

from pathlib import Path
from typing import Any

from ..records import read_record

__all__ = ["describe", "load", "names"]

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Return the names of the recorded runs.

    Example:
        >>> all(describe(load(name)).startswith("recorded, not rerun") for name in names()[:1])
        True
    """
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def load(name: str) -> dict[str, Any]:
    """Return a recorded run.

    Raises:
        ValueError: there is none of this name; it was edited (`records.RecordError`).
    """
    if name not in names():
        raise ValueError(f"no recorded run {name!r}; there are: {', '.join(names()) or 'none'}")
    return read_record(_FOLDER / f"{name}.json")


def describe(record: dict[str, Any]) -> str:
    """Return one line that says which run a record is of, for wherever its numbers are shown."""
    config, machine = record["config"], record["machine"]
    kind = config.get("architecture", "caracal")
    what = {"train": f"{kind} {config.get('preset')}, {config.get('variant')}, trained",
            "evaluate": f"{config.get('model')}, evaluated", "benchmark": "benchmark",
            "count": f"tables counted in {record['results'].get('counted', {}).get('tokens', 0):,} tokens",
            "learn": "mixers on synthetic tasks", "surgery": f"{config.get('model')}, ablated",
            "forms": f"{len(record['results'].get('runs', ()))} runs of forms of the Fourier layer",
            "race": f"{len(record['results'].get('runs', ()))} runs of a race",
            "trials": f"{len(record['results'].get('rows', ()))} short runs",
            "blind_test": f"{config.get('model')}, chosen blindly"}[record["kind"]]
    where = machine["processor"] if machine["device"] == "cpu" else machine["device"]
    codes = [part["code"] or {"commit": None} for part in record.get("parts", [record])]
    commits = ", ".join(dict.fromkeys((code["commit"] or "unknown")[:7] for code in codes))
    return (f"recorded, not rerun: {what} in {record['seconds'] / 60:.1f} minutes on {where}, torch "
            f"{machine['versions']['torch']}, {record['finished'][:10]}, commit {commits}")
