"""Records of runs: one JSON file that says what was run, with which code, where, on what, and what came out.

The commands of `python -m caracal_book` write them, and so do some scripts in `tools`; no number is typed in by hand.
Three things make a record checkable::

    digest        SHA-256 over everything else: an edited record is refused
    code.sha256   over the files of the two packages that can decide a number: all of `caracal_min` but the shipped
                  weights, and of `caracal_book` what is not a figure, a checker, a rule or a record
    schema        `record_schema.json`, checked as a record is written and read, where jsonschema is installed

A digest finds accidents, not forgers: whoever edits a record can compute it anew.  What a forger cannot do is make the
run come out the same when somebody repeats it.
"""

import hashlib
import io
import json
import platform
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import caracal_min
from caracal_min.files import file_sha256, writing

__all__ = ["FORMAT", "RecordError", "code", "code_sha256", "files_of", "machine",
           "read_record", "record_of_run", "require_new", "save_record", "seal", "write_record"]

FORMAT = "caracal-record-1"
_CORE = Path(caracal_min.__file__).resolve().parent
_BOOK = Path(__file__).resolve().parent
_FOLDERS = ("caracal_min", "book/caracal_book")  # of a checkout
_CODE = (".py", ".js", ".css", ".json", ".yaml", ".csv")
# The last pattern is for early commits, which kept their records in folders of that name.
_NOT_CODE = re.compile(r"pretrained/|caracal_book/(viz|exercises|rules|runs)/|recorded/(?!schema).*\.json$")
_RESULTS = ("parameters", "steps", "tokens", "epochs", "precision", "history", "curve")  # of run.json
_LIBRARIES = ("torch", "triton", "transformers", "lm_eval", "flash_attn", "numpy")


class RecordError(ValueError):
    """A record that was edited, is incomplete, or was made with code that no commit holds."""


def require_new(path: Path | None) -> None:
    """Before a run: refuse to write a record over a file, and note which code the run is about to use.

    Args:
        path: of the record to come; None: there will be none.

    Raises:
        FileExistsError: there is a file.
    """
    if path is not None and path.exists():
        raise FileExistsError(f"{path} exists, and no record is written over another file; move it, or give another "
                              "name")
    code()


def write_record(path: Path, kind: str, config: Mapping, results: Mapping, data: Mapping | None, seconds: float,
                 device: torch.device, parts: Sequence[Mapping] = (), grown: bool = False) -> dict:
    """Write the record of a run that has just ended, and return it.

    Args:
        kind: one of the kinds that the schema lists.
        config, results, data: as the schema has them; anything that JSON can hold, and paths.
        seconds: wall time of the run.
        device: what it ran on.
        parts: the processes that carried out the run, where there were several, with their code and machines.
        grown: whether this record replaces an earlier one of the same runs and more.

    Raises:
        FileExistsError: there is a file already, and it is not to be replaced.
        jsonschema.ValidationError: it does not fit the schema.
        ValueError: a result is not a finite number.
    """
    if not grown:
        require_new(path)
    # A program that was started with `python -m` has the path of its `__main__.py` for a name.
    program = "caracal_book" if sys.argv[0].endswith("__main__.py") else Path(sys.argv[0]).name
    return save_record({
        "kind": kind, "command": [program, *sys.argv[1:]], "config": dict(config), "code": code(),
        "machine": machine(device), "data": data, "finished": _utc(time.time()), "seconds": seconds,
        "results": dict(results)} | ({"parts": list(parts)} if parts else {}), path)


def record_of_run(folder: Path, started: Mapping) -> dict:
    """Return the record of a finished training run, made from the files that the trainer leaves in its folder.

    Args:
        folder: of the run, with `run.json` and `model/`.
        started: what `code()` returned.  The record names the commit that is checked out now, so make it before the
            code changes.

    Returns:
        a record of the kind "train", for `save_record`.

    Raises:
        FileNotFoundError: the run has not ended.
    """
    path = folder / "run.json"
    run = json.loads(path.read_text(encoding="utf-8"))
    results = {name: run.pop(name) for name in _RESULTS}
    results["model_sha256"] = file_sha256(folder / "model" / "model.safetensors")
    ran_on = machine(torch.device("cpu")) | {"device": run["device"]}
    ran_on["versions"] |= run["versions"]
    data = {"validation": run["config"].get("validation"), "sha256": run["data"].pop("digest")}
    # A card with its record goes to the hub, where the rest of a path says nothing but whose machine it was.
    config = run["config"] | {"tokenizer": Path(run["config"]["tokenizer"]).name}
    return {"kind": "train", "command": ["caracal_min", "train"], "config": config, "code": dict(started),
            "machine": ran_on, "data": run["data"] | data, "finished": _utc(path.stat().st_mtime),
            "seconds": run["seconds"], "results": results}


def save_record(record: Mapping, path: Path) -> dict:
    """Seal a record, check it against the schema, write it in one piece, and return it.

    Raises:
        jsonschema.ValidationError: it does not fit the schema.
        ValueError: it holds a number that is not finite.
    """
    record = seal(json.loads(json.dumps({"format": FORMAT, **record}, default=str, allow_nan=False)))
    _validate(record)
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as partial:
        partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


def read_record(path: Path, require_commit: bool = True) -> dict[str, Any]:
    """Return a record that is as it was written.

    Args:
        require_commit: refuse a record of code that no commit holds.  In a checkout that has the commit, its files
            are compared with the hash of the code that ran.

    Raises:
        FileNotFoundError: there is none.
        RecordError: it was edited, or the commit does not hold its code.
    """
    record = json.loads(path.read_bytes())
    if record["format"] != FORMAT or record["digest"] != seal(record)["digest"]:
        raise RecordError(f"{path} was edited, it does not match its own digest; run it again")
    _validate(record)
    if require_commit:
        for process in (record, *record.get("parts", ())):
            _require_commit(path, process["code"])
    return record


def seal(record: Mapping) -> dict:
    """Return the record with the digest of everything else in it."""
    # Sorted keys, so that the digest depends on the contents alone and not on their order in the file.
    body = {key: value for key, value in record.items() if key != "digest"}
    text = json.dumps(body, sort_keys=True)
    return body | {"digest": hashlib.sha256(text.encode()).hexdigest()}


@cache
def code() -> dict:
    """Return which code runs: version, hash of the files, commit, and whether the files are as committed.

    The files are read once in a process, so call it when a run begins: they may change before it ends.
    """
    sha256 = code_sha256(_files())
    try:
        # An installed package may lie in a virtual environment inside some repository, which does not track it.
        _git(_CORE, "ls-files", "--error-unmatch", "__init__.py")
        commit = _git(_CORE, "rev-parse", "HEAD").decode().strip()
        clean = code_sha256(files_of(commit)) == sha256
    except (OSError, subprocess.CalledProcessError):
        commit = clean = None
    return {"version": caracal_min.__version__, "sha256": sha256, "commit": commit, "clean": clean}


def code_sha256(files: Mapping[str, bytes]) -> str:
    """Return the hash of the files that can decide a number.

    Args:
        files: contents by name: of `caracal_min` relative to it, of `caracal_book` with names that begin so.
    """
    digest = hashlib.sha256()
    for name in sorted(files):
        if not name.endswith(_CODE) or _NOT_CODE.match(name):
            continue
        digest.update(f"{name} {hashlib.sha256(files[name]).hexdigest()}\n".encode())
    return digest.hexdigest()


def files_of(commit: str, root: Path = _CORE.parent) -> dict[str, bytes]:
    """Return the files of both packages in a commit of the checkout at `root`, named as in `code_sha256`.

    Raises:
        subprocess.CalledProcessError: there is no such commit.
    """
    folders = _git(root, "ls-tree", "--name-only", commit, *_FOLDERS).decode().split()
    with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", commit, *folders))) as archive:
        return {re.sub("^(caracal_min|book)/", "", member.name): archive.extractfile(member).read()
                for member in archive if member.isfile()}


def machine(device: torch.device) -> dict:
    """Return what the speed and the numbers of a run may depend on: device, versions, threads."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {"platform": platform.platform(), "processor": _processor(), "python": platform.python_version(),
            "versions": {name: find_spec(name) and metadata.version(name) for name in _LIBRARIES},
            "device": gpu or device.type, "cuda": torch.version.cuda, "driver": None,
            "threads": torch.get_num_threads()}


def _files() -> dict[str, bytes]:
    """Return the files of both packages as they are now, named as in `code_sha256`."""
    # A checkout and an installed package have the same names, so both have the same hash.
    files = {}
    for folder, parent in ((_CORE, _CORE), (_BOOK, _BOOK.parent)):
        for path in folder.rglob("*"):
            if path.suffix in _CODE:
                files[path.relative_to(parent).as_posix()] = path.read_bytes()
    return files


def _git(folder: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=True).stdout


def _require_commit(path: Path, ran: Mapping | None) -> None:
    if ran is None or not (ran["commit"] and ran["clean"]):
        raise RecordError(f"{path} was made with code that no commit is known to hold; commit, and run it again")
    try:
        files = files_of(ran["commit"])
    except (OSError, subprocess.CalledProcessError):  # no git, no checkout, or a shallow clone
        return
    if code_sha256(files) != ran["sha256"]:
        raise RecordError(f"{path} names commit {ran['commit'][:7]}, which does not hold the code that made it; "
                          "run it again")


def _validate(record: Mapping) -> None:
    try:
        import jsonschema
    except ImportError:  # on a machine that only computes; `tools/add_record.py` checks the record later
        return
    jsonschema.validate(record, json.loads((_BOOK / "record_schema.json").read_text(encoding="utf-8")))


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _processor() -> str:
    if not Path("/proc/cpuinfo").exists():
        return platform.processor()
    # Python names only the architecture on Linux, and speeds mean nothing without the model of the processor.
    found = re.search(r"^model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else "unknown"
