"""Commands of the package that are killed, or whose disk fills up, and what they leave when they are started again.

A command runs in a process of its own, forked from one that has imported the package, so that all of its time is work.
"""

import hashlib
import io
import json
import multiprocessing
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
from safetensors import safe_open

from caracal_min.__main__ import main

__all__ = ["Kind", "files_no_larger_than", "full_at_every_write", "killed_at_random", "run", "tokenizing", "training"]

_CLOCK = ("seconds", "tokens_per_second", "mfu")  # of an entry of the log: what no two runs agree in
_MINUTES = 30  # after which a process that does not end is an error


@dataclass(frozen=True)
class Kind:
    """A command that can be interrupted.

    `options` without `--out`; `progress` says how far the work in a folder has come, in whole numbers; `results` gives
    the hashes of everything in it that must not depend on interruptions, by name.
    """

    options: tuple[str, ...]
    progress: Callable[[Path], int]
    results: Callable[[Path], dict[str, str]]

    def command(self, out: Path) -> list[str]:
        """Return the command line without the program."""
        return [*self.options, "--out", str(out)]


def training(steps: int, text: Path) -> Kind:
    """Return the training of a nano model on some text, with a checkpoint after every step."""
    batch, context = 8, 64
    return Kind(("train", "--preset", "nano", "--data", str(text), "--tokens", str(steps * batch * context),
                 "--context", str(context), "--batch-size", str(batch), "--micro-batch-size", str(batch),
                 "--eval-every", "10", "--eval-windows", "8", "--checkpoint-minutes", "0", "--no-progress",
                 "--device", "cpu"), _steps, results_of_training)


def tokenizing(text: Path, shard_tokens: int) -> Kind:
    """Return the writing of some text as shards of bytes."""
    return Kind(("tokenize", "--source", str(text), "--tokenizer", "byte", "--shard-tokens", str(shard_tokens),
                 "--no-progress"), lambda out: len(list(out.rglob("*.bin"))), results_of_tokenizing)


def results_of_training(out: Path) -> dict[str, str]:
    """Return the hashes of the model's files, of every tensor of the last checkpoint and of the log without times."""
    found = {path.name: _sha256(path.read_bytes()) for path in (out / "model").iterdir()}
    with safe_open(out / "checkpoint.safetensors", framework="np") as file:
        found |= {name: _sha256(file.get_tensor(name).tobytes()) for name in file.keys() if name != "log"}
    entries = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    curve = [{name: value for name, value in entry.items() if name not in _CLOCK} for entry in entries]
    return found | {"log.jsonl": _sha256(json.dumps(curve).encode())}


def results_of_tokenizing(out: Path) -> dict[str, str]:
    """Return the hash of every file."""
    return {path.relative_to(out).as_posix(): _sha256(path.read_bytes()) for path in out.rglob("*") if path.is_file()}


def _steps(out: Path) -> int:
    log = out / "log.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def killed_at_random(kind: Kind, folder: Path, count: int, seed: int) -> Iterator[str]:
    """Kill a command at random moments, each time in a new folder; yield "" if the same command then ends as it would
    have, else what differs.

    Moments are drawn evenly over the work of an undisturbed run: so many steps or shards, and a part of the time that
    one takes.  A process that ended before its moment is not counted; another moment is drawn.

    Raises:
        RuntimeError: the command fails where nobody disturbed it.
    """
    start, whole = time.monotonic(), folder / "whole"
    _must_end(kind, whole)
    last, expected = kind.progress(whole), kind.results(whole)
    part, draw = (time.monotonic() - start) / (last + 1), random.Random(seed)
    killed = number = 0
    while killed < count:
        out, number = folder / f"killed_{number:03}", number + 1
        if _killed(kind, out, draw.randrange(last + 1), draw.random() * part):
            killed += 1
            _must_end(kind, out)
            yield _difference(out, kind.results(out), expected)


def _difference(out: Path, found: dict[str, str], expected: dict[str, str]) -> str:
    names = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    return f"{out}: other than undisturbed: {', '.join(names)}" if names else ""


def _killed(kind: Kind, out: Path, after: int, seconds: float) -> bool:
    """Start a command and kill it so many seconds after it has come so far; say whether it was still at work."""
    process, _ = _started(kind.command(out))
    deadline = time.monotonic() + 60 * _MINUTES
    while kind.progress(out) < after and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(seconds)
    process.kill()
    process.join()
    if process.exitcode > 0:
        raise RuntimeError(f"{' '.join(kind.command(out))} ended with status {process.exitcode} before it was killed")
    return process.exitcode < 0


def full_at_every_write(kind: Kind, folder: Path, most: int = 10_000) -> Iterator[str]:
    """Let the disk fill up at the first write of a command, at the second, and so on until none is left.

    Yields "" if it ends with status 1 and one line, and the same command, given room, then ends as it would have; else
    what it did.

    Args:
        most: of the writes, the first ones, for a trial.
    """
    _must_end(kind, folder / "whole")
    expected = kind.results(folder / "whole")
    for number in range(1, most + 1):
        out = folder / f"full_{number:04}"
        status, said = run(kind.command(out), full_at=(number, out))
        if status == 0:
            return
        if status != 1 or not said.startswith("error: ") or said.count("\n") != 1 or "written" not in said:
            yield f"{out}: status {status}: {said!r}"
        else:
            _must_end(kind, out)
            yield _difference(out, kind.results(out), expected)


def _must_end(kind: Kind, out: Path) -> None:
    status, said = run(kind.command(out))
    if status:
        raise RuntimeError(f"{' '.join(kind.command(out))} ended with status {status}: {said.strip()}")


def run(command: Sequence[str], full_at: tuple[int, Path] | None = None) -> tuple[int, str]:
    """Run a command in a process of its own; return its status and what it said on stderr.

    Args:
        full_at: a number and a folder: at the write of this number in this folder the disk fills up, and stays full.
    """
    process, answer = _started(command, full_at)
    if not answer.poll(60 * _MINUTES):
        process.kill()
    process.join()
    try:
        return answer.recv()
    except EOFError:
        return process.exitcode or 1, ""


def _started(command: Sequence[str], full_at: tuple[int, Path] | None = None):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["caracal_min.__main__", "datasets", "jsonschema", "tyro"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(list(command), full_at, sender), daemon=True)
    process.start()
    sender.close()
    return process, receiver


def _run(command: list[str], full_at: tuple[int, Path] | None, answer) -> None:
    said = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(said):
        if full_at is not None:
            fill_up(*full_at)
        status = main(command)
    answer.send((status, said.getvalue()))


def fill_up(number: int, folder: Path) -> None:
    """From the write of this number in this folder on, let this process write nothing more: files end at 0 bytes.

    A write is a file opened for writing, or handed to safetensors, which opens it without Python.
    """
    left = number

    def write(path: object) -> None:
        nonlocal left
        if Path(folder) in Path(str(path)).parents:
            left -= 1
            if left == 0:
                _limit_files(0)

    def audit(event: str, arguments: tuple) -> None:
        if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
            write(arguments[0])

    serialize = safetensors.torch.serialize_file

    def counted(tensors, path, *arguments, **options):
        write(path)
        return serialize(tensors, path, *arguments, **options)

    safetensors.torch.serialize_file = counted
    sys.addaudithook(audit)


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Let this process write no file beyond a size: what a full disk does, at a place of our choosing."""
    before = _limit_files(size)
    try:
        yield
    finally:
        _limit_files(before)


def _limit_files(size: int) -> int:
    """Set the most bytes of a file, and return what it was."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    return before
