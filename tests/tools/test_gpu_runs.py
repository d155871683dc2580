"""The commands of the GPU runs are taken by the command line, and every stage runs small on a CPU."""

import lzma
import shlex
import shutil
import subprocess
import sys

import pytest

from caracal_min.data.write_shards import tokenize
from caracal_min.record import read_record


@pytest.fixture(scope="module")
def data(shared_data, tmp_path_factory):
    """A little of the real text, and the tasks."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "corpus").mkdir()
    for name, count in (("fineweb-legal-sample", 60), ("fineweb-validation", 20)):
        with lzma.open(shared_data / "corpus" / f"{name}.jsonl.xz", "rt", encoding="utf-8") as source, \
                lzma.open(folder / "corpus" / f"{name}.jsonl.xz", "wt", encoding="utf-8") as target:
            target.writelines(line for line, _ in zip(source, range(count), strict=False))
    for name in ("evals", "gpt2_bpe"):
        shutil.copytree(shared_data / name, folder / name)
    return folder


def stage(root, name, out, *options):
    done = subprocess.run([sys.executable, root / "tools" / "gpu_runs.py", name, "--out", out, "--preset", "nano",
                           *map(str, options)], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("$ ")]


def test_measuring(root, tmp_path):
    small = ("--", "--device", "cpu", "--compile", "no", "--tokens", 64, "--repeats", 1, "--contexts", 40,
             "--lengths", 32)
    assert len(stage(root, "measure", tmp_path, *small)) == 2
    rivals = {row["against"] for row in read_record(tmp_path / "throughput.json", False)["results"]["rows"]}
    assert rivals == {"llama, SDPA", "mamba2", "no-swa"}
    assert read_record(tmp_path / "benchmark.json", False)["kind"] == "benchmark"
    assert stage(root, "measure", tmp_path, *small) == []  # both records exist


def test_training_evaluating_and_ablations(root, data, tmp_path):
    more = ("--", "--device", "cpu", "--compile", "no", "--context", 32, "--batch-size", 4, "--micro-batch-size", 4,
            "--eval-windows", 2)
    assert len(stage(root, "train", tmp_path, "--data", data, "--minutes", 0.05, *more)) == 3
    trained = read_record(tmp_path / "run" / "record.json", False)
    assert trained["data"]["validation_tokens"] > 1000 and trained["results"]["steps"] >= 1
    stage(root, "evaluate", tmp_path, "--data", data, "--limit", 2, "--", "--device", "cpu", "--tokens", 1024)
    evaluated = read_record(tmp_path / "evaluation.json", False)["results"]
    assert evaluated["model_sha256"] == trained["results"]["model_sha256"] and len(evaluated["table2"]["tasks"]) == 8


def test_ablations(root, data, tmp_path):
    """Every row of the paper's tables, twice; one of the commands is run, and is left out from then on."""
    options = ("--show", "--data", data, "--tokens", 256, "--", "--device", "cpu", "--compile", "no", "--context", 32,
               "--batch-size", 4, "--micro-batch-size", 4, "--eval-windows", 2)
    for name in ("train", "validation"):
        tokenize(data / "corpus" / {"train": "fineweb-legal-sample.jsonl.xz",
                                    "validation": "fineweb-validation.jsonl.xz"}[name], tmp_path / name, "byte",
                 progress=False)
    shown = [shlex.split(line) for line in stage(root, "ablate", tmp_path, *options)]
    runs = [line[4:] for line in shown if line[4] == "train"]
    assert {(run[run.index("--variant") + 1], run[run.index("--seed") + 1]) for run in runs} == {
        (variant, seed) for seed in "01"
        for variant in ("default", "no-swa", "no-swa-no-pc", "pe", "sslp", "5:1", "3:1", "1:1")}
    run = next(run for run in runs if "5:1" in run)
    done = subprocess.run([sys.executable, "-m", "caracal_min", *run, "--tokenizer", "byte"], capture_output=True,
                          text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    record = read_record(tmp_path / "ablations" / "5-1_0" / "record.json", False)
    assert record["config"]["variant"] == "5:1" and record["results"]["tokens"] == 256
    assert "validation_loss" in record["results"]["curve"][-1]
    left = stage(root, "ablate", tmp_path, *options)
    assert len([line for line in left if shlex.split(line)[4] == "train"]) == 15 == len(runs) - 1
