"""Command lines and files that cannot be: each must end with exit status 2 and one line on stderr."""

import contextlib
import gzip
import io
import json
import lzma
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet
import torch

from caracal_book import __main__ as book
from caracal_book.commands import COMMANDS as BOOK
from caracal_min import Caracal
from caracal_min.__main__ import main
from caracal_min.data import ByteTokenizer
from caracal_min.data.write_shards import tokenize
from caracal_min.training import TrainConfig, Trainer

__all__ = ["BAD", "bad_command_lines", "bad_files", "make_places", "refused", "said"]

_WORDS = ["", "x", "nan", "inf", "-inf", "1e400", "-1", "1,5", "--", "\N{ROMAN NUMERAL FOUR}", "\udcff", "1 2"]
_WHOLE = [*_WORDS, "0", "1.5", "1e3", "-9" * 9, "9" * 30, "0x10"]
_COUNT = [value for value in _WHOLE if value != "0"]  # of what may be 0
_RATE = [*_WORDS, "0", "1e-400", "-1e-9"]
_FOLDER = ["", "{file}/x", "{file}", "{long}"]
_FILE = ["", "{file}/x", "{folder}", "{long}"]
_DEVICE = ["", "foo", "cuda:99", "meta", "cpu:x", "CPU", "\udcff"]
BAD = {  # command and what it needs: option, values that it cannot have
    ("tokenize", "--source", "{text}", "--out", "{new}", "--tokenizer", "byte", "--no-progress"): {
        "--source": ["", "{missing}", "{file}", "{long}"], "--out": _FOLDER, "--tokenizer": ["", "bert"],
        "--shard-tokens": _WHOLE, "--threads": _WHOLE, "--limit-documents": _WHOLE, "--limit-tokens": _WHOLE},
    ("train", "--data", "{text}", "--out", "{new}", "--tokens", "128", "--context", "32", "--no-progress"): {
        "--preset": ["", "huge", "NANO"], "--architecture": ["", "gpt"], "--variant": ["", "2:2"],
        "--data": ["", "{missing}", "{file}", "{long}"], "--validation": ["", "{missing}", "{file}", "{long}"],
        "--tokenizer": ["", "bert"], "--out": _FOLDER, "--device": _DEVICE, "--precision": ["", "float8"],
        "--compile": ["", "yes"],
        "--model": ["", "window_size", "window_size=0", "wings=2", "vocab_size=9"], "--optimizer": ["", "sgd"],
        **dict.fromkeys(["--tokens", "--corpus-tokens", "--context", "--batch-size",
                         "--micro-batch-size", "--eval-every", "--eval-windows"], _WHOLE),
        **dict.fromkeys(["--minutes", "--learning-rate", "--clip", "--peak-flops", "--timeout"], _RATE),
        **dict.fromkeys(["--warmup", "--final-fraction", "--beta1", "--beta2"], [*_WORDS, "1.5", "-0.1"]),
        "--weight-decay": _WORDS, "--checkpoint-minutes": _WORDS, "--seed": _COUNT},
    ("sample", "--model", "{model}"): {
        "--model": ["", "{missing}", "{file}", "{text}", "{long}"], "--prompt": ["", "\udcff"],
        "--max-new-tokens": [*_COUNT, "1000000000000"], "--temperature": [*_WORDS, "1e-300"], "--top-k": _WHOLE,
        "--top-p": [*_RATE, "1.5"], "--seed": _COUNT, "--gate-length": _WHOLE, "--device": _DEVICE,
        "--precision": ["", "float8"], "--tokenizer": ["", "bert", "{missing}.json"]},
    ("evaluate", "--model", "{model}"): {
        "--model": ["", "{missing}", "{file}", "{text}", "{long}"], "--split": ["", "none"], "--out": _FILE,
        "--prompts": ["", "\udcff"], "--device": _DEVICE,
        **dict.fromkeys(["--data", "--ngrams"], ["", "{missing}", "{file}", "{long}"]),
        **dict.fromkeys(["--context", "--tokens", "--limit", "--batch-size", "--max-length", "--gate-length"],
                        _WHOLE)},
    ("count",): {
        **dict.fromkeys(["--train", "--data"], ["", "{missing}", "{file}", "{long}"]), "--tokenizer": ["", "bert"],
        **dict.fromkeys(["--train-split", "--split"], ["", "none", "all"]), "--out": _FILE,
        **dict.fromkeys(["--longest", "--context", "--tokens"], _WHOLE)},
    ("benchmark", "--rows", "layer"): {
        "--rows": ["", "magic"], "--preset": ["", "huge"], "--against": ["", "gpt"], "--compile": ["", "yes"],
        "--device": _DEVICE, "--out": _FILE,
        **dict.fromkeys(["--lengths", "--contexts", "--tokens", "--repeats"], _WHOLE)},
    ("roofline",): {
        "--preset": ["", "huge"], "--against": ["", "mamba2"], "--compile": ["", "yes"], "--device": _DEVICE,
        "--out": _FILE, **dict.fromkeys(["--lengths", "--tokens", "--repeats"], _WHOLE)},
    ("learn", "--out", "{new}", "--tasks", "recall"): {
        "--out": _FOLDER, "--contenders": ["", "gpt"], "--tasks": ["", "chess"], "--learning-rates": _RATE,
        "--seeds": ["-1", "x", "1.5"], **dict.fromkeys(["--processes", "--steps"], _WHOLE)},
    ("surgery", "--model", "{model}"): {
        "--model": ["", "{missing}", "{file}", "{text}", "{long}"], "--data": ["", "{missing}", "{file}", "{long}"],
        "--split": ["", "none"], "--out": _FILE, "--device": _DEVICE, "--lags": ["-1", "x", "1.5"],
        **dict.fromkeys(["--context", "--windows", "--batch-size"], _WHOLE)},
    ("forms", "--out", "{new}", "--forms", "plain", "--tokens", "1024"): {
        "--out": _FOLDER, "--forms": ["", "plane"], "--learning-rates": _RATE, "--seeds": ["-1", "x", "1.5"],
        **dict.fromkeys(["--tokens", "--context", "--windows", "--processes"], _WHOLE)},
    ("race", "--data", "{text}", "--out", "{new}", "--tokens", "16384"): {
        "--data": ["", "{missing}", "{file}", "{long}"], "--validation": ["", "{missing}", "{file}", "{long}"],
        "--tokenizer": ["", "bert"], "--out": _FOLDER, "--contenders": ["", "gpt", "caracal,llama"],
        "--device": _DEVICE,
        "--precision": ["", "float8"], "--learning-rates": _RATE, "--seeds": _COUNT, "--slowest": _RATE,
        **dict.fromkeys(["--tokens", "--width", "--layers", "--heads", "--context", "--window", "--batch-size",
                         "--measurements", "--eval-windows"], _WHOLE)},
    ("export", "--model", "{model}", "--out", "{new}.pt2", "--length", "9"): {
        "--model": ["", "{missing}", "{file}", "{long}"], "--out": ["", "x.zip", "{file}/x.pt2", "{folder}"],
        **dict.fromkeys(["--length", "--batch", "--gate-length"], _WHOLE)},
    ("info",): {"--preset": ["", "huge"], "--model": ["", "{missing}", "{file}", "{long}"]},
}

def make_places(folder: Path) -> dict[str, object]:
    """Make what the command lines name: a text, a model, a file that is neither, a folder; return them by name."""
    lines = "".join(json.dumps({"text": f"text number {i} " * 20}) + "\n" for i in range(400))
    (folder / "text.jsonl").write_text(lines)
    (folder / "file").write_bytes(bytes(range(256)))
    (folder / "folder.onnx").mkdir()
    torch.manual_seed(0)
    model = Caracal.from_preset("nano")
    model.tokenizer = ByteTokenizer()
    model.save_pretrained(folder / "model")
    return {"text": folder / "text.jsonl", "file": folder / "file", "folder": folder / "folder.onnx",
            "new": folder / "new", "model": folder / "model", "missing": folder / "missing.jsonl", "long": "a" * 300}


def bad_command_lines(places: dict[str, object], pairs: int, seed: int) -> Iterator[list[str]]:
    """Yield every bad value of every option once, then random pairs; whatever is accepted would also start to work."""
    draw = random.Random(seed)
    cases = [(command, ((option, value),)) for command, options in BAD.items() for option, values in options.items()
             for value in values]
    for _ in range(pairs):
        command = draw.choice(list(BAD))
        two = draw.sample(list(BAD[command].items()), 2)
        cases.append((command, tuple((option, draw.choice(values)) for option, values in two)))
    for command, changes in cases:
        given = [word.format(**places) for word in command]
        for option, value in changes:
            value = value.format(**places)
            if option in given:
                place = given.index(option)
                del given[place:place + 2]
            given += [f"{option}={value}"] if draw.random() < 0.3 else [option, value]
        yield given


def bad_files(folder: Path, places: dict[str, object], count: int, seed: int) -> Iterator[tuple[list[str], Path]]:
    """Yield command lines that read a damaged file, and the file; each is as it should be again when the next is asked
    for.

    Checkpoints, weights, configurations, manifests, texts in four formats and task files are cut, replaced by junk,
    overwritten or have a bit flipped, as far as what is left can be no file of the kind.
    """
    draw, kinds = random.Random(seed), _kinds_of_files(folder, places)
    for number in range(count):
        path, command, damages = kinds[number % len(kinds)]
        whole = path.read_bytes()
        path.write_bytes(damages[number // len(kinds) % len(damages)](whole, draw))
        yield [word.format(new=folder / f"new_{number}") for word in command], path
        path.write_bytes(whole)


def _kinds_of_files(folder: Path, places: dict[str, object]) -> list[tuple[Path, list[str], list[Callable]]]:
    """Write one file of each kind; return its path, a command that reads it, and damages that make it unreadable."""
    text, model = Path(places["text"]), Path(places["model"])
    data, run, shards, tasks = text.read_bytes(), folder / "run", folder / "shards", folder / "tasks"
    tasks.mkdir(parents=True)
    for name, packed in (("a.jsonl", data), ("a.jsonl.gz", gzip.compress(data)), ("a.jsonl.xz", lzma.compress(data))):
        (folder / name).write_bytes(packed)
    rows = [json.loads(line) for line in data.splitlines()]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "a.parquet")
    piqa = {"goal": "dresser", "sol1": "a drawer", "sol2": "a pin", "label": 0}
    (tasks / "piqa.jsonl").write_text((json.dumps(piqa) + "\n") * 20)
    copied = shutil.copytree(model, folder / "model")
    tokenize(text, shards, "byte", 20_000, progress=False)
    short = dict(tokens=256, context=32, batch_size=2, micro_batch_size=2, progress=False)
    with Trainer(TrainConfig.for_preset("nano", data=str(text), device="cpu", out=run, **short)) as trainer:
        trainer.run(until=2)
    train = ["train", "--tokens", "256", "--context", "32", "--batch-size", "2", "--micro-batch-size", "2",
             "--no-progress", "--device", "cpu", "--data"]
    read = ["tokenize", "--tokenizer", "byte", "--no-progress", "--out", "{new}", "--source"]
    evaluate = ["evaluate", "--model", str(model), "--data", str(text), "--split", "all", "--tokens", "32",
                "--context", "32", "--tasks", "piqa", "--limit", "20", "--device", "cpu", "--task-data", str(tasks)]
    anything = [_cut, _flip, _overwrite, _junk]
    return [
        (run / "checkpoint.safetensors", [*train, str(text), "--out", str(run)], anything),
        (copied / "model.safetensors", ["info", "--model", str(copied)], anything),
        (copied / "config.json", ["info", "--model", str(copied)], anything),
        (shards / "manifest.json", [*train, str(shards), "--out", "{new}"], anything),
        (folder / "a.jsonl", [*read, str(folder / "a.jsonl")], [_cut_a_line, _overwrite, _junk]),
        (folder / "a.jsonl.gz", [*read, str(folder / "a.jsonl.gz")], [_cut, _flip_after_the_header, _junk]),
        (folder / "a.jsonl.xz", [*read, str(folder / "a.jsonl.xz")], [_cut, _flip, _junk]),
        (folder / "a.parquet", [*read, str(folder / "a.parquet")], [_cut, _junk]),
        (tasks / "piqa.jsonl", evaluate, [_cut_a_line, _overwrite, _junk]),
    ]


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[:draw.randrange(len(data) - 1)]


def _cut_a_line(data: bytes, draw: random.Random) -> bytes:
    while b"\n" in data[(place := draw.randrange(1, len(data) - 1)) - 1:place + 1]:
        pass
    return data[:place]


def _flip(data: bytes, draw: random.Random, first: int = 0) -> bytes:
    place = draw.randrange(first, len(data))
    return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1:]


def _flip_after_the_header(data: bytes, draw: random.Random) -> bytes:
    return _flip(data, draw, 10)  # gzip has no check of its header


def _overwrite(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data) - 8)
    return data[:place] + b"\xff" * 8 + data[place + 8:]


def _junk(data: bytes, draw: random.Random) -> bytes:
    return draw.randbytes(draw.randrange(16, 1000))


def refused(arguments: Sequence[str], word: str = "") -> str:
    """Run a command line here and return what is wrong with its refusal: "" if it ended with status 2 and one line.

    Bars of progress, which come before, are no lines.

    Args:
        word: stands in the line.
    """
    shown = " ".join(map(ascii, arguments))
    try:
        status, text = said(arguments)
    except BaseException as error:
        return f"{shown}: {type(error).__name__}: {error}"
    lines = [line for line in text.split("\n") if line and "\r" not in line]
    held = status == 2 and len(lines) == 1 and lines[0].startswith("error: ") and word in lines[0]
    return "" if held else f"{shown}: status {status}: {text!r}"


def said(arguments: Sequence[str]) -> tuple[int, str]:
    """Run a command line in this process; return its status and what Python and libraries in C wrote to stderr."""
    with tempfile.TemporaryFile() as taken:
        before = os.dup(2)
        os.dup2(taken.fileno(), 2)
        try:
            with open(taken.fileno(), "w", closefd=False, errors="backslashreplace") as stream, \
                    contextlib.redirect_stderr(stream), contextlib.redirect_stdout(io.StringIO()):
                status = (book.main if arguments[:1] and arguments[0] in BOOK else main)(list(arguments))
        finally:
            os.dup2(before, 2)
            os.close(before)
        taken.seek(0)
        return status, taken.read().decode(errors="replace")
