"""All rows run small on a CPU, on a machine that has little but PyTorch, and what comes back is small enough."""

import json
import lzma
import subprocess
import sys

import add_record
import gpu
import pytest
import torch

from caracal_book.records import RecordError, read_record

BARE = """
import sys
for name in ("datasets", "jsonschema", "lm_eval", "matplotlib", "pyarrow", "pytest", "tyro"):
    sys.modules[name] = None  # as if it were not installed
import gpu
gpu.main(sys.argv[1:])
"""
MEASURING = [row.name for row in gpu.measurements(gpu.NANO, "cpu")]


@pytest.fixture(scope="module")
def out(root, shared_data, tmp_path_factory):
    """What comes back of all rows."""
    folder = tmp_path_factory.mktemp("gpu")
    with lzma.open(shared_data / "corpus" / "fineweb-legal-sample.jsonl.xz", "rt", encoding="utf-8") as source, \
            lzma.open(folder / "text.jsonl.xz", "wt", encoding="utf-8") as target:
        target.writelines(line for line, _ in zip(source, range(60), strict=False))
    options = ["--rehearse", "--device", "cpu", "--data", folder / "packed", "--out", folder / "out", "--runs", folder]
    gpu.main([*map(str, options), "--pack", str(folder / "text.jsonl.xz"), "--pack-tokens", "40000"])
    rows = ["--rows", *MEASURING, "caracal", "llama"]
    done = subprocess.run([sys.executable, "-c", BARE, *options, "--minutes", "0.05", *rows], capture_output=True,
                          text=True, cwd=root / "tools")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out"


@pytest.mark.process
@pytest.mark.slow
def test_every_row_is_there_and_few_small_files_come_back(out, tmp_path):
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    assert [row["row"] for row in rows] == [*MEASURING, "caracal", "llama"]
    assert not [row for row in rows if "failed" in row["results"]]
    assert {file.name for file in out.iterdir()} == {"rows.jsonl", "caracal.json", "llama.json", "weights.0"}
    weights = torch.load(out / "weights.0")
    values, scales = weights["embedding.weight"]
    assert values.dtype == torch.int8 and len(scales) == len(values)
    assert read_record(out / "llama.json", require_commit=False)["results"]["steps"] == 4
    results = {row["row"]: row["results"] for row in rows}
    assert max(max(found) for found in results["errors"]["FFT"].values()) < 1e-2
    assert results["caracal"]["surgery"] and not results["llama"]["surgery"]
    (tmp_path / "record.json").write_text(json.dumps(add_record.record_of_rows(out / "rows.jsonl")))
    record = read_record(tmp_path / "record.json", require_commit=False)
    assert {row["row"]: row["results"] for row in record["results"]["rows"]} == results


def test_a_failed_row_leaves_its_error_and_a_long_one_is_skipped(tmp_path, capsys):
    options = type("Options", (), {"limit": 9.0, "out": tmp_path, "device": "cpu"})
    rows = [gpu.Row("broken", 1, lambda: 1 / 0), gpu.Row("long", 10, dict), gpu.Row("good", 1, dict)]
    gpu.carry_out(rows, options)
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == ["broken", "good"]
    assert "ZeroDivisionError" in lines[0]["results"]["failed"] and "long needs 10 s" in capsys.readouterr().out
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write(json.dumps(lines[0] | {"machine": {}}) + "\n")
    with pytest.raises(RecordError, match="rows of several machines"):
        add_record.record_of_rows(tmp_path / "rows.jsonl")
