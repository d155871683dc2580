"""The command `record`: what a training run leaves, as a record that pages can load."""

from dataclasses import dataclass
from pathlib import Path

from ..records import code, record_of_run, require_new, save_record

__all__ = ["RecordConfig", "run_record"]


@dataclass(frozen=True)
class RecordConfig:
    """Turn the folder of a finished training run into a record: what was run, with which code, where, on what.

    The record names the commit that is checked out when this command runs, which must be the one that trained, with no
    change that is not committed.
    """

    run: Path
    """Folder of the run."""
    out: Path | None = None
    """Record to write, a JSON file; left out: record.json in the folder."""


def run_record(config: RecordConfig) -> dict:
    """Write the record and return it."""
    out = config.out or config.run / "record.json"
    require_new(out)
    # A record is evidence only if somebody else can check out the code and run it again.
    if not (now := code())["clean"]:
        raise ValueError("the code is not as committed; commit first")
    record = save_record(record_of_run(config.run, now), out)
    print(f"record = {out}")
    return record
