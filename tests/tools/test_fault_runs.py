"""The fault runs, each in small; what breaks a promise is seen; the figures that the book shows are whole."""

import json
import random
import subprocess
import sys

import fault_runs
import pytest
from faults import bad_input, bits, interrupted

COUNTS = {"bad_command_lines": 5, "bad_files": 9, "full_disk_tokenizing": 2, "full_disk_training": 3,
          "killed_tokenizing": 2, "killed_training": 1}


@pytest.mark.parametrize("run", fault_runs.RUNS, ids=lambda run: run.__name__)
def test_every_run_in_small(run, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    count = COUNTS.get(run.__name__, 3)
    found = fault_runs.figures(run, count, seed=1)
    assert (found["tried"], found["held"], found["seed"]) == (count, count, 1)
    assert found["what"].endswith(".") and found["code"]["sha256"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.jsonl"
    path.write_text("".join(json.dumps({"text": f"text number {i} " * 20}) + "\n" for i in range(400)))
    return path


def test_the_disk_fills_up_at_every_write_of_tokenizing_and_no_further(text, tmp_path):
    """Two shards: the bytes and the manifest of each, the manifest of the end."""
    kind = interrupted.tokenizing(text, 100_000)
    assert list(interrupted.full_at_every_write(kind, tmp_path / "runs")) == [""] * 5


def test_a_difference_is_seen(text, tmp_path):
    kind = interrupted.training(4, text)
    assert interrupted.run(kind.command(tmp_path / "run")) == (0, "")
    before = kind.results(tmp_path / "run")
    assert {"model.safetensors", "config.json", "log.jsonl", "random.cpu"} < before.keys() and len(before) > 50
    log = tmp_path / "run" / "log.jsonl"
    log.write_text(log.read_text().replace('"loss": ', '"loss": 1', 1))
    said = interrupted._difference(tmp_path, kind.results(tmp_path / "run"), before)
    assert said == f"{tmp_path}: other than undisturbed: log.jsonl"


def test_a_command_that_fails_undisturbed_is_no_case(tmp_path):
    kind = interrupted.tokenizing(tmp_path / "missing.jsonl", 1000)
    with pytest.raises(RuntimeError, match="ended with status 2: error: no file"):
        next(interrupted.killed_at_random(kind, tmp_path / "runs", 1, seed=0))


def test_a_bit_that_is_not_found_is_named(tmp_path):
    path, read = tmp_path / "numbers", []
    path.write_bytes(bytes(100))
    answers = list(bits.found([path], lambda: read.append(path.read_bytes()), 8, seed=0))
    assert all(answer.endswith(f"of {path}: 'it was read'") for answer in answers) and len(answers) == 8
    assert all(sum(byte.bit_count() for byte in data) == 1 for data in read) and len(set(read)) > 1
    assert path.read_bytes() == bytes(100)


@pytest.mark.parametrize("status, text, held", [
    (2, "error: no file x\n", True), (2, "\rreading x:  5%\nerror: no file x\n", True),
    (1, "error: no file x\n", False), (2, "Traceback\nerror: no file x\n", False),
    (2, "error: no file\n", False), (2, "", False),
])
def test_what_counts_as_one_line(status, text, held, monkeypatch):
    monkeypatch.setattr(bad_input, "said", lambda arguments: (status, text))
    assert (bad_input.refused(["train"], word="x") == "") is held


def test_what_libraries_write_past_python_counts_too(monkeypatch):
    code = "import os, sys; os.write(2, b'from C\\n'); print('from Python', file=sys.stderr)"
    monkeypatch.setattr(bad_input, "main", lambda arguments: exec(code) or 2)
    status, text = bad_input.said([])
    assert status == 2 and sorted(text.splitlines()) == ["from C", "from Python"]


def test_damaged_files_are_damaged_and_whole_again(tmp_path):
    places, seen = bad_input.make_places(tmp_path), set()
    for arguments, path in bad_input.bad_files(tmp_path / "files", places, 36, seed=0):
        if path not in seen:
            whole = {path: path.read_bytes() for path in (tmp_path / "files").rglob("*") if path.is_file()}
            seen.add(path)
        assert any(str(path.parent) in argument for argument in arguments)
    assert len(seen) == 9 and all(path.read_bytes() == data for path, data in whole.items() if path not in seen)
    draw = random.Random(0)
    for damage in (bad_input._cut, bad_input._flip, bad_input._flip_after_the_header, bad_input._overwrite,
                   bad_input._junk, bad_input._cut_a_line):
        assert all(damage(data := draw.randbytes(50) + b"\n", draw) != data for _ in range(200))


@pytest.mark.parametrize("options, says", [(["fly"], "unknown run 'fly'; accepted: bad_command_lines, "),
                                           (["--count", "0"], "--count 0; give a number >= 1")])
def test_other_runs_are_refused(root, options, says):
    done = subprocess.run([sys.executable, root / "tools" / "fault_runs.py", *options], capture_output=True, text=True)
    assert done.returncode == 2 and says in done.stderr


def test_the_command_keeps_the_figures_of_other_runs(tmp_path, monkeypatch, capsys):
    out = tmp_path / "figures.json"
    out.write_text('{"another": {"tried": 1}}')
    monkeypatch.setattr(sys, "argv", ["fault_runs.py", "bits_of_models", "--count", "2", "--out", str(out)])
    assert fault_runs.main() == 0
    kept = json.loads(out.read_text())
    assert list(kept) == ["another", "bits_of_models"] and kept["bits_of_models"]["held"] == 2
    assert "bits_of_models            2 of    2" in capsys.readouterr().out
    monkeypatch.setattr(fault_runs.bits, "found", lambda *_: iter(["", "it was read"]))
    assert fault_runs.main() == 1


def test_the_figures_of_the_book_are_those_of_whole_runs():
    kept = json.loads(fault_runs.KEPT.read_text())
    assert kept.keys() == {run.__name__ for run in fault_runs.RUNS}
    for run, full in fault_runs.RUNS.items():
        entry = kept[run.__name__]
        assert entry["held"] == entry["tried"] and entry["what"] == " ".join(run.__doc__.split())
        assert entry["tried"] == full or "full_disk" in run.__name__ and entry["tried"] > 5
        assert entry["code"]["commit"] and entry["code"]["clean"]
