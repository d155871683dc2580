"""The first half hour on a GPU: stages of less than ten minutes, each of which goes on where it was stopped.

    python tools/gpu_runs.py pack     --data packed --text ../shared/data/corpus   # once, where there is text
    python tools/gpu_runs.py check    --out runs/gpu     # is it right there, and what are the rates of the machine?
    python tools/gpu_runs.py tune     --out runs/gpu     # which of several ways is fastest, and what a step is spent on
    python tools/gpu_runs.py measure  --out runs/gpu     # beside Llama, and beside what is counted
    python tools/gpu_runs.py train    --out runs/gpu --data packed     # Tiny, by the fastest way; micro and its twin
    python tools/gpu_runs.py evaluate --out runs/gpu --data packed
    python tools/gpu_runs.py ablate   --out runs/gpu --data packed     # four ablations at equal tokens

But for `pack`, nothing is needed beside PyTorch and what `caracal_min` always needs, and no network; pytest and
transformers are used where they are installed.  A stage is a list of rows, and each row leaves `OUT/ROW.json`: what
came out, with which code, and on which machine.  The same command skips those that are there and goes on with the
others, a training run from its checkpoint.  A row that does not fit into the minutes that are left (`--limit`) waits
for the next call, and one that fails does not stop the others.  `OUT/records.tar.gz` holds all rows, records and logs;
`OUT/micro/bfloat16` holds weights that are small enough to be carried away.  Back home, `tools/add_record.py` takes
the folder, as one record of all rows that measure, and the record of a training run into the book.

`--rehearse` does the same at the size of nano, in seconds and without a GPU.
"""

import argparse
import json
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import torch
from gpu_rows import MARGIN, NANO, STAGES, Plan, Row

from caracal_book.records import code, machine, seal
from caracal_min.data import make_tokenizer, save_tokenizer, tokenize
from caracal_min.files import writing
from caracal_min.precision import find_device
from caracal_min.training import TrainConfig


def pack(plan: Plan, options: argparse.Namespace) -> None:
    """Write the token shards of both sizes, and their tokenizers; without a network, TIKTOKEN_CACHE_DIR has GPT-2's."""
    for name, preset, share in (("tiny", plan.tiny, 0.6), ("micro", plan.micro, 0.4)):
        tokenizer = make_tokenizer(TrainConfig.for_preset(preset).tokenizer)
        tokenize(options.text, options.data / name, tokenizer, limit_tokens=int(options.mib * share * 2**20 / 2),
                 progress=False)
        save_tokenizer(tokenizer, options.data / name / "tokenizer")
    print(f"{options.data} = {sum(file.stat().st_size for file in options.data.rglob('*.*')) / 2**20:.1f} MiB")


def carry_out(rows: Iterator[Row], options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Run the rows that have not left a file; return the names of those that are left and of those that failed."""
    left, failed = [], []
    for row in rows:
        path, seconds_left = options.out / f"{row.name}.json", options.deadline - time.monotonic()
        if path.exists() or options.rows and row.name not in options.rows:
            continue
        if seconds_left < 60 * row.minutes * (not options.rehearse):
            left.append(row.name)
            continue
        print(f"-- {row.name}, {seconds_left / 60:.1f} minutes left", flush=True)
        started = time.monotonic()
        try:
            found = {"row": row.name, "results": row.run(), "seconds": time.monotonic() - started, "code": code(),
                     "machine": machine(torch.device(options.device))}
        except (KeyboardInterrupt, subprocess.TimeoutExpired):  # the time is up: of a run there is a checkpoint
            left.append(row.name)
            if options.deadline - time.monotonic() > MARGIN:  # it was somebody else
                raise
        except Exception:
            traceback.print_exc()
            failed.append(row.name)
        else:
            print(json.dumps(found["results"])[:400], flush=True)
            with writing(path) as file:
                file.write_text(json.dumps(seal(json.loads(json.dumps(found))), indent=1) + "\n")
    return left, failed


def main(given: list[str] | None = None) -> None:
    """Run the rows of a stage that have not left a file, as far as the minutes go."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=("pack", *STAGES))
    for name, default, meaning in (
            ("out", Path("runs/gpu"), "folder of the rows"), ("data", Path("packed"), "folder that pack writes"),
            ("text", "../shared/data/corpus", "what pack reads: a file, or a folder of files"),
            ("mib", 50.0, "room for the shards of both sizes"), ("limit", 9.5, "minutes of this call"),
            ("minutes", Plan.minutes, "of training Tiny"), ("device", "auto", "auto, cpu, cuda, ...")):
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{meaning} (default: {default})")
    parser.add_argument("--rows", nargs="+", default=[], help="names of the rows to run (default: all of the stage)")
    parser.add_argument("--rehearse", action="store_true", help="at the size of nano")
    options = parser.parse_args(given)
    plan = NANO if options.rehearse else Plan(minutes=options.minutes)
    options.deadline = started + 60 * options.limit
    if options.stage == "pack":
        return pack(plan, options)
    options.device = str(find_device(options.device))
    options.out.mkdir(parents=True, exist_ok=True)
    with torch.compiler.set_stance("force_eager") if options.rehearse else nullcontext():  # compiling takes minutes
        left, failed = carry_out(STAGES[options.stage](plan, options), options)
    with writing(options.out / "records.tar.gz") as target, tarfile.open(target, "w:gz") as archive:
        for pattern in ("*.json", "*/record.json", "*/log.jsonl"):
            for file in sorted(options.out.glob(pattern)):
                archive.add(file, file.relative_to(options.out))
    print(f"left, the same command goes on: {', '.join(left) or 'none'}; failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 3 if left else 0)


if __name__ == "__main__":
    main()
