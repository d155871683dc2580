"""The promises of the package under fault, at full size: kills, flipped bits, bad input, a full disk.

    python tools/fault_runs.py                                       # everything
    python tools/fault_runs.py bits_of_models bad_files --count 10   # two of them, in small
    python tools/fault_runs.py --out book/fault_runs.json            # and keep the figures for the book

It prints a table and ends with status 1 if a promise was broken even once.  The file of figures is JSON: for each run
how often it was tried, how often the promise held, the seed, the seconds, and the commit and hash of the code; runs
that are not named stay in it as they were.  `tests/tools/test_fault_runs.py` makes the same runs in small.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from faults import bad_input, bits, interrupted
from tqdm import tqdm

from caracal_book.records import code
from caracal_book.rivals import load_model
from caracal_min.data.shards import ShardedTokens
from caracal_min.data.write_shards import tokenize
from caracal_min.files import writing
from caracal_min.training import TrainConfig, Trainer

KEPT = Path(__file__).resolve().parents[1] / "book" / "fault_runs.json"
"""The figures that the book shows."""


def bad_command_lines(folder: Path, count: int, seed: int) -> Iterator[str]:
    """Command lines that cannot be, each: exit status 2 and one line."""
    cases = list(bad_input.bad_command_lines(bad_input.make_places(folder), pairs=100, seed=seed))
    for arguments in random.Random(seed).sample(cases, min(count, len(cases))):
        yield bad_input.refused(arguments)


def bad_files(folder: Path, count: int, seed: int) -> Iterator[str]:
    """Files that cannot be, of nine kinds, each: exit status 2 and one line that names the file."""
    for arguments, path in bad_input.bad_files(folder / "files", bad_input.make_places(folder), count, seed):
        yield bad_input.refused(arguments, word=path.name)


def bits_of_shards(folder: Path, count: int, seed: int) -> Iterator[str]:
    """One bit flipped in a shard, each: found when its tokens are read."""
    shards = folder / "shards"
    tokenize(bad_input.make_places(folder)["text"], shards, "byte", 20_000, progress=False)
    yield from bits.found(sorted(shards.rglob("*.bin")), lambda: ShardedTokens(shards)[:], count, seed)


def bits_of_checkpoints(folder: Path, count: int, seed: int) -> Iterator[str]:
    """One bit flipped in the only checkpoint of a run, each: found when the run goes on."""
    config = TrainConfig.for_preset("nano", data=str(bad_input.make_places(folder)["text"]), tokens=256, context=32,
                                    batch_size=2, micro_batch_size=2, progress=False, device="cpu",
                                    out=folder / "run")
    with Trainer(config) as trainer:
        trainer.run(until=2)
    yield from bits.found([folder / "run" / "checkpoint.safetensors"], lambda: Trainer(config).close(), count, seed)


def bits_of_models(folder: Path, count: int, seed: int) -> Iterator[str]:
    """One bit flipped in the weights of a model, each: found when it is loaded."""
    model = Path(bad_input.make_places(folder)["model"])
    yield from bits.found([model / "model.safetensors"], lambda: load_model(model), count, seed)


def full_disk_tokenizing(folder: Path, count: int, seed: int) -> Iterator[str]:
    """A disk that fills up at a write of tokenizing, at each: one line, and started again the same shards."""
    kind = interrupted.tokenizing(_text(folder, seed, 2_000), 200_000)
    yield from interrupted.full_at_every_write(kind, folder, count)


def full_disk_training(folder: Path, count: int, seed: int) -> Iterator[str]:
    """A disk that fills up at a write of training, at each: one line, and started again the same model."""
    yield from interrupted.full_at_every_write(interrupted.training(8, _text(folder, seed, 400)), folder, count)


def killed_tokenizing(folder: Path, count: int, seed: int) -> Iterator[str]:
    """SIGKILL at a random moment of tokenizing, each: started again, the same shards."""
    kind = interrupted.tokenizing(_text(folder, seed, 20_000), 200_000)
    yield from interrupted.killed_at_random(kind, folder, count, seed)


def killed_training(folder: Path, count: int, seed: int) -> Iterator[str]:
    """SIGKILL at a random moment of training, each: started again, the same model, checkpoint and curve."""
    yield from interrupted.killed_at_random(interrupted.training(20, _text(folder, seed, 400)), folder, count, seed)


def _text(folder: Path, seed: int, documents: int) -> Path:
    """Write documents of 50 to 200 random words, about 0.7 kB each."""
    draw, path = random.Random(seed), folder / "random.jsonl"
    words = ["causal", "fourier", "window", "gate", "token"]
    with open(path, "w") as file:
        for _ in range(documents):
            print(json.dumps({"text": " ".join(draw.choices(words, k=draw.randrange(50, 200)))}), file=file)
    return path


RUNS: dict[Callable[[Path, int, int], Iterator[str]], int] = {
    bad_command_lines: 500, bad_files: 500, bits_of_shards: 50, bits_of_checkpoints: 50, bits_of_models: 50,
    full_disk_tokenizing: 1000, full_disk_training: 1000, killed_tokenizing: 20, killed_training: 20}
"""Each run, and how often at full size; a disk is filled at as many writes as there are."""


def figures(run: Callable[[Path, int, int], Iterator[str]], count: int, seed: int) -> dict:
    """Make one run in an empty folder and return its figures; what broke is printed."""
    start, answers = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        every = "full_disk" in run.__name__ and count >= RUNS[run]  # how many there are is not known before
        for answer in tqdm(islice(run(Path(folder), count, seed), count), run.__name__, None if every else count):
            answers.append(answer)
            if answer:
                tqdm.write(f"BROKEN: {answer}", sys.stderr)
    return {"what": " ".join(run.__doc__.split()), "tried": len(answers), "held": answers.count(""), "seed": seed,
            "seconds": round(time.monotonic() - start), "code": code()}


def main() -> int:
    """Make the runs, print the table and keep the figures."""
    names = {run.__name__: run for run in RUNS}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"{', '.join(names)} (default: all)")
    parser.add_argument("--count", type=int, help="of cases in each run (default: full size)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file of figures to write, or to bring up to date")
    options = parser.parse_args()
    if unknown := [name for name in options.runs if name not in names]:
        parser.error(f"unknown run {unknown[0]!r}; accepted: {', '.join(names)}")
    if options.count is not None and options.count < 1:
        parser.error(f"--count {options.count}; give a number >= 1")
    os.environ["HF_HUB_OFFLINE"] = "1"
    chosen = {names[name]: options.count or RUNS[names[name]] for name in options.runs or names}
    before = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    took = [before[run.__name__]["seconds"] * min(1, count / before[run.__name__]["tried"]) for run, count in
            chosen.items() if run.__name__ in before]
    if len(took) == len(chosen):
        print(f"The kept runs say: about {sum(took) / 60:.0f} minutes for this.", flush=True)
    found = {}
    for run, count in chosen.items():
        found[run.__name__] = figures(run, count, options.seed)
        if options.out is not None:
            kept = json.loads(options.out.read_text()) if options.out.exists() else {}
            with writing(options.out) as partial:
                partial.write_text(json.dumps(kept | found, indent=1) + "\n")
    for name, entry in found.items():
        print(f"{name:22} {entry['held']:4} of {entry['tried']:4}   {entry['seconds']:5} s   {entry['what']}")
    return int(any(entry["held"] < entry["tried"] for entry in found.values()))


if __name__ == "__main__":
    sys.exit(main())
