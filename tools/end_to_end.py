"""From FineWeb to the scores of the paper's tasks, small enough for a CPU: the whole path in one script.

    python tools/end_to_end.py --data ../shared/data --out runs/end_to_end --minutes 3

Real FineWeb text is tokenized, a nano model with GPT-2's vocabulary is trained on it, killed without warning on the
way and resumed, then evaluated on the paper's eight tasks.  Every step is a command of `python -m caracal_min`, run as
a user would; the folder holds what they leave: shards, logs, the model, and a record of training and of evaluation.

The folder of the data has corpus/ (jsonl.xz files of FineWeb), evals/ (the tasks) and gpt2_bpe/ (GPT-2's vocabulary,
for machines that cannot download it).
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from caracal_book import runs
from caracal_book.numbers.table2 import COLUMNS
from caracal_book.records import read_record

_BPE = {"vocab.bpe": "6d1cbeee0f20b3d9449abfede4726ed8212e3aee",
        "encoder.json": "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6"}  # the names that tiktoken caches them under


def command(*arguments: object) -> list[str]:
    """Return a command of the package, as a list for `subprocess`."""
    return [sys.executable, "-m", "caracal_min", *map(str, arguments)]


def run(*arguments: object) -> None:
    """Show a command and run it; an error ends the script."""
    print("\n$ python -m caracal_min", *arguments, flush=True)
    if code := subprocess.run(command(*arguments)).returncode:
        sys.exit(code)


def killed(step: int, log: Path, *arguments: object) -> int:
    """Start a command, kill it without warning when its log has reached a step, and return the steps logged."""
    print("\n$ python -m caracal_min", *arguments, f"   # killed after step {step}", flush=True)
    process = subprocess.Popen(command(*arguments))
    while len(steps(log)) < step:
        if process.poll() is not None:
            sys.exit(f"the run ended by itself before step {step}: give it more minutes or tokens")
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return len(steps(log))


def steps(log: Path) -> list[dict]:
    """Return the entries of a log; the last line of a killed process may be half a line."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def offline_tokenizer(source: Path, cache: Path) -> None:
    """Put GPT-2's files where tiktoken looks for them."""
    cache.mkdir(parents=True, exist_ok=True)
    for name, hashed in _BPE.items():
        shutil.copy(source / name, cache / hashed)
    os.environ["TIKTOKEN_CACHE_DIR"] = str(cache)


def main() -> None:
    """Run all steps, then say what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/end_to_end"))
    parser.add_argument("--minutes", type=float, default=3.0, help="of training (default: 3)")
    parser.add_argument("--tokens", type=int, default=10**9, help="to train on, if the minutes allow (default: 10**9)")
    parser.add_argument("--measured", type=int, default=2**15, help="tokens to measure losses on (default: 2**15)")
    parser.add_argument("--items", type=int, default=50, help="per task (default: 50)")
    options = parser.parse_args()
    if options.out.exists():
        sys.exit(f"error: {options.out} exists; give another folder, or remove it")
    corpus, out = options.data / "corpus", options.out
    offline_tokenizer(options.data / "gpt2_bpe", out / "tokenizer")

    for name, source in (("train", "fineweb-legal-sample"), ("validation", "fineweb-validation")):
        run("tokenize", "--source", corpus / f"{source}.jsonl.xz", "--out", out / name)
    train = ("train", "--preset", "nano", "--tokenizer", "gpt2", "--data", out / "train", "--validation",
             out / "validation", "--minutes", options.minutes, "--tokens", options.tokens, "--checkpoint-minutes", 0,
             "--eval-every", 50, "--eval-windows", 32, "--prompt", "The court", "--out", out / "run")
    log = out / "run" / "log.jsonl"
    seen = killed(7, log, *train)
    before = steps(log)[:5]
    run(*train)
    run("evaluate", "--model", out / "run" / "model", "--data", out / "validation", "--split", "all", "--context", 256,
        "--tokens", options.measured, "--tasks", "all", "--task-data", options.data / "evals", "--limit", options.items,
        "--out", out / "evaluation.json")

    trained, evaluated = (read_record(out / name, require_commit=False)
                          for name in ("run/record.json", "evaluation.json"))
    curve = trained["results"]["curve"]
    assert [entry["loss"] for entry in steps(log)[:5]] == [entry["loss"] for entry in before], "not the same curve"
    assert trained["results"]["model_sha256"] == evaluated["results"]["model_sha256"], "not the same model"
    assert set(evaluated["results"]["table2"]["tasks"]) == {task for task, _ in COLUMNS.values()}, "not all tasks"
    measured = [entry["validation_loss"] for entry in curve if "validation_loss" in entry]
    assert measured[-1] < curve[0]["loss"] - 1.5, "it did not learn"
    print(f"\n{runs.describe(trained)}\nkilled after step {seen}, resumed, finished at step {curve[-1]['step']}")
    print(f"training loss {curve[0]['loss']:.2f} to {curve[-1]['loss']:.2f}, held-out loss {measured[-1]:.3f} nats per "
          f"token; by context length {evaluated['results']['loss_by_context_length']}")
    print(f"records: {out / 'run' / 'record.json'}, {out / 'evaluation.json'}")


if __name__ == "__main__":
    main()
