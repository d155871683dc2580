"""Every stage runs small on a CPU where only PyTorch is, goes on where it was stopped, and leaves its rows."""

import argparse
import json
import lzma
import subprocess
import sys
import tarfile
import time
from dataclasses import replace

import add_record
import gpu_rows
import gpu_runs
import pytest

from caracal_min.evaluation.losses import held_out_loss
from caracal_min.record import RecordError, read_record, seal
from caracal_min.zoo import load_model

BARE = """
import sys
for name in ("datasets", "jsonschema", "lm_eval", "matplotlib", "pyarrow", "pytest", "tensorboard", "tiktoken",
             "tokenizers", "transformers", "tyro"):
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


def test_rows_of_machine_and_of_ways(bare):
    out, _, _ = bare
    assert all(rate > 1e8 for rate in results(out, "rates").values())
    errors = results(out, "errors")
    for name in gpu_rows.ways.implementations("cpu", 32):
        for dtype, low, high in (("float32", 1e-9, 1e-6), ("bfloat16", 1e-3, 3e-3), ("float16", 1e-4, 4e-4)):
            assert all(low < e < high for e in errors[f"{name}, torch.{dtype}, 32"].values())
    assert "skipped" in results(out, "device_tests")
    for row in ("vocabulary", "convolution_32", "spectra", "loss", "short"):
        assert all(time > 0 for of in results(out, f"tune_{row}").values() for time in of.values())
    steps = {way: time for kind in ("blocks", "no", "model")
             for way, time in results(out, f"tune_step_{kind}")["training step"].items()}
    fastest, tiny = min(steps, key=steps.get), results(out, "tiny")
    assert fastest.startswith(f"compile {tiny['compile']}, ")
    against = {row["against"] for row in results(out, "roofline_32")["rows"]}
    assert against == {"counted at measured rates"} and results(out, "profile_32")["rows"]


def test_runs_and_what_they_are_worth(bare, packed):
    out, _, _ = bare
    for name in ("tiny", "micro", "micro_local", "ablation_default", "ablation_pe"):
        run, record = results(out, name), read_record(out / name / "record.json", require_commit=False)
        assert run["steps"] == record["results"]["steps"] >= 1 and 4 < run["validation_loss"] < 7
        assert run["median_tokens_per_second"] > 0 and run["sample"].startswith("The ")
        found = results(out, f"evaluation_{name}")
        assert found["bits_per_byte"] == pytest.approx(found["loss"] / 0.6931, rel=0.02)  # a byte a token
        assert [*found["loss_by_context_length"]] == ["256", "512", "1024"] and len(found["loss_by_position"]) == 256
        assert ("surgery" in found) == ("ablation" not in name)
    tokens = {variant: results(out, f"ablation_{variant}")["tokens"] for variant in ("default", "no-swa", "sslp", "pe")}
    assert {*tokens.values()} == {1024}
    local = load_model(out / "micro_local" / "bfloat16")
    size = (out / "micro_local" / "bfloat16" / "model.safetensors").stat().st_size
    assert local.config.gate_length == 1 and 2 < size / local.num_parameters() < 2.1
    corpus = gpu_rows._corpus(str(packed / "micro"), str(gpu_rows.HELD_OUT))
    assert abs(held_out_loss(local.float(), corpus.validation[:1025], 256)
               - results(out, "evaluation_micro_local")["loss"]) < 0.02


def test_rows_that_are_there_are_left_out(bare):
    out, _, options = bare
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*.json")}
    for stage in gpu_runs.STAGES:
        with pytest.raises(SystemExit) as ended:
            gpu_runs.main([stage, *map(str, options)])
        assert ended.value.code == 0
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*.json")} == before


def test_a_run_that_meets_the_limit_goes_on(packed, tmp_path, monkeypatch, capsys):
    """With 26 seconds for the call, 25 of which are kept for the checkpoint, it is stopped after one or two."""
    monkeypatch.setattr(gpu_runs, "NANO", replace(gpu_runs.NANO, minutes=0.1))
    options = ["train", "--out", str(tmp_path), "--data", str(packed), "--device", "cpu", "--rehearse"]
    with pytest.raises(SystemExit) as ended:
        gpu_runs.main([*options, "--limit", str(26 / 60)])
    assert ended.value.code == 3 and "left, the same command goes on: tiny" in capsys.readouterr().out
    assert not (tmp_path / "tiny.json").exists()
    stopped = len((tmp_path / "tiny" / "log.jsonl").read_text().splitlines())
    with pytest.raises(SystemExit) as ended:
        gpu_runs.main(options)
    assert ended.value.code == 0 and results(tmp_path, "tiny")["steps"] > stopped >= 1


def test_rows_that_measure_are_one_record(bare, tmp_path):
    out, _, _ = bare
    (tmp_path / "record.json").write_text(json.dumps(add_record.record_of_rows(out)))
    record = read_record(tmp_path / "record.json", require_commit=False)
    found = {row["row"]: row["results"] for row in record["results"]["rows"]}
    assert found["rates"] == results(out, "rates") and "evaluation_tiny" in found and "tiny" not in found
    assert record["seconds"] > 1 and record["machine"]["device"] == "cpu"
    rows = tmp_path / "rows"
    rows.mkdir()
    with pytest.raises(RecordError, match="has no rows of gpu_runs; give the folder that it wrote"):
        add_record.record_of_rows(rows)
    for name in ("rates", "errors"):
        (rows / f"{name}.json").write_bytes((out / f"{name}.json").read_bytes())
    other = json.loads((rows / "errors.json").read_text())
    other["machine"]["device"] = "another"
    (rows / "errors.json").write_text(json.dumps(other))
    with pytest.raises(RecordError, match="rows of several machines or several states of the code: rates"):
        add_record.record_of_rows(rows)


def test_what_does_not_fit_waits_and_what_fails_does_not_stop_the_others(tmp_path, capsys):
    options = argparse.Namespace(out=tmp_path, device="cpu", rehearse=False, deadline=time.monotonic() + 90,
                                          rows=[])
    rows = [gpu_rows.Row("long", 2, dict), gpu_rows.Row("wrong", 1, lambda: 1 / 0), gpu_rows.Row("right", 1, dict)]
    assert gpu_runs.carry_out(iter(rows), options) == (["long"], ["wrong"])
    assert results(tmp_path, "right") == {} and not (tmp_path / "wrong.json").exists()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_somebody_who_interrupts_ends_the_stage(tmp_path):
    def interrupted():
        raise KeyboardInterrupt

    options = argparse.Namespace(out=tmp_path, device="cpu", rehearse=True, deadline=time.monotonic() + 90,
                                          rows=[])
    with pytest.raises(KeyboardInterrupt):
        gpu_runs.carry_out(iter([gpu_rows.Row("one", 1, interrupted)]), options)
