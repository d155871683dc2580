"""The runs that are recorded on a GPU: each is a command of the package, and a stage is a list of them.

    python tools/gpu_runs.py measure  --out runs/gpu                     # speed and memory, beside other models
    python tools/gpu_runs.py train    --out runs/gpu --data ../shared/data --minutes 10
    python tools/gpu_runs.py evaluate --out runs/gpu --data ../shared/data
    python tools/gpu_runs.py ablate   --out runs/gpu --tokens 20_000_000

Before them: `pytest tests/unit/test_devices.py`, which runs its tests on the GPU too.  A stage that is started again
goes on where it was stopped: commands whose record exists are left out, and training continues from its checkpoint.
Then `python tools/add_record.py runs/gpu/... NAME` takes each record into the package.

Training text is whatever corpus/*.jsonl.xz the data folder has, but for the file named *validation*, which is held
out; the folder also has evals/ (the tasks) and gpt2_bpe/ (GPT-2's vocabulary).  What stands after `--` goes to every
command but `tokenize`, as in `-- --device cpu`.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from end_to_end import offline_tokenizer, run

from caracal_min.zoo import VARIANTS

SEEDS = (0, 1)


def measure(options: argparse.Namespace) -> Iterator[tuple]:
    """Speed and memory of every part, then whole steps beside other models at one number of tokens a batch."""
    shared = ("benchmark", "--preset", options.preset, "--tokens", 32768, "--rows")
    yield (*shared, "convolution", "layer", "training", "profile", "mixer", "generation", *options.more,
           "--out", options.out / "benchmark.json")
    yield (*shared, "throughput", "--against", "llama", "mamba2", "no-swa", "--lengths", 256, 512, 1024, 2048, 4096,
           8192, *options.more, "--out", options.out / "throughput.json")


def train(options: argparse.Namespace) -> Iterator[tuple]:
    """One model, for a number of minutes, on all text there is."""
    yield from _tokenize(options)
    yield ("train", *_recipe(options), "--minutes", options.minutes, "--prompt", "The ",
           "--out", options.out / "run")


def evaluate(options: argparse.Namespace) -> Iterator[tuple]:
    """That model: losses by position and length on held-out FineWeb, and every task whole."""
    yield ("evaluate", "--model", options.out / "run" / "model", "--data", options.out / "validation", "--split",
           "all", "--tasks", "all", "--task-data", options.data / "evals", "--batch-size", 64, *options.more,
           *(("--limit", options.limit) if options.limit else ()), "--out", options.out / "evaluation.json")


def ablate(options: argparse.Namespace) -> Iterator[tuple]:
    """Every row of the paper's ablations and ratios, for the same number of tokens, with two seeds."""
    yield from _tokenize(options)
    for seed in SEEDS:
        for variant in (name for name in VARIANTS if name != "2:1"):  # the default
            yield ("train", *_recipe(options), "--variant", variant, "--seed", seed, "--tokens", options.tokens,
                   "--out", options.out / "ablations" / f"{variant.replace(':', '-')}_{seed}")


def _recipe(options: argparse.Namespace) -> tuple:
    return ("--preset", options.preset, "--tokenizer", "gpt2", "--data", options.out / "train", "--validation",
            options.out / "validation", "--compile", "blocks", "--no-progress", *options.more)


def _tokenize(options: argparse.Namespace) -> Iterator[tuple]:
    files = sorted((options.data / "corpus").glob("*.jsonl.xz"))
    for name in ("train", "validation"):
        chosen = options.out / f"{name}_text"
        chosen.mkdir(parents=True, exist_ok=True)
        for file in files:
            link = chosen / file.name
            if ("validation" in file.name) == (name == "validation") and not link.exists():
                link.symlink_to(file.resolve())
        yield ("tokenize", "--source", chosen, "--out", options.out / name)


STAGES = {stage.__name__: stage for stage in (measure, train, evaluate, ablate)}


def done(command: tuple) -> bool:
    """Say whether the record that a command writes exists."""
    out = Path(command[command.index("--out") + 1])
    return (out if out.suffix == ".json" else out / "record.json").exists()


def main() -> None:
    """Run the commands of a stage that are not done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--minutes", type=float, default=10.0, help="of training (default: 10)")
    parser.add_argument("--tokens", type=int, default=20_000_000, help="per ablation (default: 20 million)")
    parser.add_argument("--limit", type=int, help="items per task (default: all)")
    parser.add_argument("--show", action="store_true", help="print the commands that are left, run none")
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:end], argparse.Namespace(more=tuple(given[end + 1:])))
    if options.stage != "measure":
        offline_tokenizer(options.data / "gpt2_bpe", options.out / "tokenizer")
    for command in STAGES[options.stage](options):
        if done(command):
            continue
        if options.show:
            print("$ python -m caracal_min", *command)
        else:
            run(*command)


if __name__ == "__main__":
    main()
