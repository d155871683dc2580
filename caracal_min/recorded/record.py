"""Records of runs: one JSON file that says what was run, with which code, where, on what, and what came out.

`train`, `evaluate` and `benchmark` write them; nothing in one is typed in by hand.  Three things make that checkable:

    digest        SHA-256 over everything else: an edited record is refused
    code.sha256   over the files of the package that ran; `code_sha256` of a commit is compared with it
    schema        `schema.json`, against which every record is validated as it is written
"""

import hashlib
import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata, resources
from pathlib import Path

import torch

from ..files import writing
from ..version import __version__

__all__ = ["RecordError", "code_sha256", "machine", "read_record", "seal", "write_record"]

FORMAT = "caracal-record-1"
_PACKAGE = Path(__file__).resolve().parents[1]
_SCHEMA = "recorded/schema.json"
_CODE = (".py", ".js", ".css", ".json", ".yaml", ".csv")


class RecordError(ValueError):
    """A record that was edited, is incomplete, or was made with code that no commit holds."""


def write_record(path: Path, kind: str, config: Mapping, results: Mapping, data: Mapping | None, seconds: float,
                 device: torch.device) -> dict:
    """Write the record of a run that has just ended, atomically, and return it.

    Args:
        kind: train, evaluate or benchmark.
        config, results, data: what the schema says; anything JSON can hold, paths included.
        seconds: wall time of the run.
        device: what it ran on.

    Raises:
        RecordError: it does not fit the schema.
        OSError: the file cannot be written.
    """
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    program = "caracal_min" if sys.argv[0].endswith("__main__.py") else Path(sys.argv[0]).name
    record = {"format": FORMAT, "kind": kind, "command": [program, *sys.argv[1:]], "config": dict(config),
              "code": {"version": __version__, "sha256": code_sha256(_files()), **_checkout()},
              "machine": machine(device), "data": data, "finished": now, "seconds": seconds, "results": dict(results)}
    record = seal(json.loads(json.dumps(record, default=str)))
    _validate(record, path)
    with writing(path) as partial:
        partial.write_text(json.dumps(record, indent=1) + "\n")
    return record


def read_record(path: Path, require_commit: bool = True) -> dict:
    """Return a record that is as it was written.

    Args:
        require_commit: refuse one that was made with code that is no commit's.

    Raises:
        FileNotFoundError, RecordError: there is none; it is no record, was edited, or its code is not known.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no record {path}; check the path")
    try:
        record = json.loads(path.read_bytes())
        stated, kind, code = record["digest"], record["format"], record["code"]
    except (ValueError, TypeError, KeyError) as error:
        raise RecordError(f"{path} is not a record of a run ({type(error).__name__}: {error})") from None
    if kind != FORMAT:
        raise RecordError(f"{path} has format {kind!r}, this version reads {FORMAT!r}")
    if stated != seal(record)["digest"]:
        raise RecordError(f"{path} was edited, it does not match its own digest; run it again")
    if require_commit and not (code["commit"] and code["clean"]):
        raise RecordError(f"{path} was made with code that no commit is known to hold; commit, and run it again")
    return record


def seal(record: Mapping) -> dict:
    """Return the record with the digest of everything else in it."""
    body = {key: value for key, value in record.items() if key != "digest"}
    return body | {"digest": hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()}


def code_sha256(files: Mapping[str, bytes]) -> str:
    """Return the hash of a package's files, names relative to it; records that it carries are left out."""
    digest = hashlib.sha256()
    for name in sorted(files):
        if name.endswith(_CODE) and (not re.fullmatch(r"recorded/.*\.json", name) or name == _SCHEMA):
            digest.update(f"{name} {hashlib.sha256(files[name]).hexdigest()}\n".encode())
    return digest.hexdigest()


def machine(device: torch.device) -> dict:
    """Return what a run's speed and numbers may depend on: device, driver, versions, threads."""
    versions = {}
    for name in ("torch", "triton", "transformers", "lm_eval", "flash_attn", "numpy"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    gpu = device.type == "cuda"
    return {"platform": platform.platform(), "processor": _processor(), "python": platform.python_version(),
            "versions": versions, "device": torch.cuda.get_device_name(device) if gpu else "cpu",
            "cuda": torch.version.cuda if gpu else None, "driver": _driver() if gpu else None,
            "threads": torch.get_num_threads()}


def _files() -> dict[str, bytes]:
    return {path.relative_to(_PACKAGE).as_posix(): path.read_bytes() for path in _PACKAGE.rglob("*")
            if path.suffix in _CODE}


def _checkout() -> dict:
    """Say which commit the package's files are of, if they lie in a checkout, and whether they are as committed."""
    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(_PACKAGE), *arguments], capture_output=True, text=True)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    tracked = git("ls-files", "--error-unmatch", "__init__.py")
    if tracked is None:
        return {"commit": None, "clean": None}
    return {"commit": git("rev-parse", "HEAD"), "clean": git("status", "--porcelain", "--", ".") == ""}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _driver() -> str | None:
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout else None


def _validate(record: dict, path: Path) -> None:
    try:
        import jsonschema
    except ImportError:
        raise ImportError("writing a record needs jsonschema: pip install 'caracal-min[train]'") from None
    schema = json.loads((resources.files(__package__) / "schema.json").read_text())
    try:
        jsonschema.validate(record, schema)
    except jsonschema.ValidationError as error:
        place = "/".join(map(str, error.absolute_path)) or "the top"
        raise RecordError(f"{path}: at {place}: {error.message.splitlines()[0]}") from None
