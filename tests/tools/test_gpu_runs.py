"""Every stage runs small on a CPU where only PyTorch is, goes on where it was stopped, and leaves its rows."""

import json
import lzma
import subprocess
import sys
import tarfile

import add_record
import gpu_runs
import pytest

from caracal_book.records import read_record, seal

pytestmark = [pytest.mark.process, pytest.mark.slow]
BARE = """
import sys
for name in ("datasets", "jsonschema", "lm_eval", "matplotlib", "pyarrow", "pytest",
             "transformers", "tyro"):
    sys.modules[name] = None  # as if it were not installed
import gpu_runs
for stage in (*gpu_runs.STAGES, "evaluate"):  # then of the ablations
    try:
        gpu_runs.main([stage, *sys.argv[1:]])
    except SystemExit as end:
        print("exit status of", stage, end.code)
"""


@pytest.fixture(scope="module")
def packed(shared_data, tmp_path_factory):
    """A little FineWeb, as shards that are carried to the machine."""
    folder = tmp_path_factory.mktemp("data")
    with lzma.open(shared_data / "corpus" / "fineweb-legal-sample.jsonl.xz", "rt", encoding="utf-8") as source, \
            lzma.open(folder / "text.jsonl.xz", "wt", encoding="utf-8") as target:
        target.writelines(line for line, _ in zip(source, range(60), strict=False))
    gpu_runs.main(["pack", "--data", str(folder / "packed"), "--text", str(folder / "text.jsonl.xz"), "--mib", "0.4",
                   "--rehearse"])
    size = sum(file.stat().st_size for file in (folder / "packed").rglob("*") if file.is_file())
    assert 0.3 * 2**20 < size < 0.5 * 2**20
    return folder / "packed"


@pytest.fixture(scope="module")
def bare(root, packed, tmp_path_factory):
    """All stages, one after the other, on a machine that has nothing but PyTorch: their folder, what they printed."""
    out = tmp_path_factory.mktemp("runs")
    options = ("--out", out, "--data", packed, "--device", "cpu", "--rehearse")
    done = subprocess.run([sys.executable, "-c", BARE, *options], capture_output=True, text=True, cwd=root / "tools")
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done.stdout, options


def results(out, row):
    record = json.loads((out / f"{row}.json").read_text())
    assert record == seal(record) and record["row"] == row and record["seconds"] > 0
    assert record["machine"]["device"] == "cpu" and record["code"]["sha256"]
    return record["results"]


def test_every_stage_ends_on_a_bare_machine(bare):
    out, printed, _ = bare
    assert [line for line in printed.splitlines() if line.startswith("exit")] == [
        f"exit status of {stage} 0" for stage in (*gpu_runs.STAGES, "evaluate")], printed
    with tarfile.open(out / "records.tar.gz") as archive:
        names = archive.getnames()
    assert {file.name for file in out.glob("*.json")} | {"tiny/record.json", "tiny/log.jsonl"} <= {*names}
    assert not [name for name in names if "safetensors" in name]


def test_rows_that_are_there_are_left_out(bare):
    out, _, options = bare
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*.json")}
    for stage in gpu_runs.STAGES:
        with pytest.raises(SystemExit) as ended:
            gpu_runs.main([stage, *map(str, options)])
        assert ended.value.code == 0
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*.json")} == before


def test_rows_that_measure_are_one_record(bare, tmp_path):
    out, _, _ = bare
    (tmp_path / "record.json").write_text(json.dumps(add_record.record_of_rows(out)))
    record = read_record(tmp_path / "record.json", require_commit=False)
    found = {row["row"]: row["results"] for row in record["results"]["rows"]}
    assert found["rates"] == results(out, "rates") and "evaluation_tiny" in found and "tiny" not in found
