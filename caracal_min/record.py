# goes when training and commands no longer import it
"""Records of runs: one JSON file that says what was run, with which code, where, on what, and what came out.

`train`, `evaluate`, `count`, `benchmark`, `learn`, `surgery`, `forms` and `race` write them, and two scripts for
maintainers, `micro_trials` and `blind_test`; no number is typed.
Three things make that checkable::

    digest        SHA-256 over everything else: an edited record is refused
    code.sha256   over the files of the two packages that can decide a number: all of `caracal_min` but the trained
                  models, which have hashes of their own, and of `caracal_book` what is not a figure, a checker, a rule
                  or a record
    schema        `record_schema.json`, against which every record is validated as it is read, and as it is written
                  where jsonschema is installed

A digest finds accidents, not forgers: whoever edits a record can compute it anew.  What a forger cannot do is make the
run come out so when somebody repeats it.
"""

import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import torch

from .extras import missing
from .files import writing
from .version import __version__

__all__ = ["RecordError", "code", "code_sha256", "files_of", "is_of_training", "machine", "read_record", "require_new",
           "require_recordable", "require_writable", "seal", "write_record"]

FORMAT = "caracal-record-1"
_PACKAGE = Path(__file__).resolve().parent
_FOLDERS = ("caracal_min", "book/caracal_book")  # of a checkout
_NOT_CODE = re.compile(r"pretrained/|caracal_book/(viz|exercises|rules|runs)/|recorded/(?!schema).*\.json$")
_CODE = (".py", ".js", ".css", ".json", ".yaml", ".csv")


class RecordError(ValueError):
    """A record that was edited, is incomplete, or was made with code that no commit holds."""


def require_writable(path: Path) -> None:
    """Find out before the work whether a file can be written.

    Raises:
        OSError: `path` is a folder, what should be its folder is a file, or there is no permission; in one line.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file")
    folder = path.parent
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(f"{path} cannot be written, {folder} is no folder; give another place")
    present = path if path.exists() else folder
    if not os.access(present, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(f"{path} cannot be written, there is no permission to write {present}; "
                              "ask for it, or give another place")


def require_new(path: Path) -> None:
    """Raise FileExistsError, in one line, if there is a file: a record is written once, and never over another."""
    if os.path.lexists(path):
        raise FileExistsError(f"{path} exists, and no record is written over another file; move it, or give another "
                              "name")


def require_recordable(path: Path) -> None:
    """Find out before a run whether its record can be written at its end, and take down the code as it is now.

    Raises:
        OSError: the file could not be written.
    """
    require_writable(path)
    code()


def write_record(path: Path, kind: str, config: Mapping, results: Mapping, data: Mapping | None, seconds: float,
                 device: torch.device, parts: Sequence[Mapping] = (), grown: bool = False) -> dict:
    """Write the record of a run that has just ended, atomically, and return it.

    Args:
        kind: train, evaluate, count, benchmark, learn, surgery, forms, race, trials or blind_test.
        config, results, data: what the schema says; anything JSON can hold, paths included.
        seconds: wall time of the run.
        device: what it ran on.
        parts: of a run that several processes carried out one after the other, with which code and where.
        grown: whether these results hold all those of the record that is there, which this one then replaces.

    Raises:
        RecordError: it does not fit the schema, or holds a number that is not finite.
        OSError: the file cannot be written, or there is one already.
    """
    if not grown:
        require_new(path)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    program = "caracal_min" if sys.argv[0].endswith("__main__.py") else Path(sys.argv[0]).name
    record = {"format": FORMAT, "kind": kind, "command": [program, *sys.argv[1:]], "config": dict(config),
              "code": code(), "machine": machine(device), "data": data, "finished": now, "seconds": seconds,
              "results": dict(results)}
    if parts:
        record["parts"] = list(parts)
    try:
        record = seal(json.loads(json.dumps(record, default=str, allow_nan=False)))
    except ValueError:
        raise RecordError(f"{path}: the run has results that are not finite numbers; it is not recorded") from None
    if find_spec("jsonschema"):
        _validate(record, path)
    with writing(path) as partial:
        partial.write_text(json.dumps(record, indent=1) + "\n")
    return record


def read_record(path: Path, require_commit: bool = True) -> dict[str, Any]:
    """Return a record that is as it was written.

    Args:
        require_commit: refuse one that was made with code that is no commit's.  Where the package lies in a checkout
            that has the commit, its files are compared with the hash of the code that ran.

    Raises:
        FileNotFoundError, RecordError: there is none; it is no record, was edited, or its code is not known.
        ImportError: jsonschema is not installed.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no record {path}; check the path")
    try:
        record = json.loads(path.read_bytes(), parse_constant=_no_number)
        stated, kind = record["digest"], record["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise RecordError(f"{path} is not a record of a run ({type(error).__name__}: {error})") from None
    if kind != FORMAT:
        raise RecordError(f"{path} has format {kind!r}, this version reads {FORMAT!r}")
    if stated != seal(record)["digest"]:
        raise RecordError(f"{path} was edited, it does not match its own digest; run it again")
    _validate(record, path)
    if require_commit:
        for ran in (record["code"], *(part["code"] for part in record.get("parts", ()))):
            _require_commit(path, ran)
    return record


def is_of_training(record: Mapping, weights: str) -> bool:
    """Whether a record is of the training of some weights, given by the SHA-256 of their file: as the run has written
    them, or as the package ships them, in half precision."""
    return record["kind"] == "train" and weights in (record["results"]["model_sha256"],
                                                     record["results"].get("shipped", {}).get("sha256"))


def seal(record: Mapping) -> dict:
    """Return the record with the digest of everything else in it."""
    body = {key: value for key, value in record.items() if key != "digest"}
    return body | {"digest": hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()}


def code_sha256(files: Mapping[str, bytes]) -> str:
    """Return the hash of the files that can decide a number: those of `caracal_min`, with names relative to it, and
    those of `caracal_book`, with names that begin so."""
    digest = hashlib.sha256()
    for name in sorted(files):
        if _decides(name):
            digest.update(f"{name} {hashlib.sha256(files[name]).hexdigest()}\n".encode())
    return digest.hexdigest()


def files_of(commit: str, root: Path = _PACKAGE.parent) -> dict[str, bytes]:
    """Return the files of both packages as a commit of the checkout at `root` has them, named as in `code_sha256`.

    Raises:
        subprocess.CalledProcessError: there is no such commit.
    """
    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=True).stdout

    there = git("ls-tree", "--name-only", commit, *_FOLDERS).decode().split()
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit, *there))) as archive:
        return {re.sub("^(caracal_min|book)/", "", member.name): archive.extractfile(member).read()
                for member in archive if member.isfile()}


@cache
def code() -> dict:
    """Return which code runs: version, hash of the files, commit, and whether they are as committed.

    It is read from the files once, so call it when a run begins: they may change before it ends.
    """
    return {"version": __version__, "sha256": code_sha256(_files()), **_checkout()}


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
    found = {path.relative_to(_PACKAGE).as_posix(): path for path in _PACKAGE.rglob("*")}
    for folder in (_PACKAGE.parent / "book", _PACKAGE.parent):  # of a checkout, or where a wheel was installed
        found |= {path.relative_to(folder).as_posix(): path for path in (folder / "caracal_book").rglob("*")}
    return {name: path.read_bytes() for name, path in found.items() if path.suffix in _CODE}


def _decides(name: str) -> bool:
    """Whether a file, named as in `code_sha256`, can decide a number."""
    return name.endswith(_CODE) and not _NOT_CODE.match(name)


def _checkout() -> dict:
    """Say which commit the package's files are of, if they lie in a checkout, and whether those of them that can decide
    a number are as committed."""
    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(_PACKAGE), *arguments], capture_output=True, text=True)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    tracked = git("ls-files", "--error-unmatch", "__init__.py")
    if tracked is None:
        return {"commit": None, "clean": None}
    changed = git("status", "--porcelain", "--untracked-files=all", "--", ".", "../book/caracal_book")
    names = [re.sub("^(caracal_min|book)/", "", line.split()[-1].strip('"')) for line in (changed or "").splitlines()]
    return {"commit": git("rev-parse", "HEAD"), "clean": changed is not None and not any(map(_decides, names))}


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


def _require_commit(path: Path, ran: Mapping | None) -> None:
    """Raise RecordError unless some code is that of a commit, as far as this can be seen from here."""
    if ran is None or not (ran["commit"] and ran["clean"]):
        raise RecordError(f"{path} was made with code that no commit is known to hold; commit, and run it again")
    try:
        files = files_of(ran["commit"])
    except (OSError, subprocess.CalledProcessError):  # no git, no checkout, or a shallow one
        return
    if code_sha256(files) != ran["sha256"]:
        raise RecordError(f"{path} names commit {ran['commit'][:7]}, which does not hold the code that made it; "
                          "run it again")


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _validate(record: dict, path: Path) -> None:
    try:
        import jsonschema
    except ImportError:
        raise missing("a record", "jsonschema", "train") from None
    schema = json.loads((resources.files(__package__) / "record_schema.json").read_text())
    try:
        jsonschema.validate(record, schema)
    except jsonschema.ValidationError as error:
        place = "/".join(map(str, error.absolute_path)) or "the top"
        raise RecordError(f"{path}: at {place}: {error.message.splitlines()[0]}") from None
