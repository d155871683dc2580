"""Take a record of a run into the package, if some commit holds the code that made it.

    python tools/add_record.py runs/tiny/record.json tiny_fineweb
    python tools/add_record.py runs/gpu/rows.jsonl h100     # the rows that `tools/gpu.py` has left

A run often happens where there is no history: its record then names no commit, but it has a hash of the code that
ran.  The commit with this hash is looked for, newest first, and written into the record.  Of a path on the machine
that ran it the last name is kept: the rest says nothing elsewhere.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from caracal_book.records import FORMAT, RecordError, code_sha256, files_of, read_record, seal
from caracal_min.files import writing

ROOT = Path(__file__).resolve().parents[1]
_OF_A_MACHINE = re.compile(r"\.{0,2}/|~\S*/|\.\w\S*/")  # also ../texts/web.jsonl and .scratch/web.jsonl


def commit_of(sha256: str, root: Path = ROOT, named: str | None = None) -> str | None:
    """Return the commit that is named if its packages have this hash, else the newest that has; None if none has."""
    listed = subprocess.run(["git", "-C", str(root), "log", "--format=%H", "--", "caracal_min", "book/caracal_book"],
                            capture_output=True, text=True, check=True).stdout.split()
    return next((commit for commit in filter(None, (named, *listed)) if _sha256_of(commit, root) == sha256), None)


@cache
def _sha256_of(commit: str, root: Path) -> str | None:
    try:
        return code_sha256(files_of(commit, root))
    except subprocess.CalledProcessError:  # it is not here
        return None


def admitted(path: Path, root: Path = ROOT) -> dict:
    """Return the record with the commits that hold its code, that of each process.  RecordError: there is none."""
    record = read_record(path, require_commit=False)
    named = record | {"code": _named(path, record["code"], root)}
    if "parts" in record:
        named["parts"] = [part | {"code": _named(path, part["code"], root)} for part in record["parts"]]
    return seal(_without_folders(named))


def _without_folders(value):
    """Return a JSON-like value with the last name in place of each path that is absolute or has a hidden folder."""
    if isinstance(value, dict):
        return {name: _without_folders(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    return Path(value).name if isinstance(value, str) and _OF_A_MACHINE.match(value) else value


def _named(path: Path, code: dict | None, root: Path) -> dict:
    if code is None:
        raise RecordError(f"{path}: a process of an earlier version took part, and its code is not known; run it again")
    commit = commit_of(code["sha256"], root, code["commit"])
    if commit is None:
        raise RecordError(f"{path}: no commit holds the code that made it; commit first, and run it again")
    return code | {"commit": commit, "clean": True}


def record_of_rows(path: Path) -> dict:
    """Return the rows of a file as one record; a training run has a record of its own.

    Raises:
        RecordError: they are of several machines or several states of the code.
    """
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    first = rows[0]
    for row in rows:
        if row["code"] != first["code"] or row["machine"] | {"threads": 0} != first["machine"] | {"threads": 0}:
            raise RecordError(f"{path} has rows of several machines or several states of the code: {row['row']} is "
                              f"of another than {first['row']}; give a file for each")
    last = time.gmtime(path.stat().st_mtime)
    return seal({"format": FORMAT, "kind": "benchmark", "command": ["gpu.py"],
                 "config": {"rows": [row["row"] for row in rows]}, "code": first["code"],
                 "machine": first["machine"], "data": None, "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", last),
                 "seconds": sum(row["seconds"] for row in rows),
                 "results": {"rows": [{name: row[name] for name in ("row", "results")} for row in rows]}})


def add(path: Path, name: str, root: Path = ROOT) -> Path:
    """Write a record, or that of a file of rows, as `admitted`, where pages find it under this name; return the file.

    Raises:
        RecordError, OSError: it is none, no commit holds its code, or it cannot be written.
    """
    out = root / "book" / "caracal_book" / "runs" / f"{name}.json"
    with tempfile.TemporaryDirectory() as scratch:
        if path.suffix == ".jsonl":
            rows, path = record_of_rows(path), Path(scratch) / "rows.json"
            path.write_text(json.dumps(rows))
        record = admitted(path, root)
    with writing(out) as partial:
        partial.write_text(json.dumps(record, indent=1) + "\n")
    return out


def main() -> int:
    """Check the record and write it into the package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path, help="its file, or a file of rows")
    parser.add_argument("name", help="of the file in book/caracal_book/runs, without .json")
    arguments = parser.parse_args()
    try:
        print(add(arguments.record, arguments.name))
    except (OSError, RecordError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
