"""The folder of a run: one process at a time, a record written once, a log that fits its checkpoint, a full disk."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from faults.interrupted import files_no_larger_than
from small_run import config, corpus, files, kill_after, losses

from caracal_min import record as records
from caracal_min.files import file_sha256
from caracal_min.record import read_record
from caracal_min.training import DivergedError, Trainer
from caracal_min.training.folder import RunFolder, RunInUseError

HOLD = """
import sys, time
from pathlib import Path
from caracal_min.training.folder import RunFolder
held = RunFolder(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def another_process(folder):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def finished(tmp_path):
    with Trainer(config(tmp_path / "run"), corpus()) as trainer:
        trainer.run()
    return tmp_path / "run"


@pytest.fixture
def stopped(tmp_path):
    kill_after(Trainer(config(tmp_path / "run"), corpus()), 9, checkpoints=[4, 8])
    return tmp_path / "run"


def test_a_second_process_is_refused_until_the_first_has_ended_however_it_ends(tmp_path):
    out = tmp_path / "run"
    with another_process(out) as process:
        before = files(out)
        for _ in range(2):
            with pytest.raises(RunInUseError, match="is in use by another process; wait until it has ended") as caught:
                Trainer(config(out), corpus())
            assert "\n" not in str(caught.value)
        assert files(out) == before
        process.kill()
        process.wait()
        with Trainer(config(out), corpus()) as trainer:
            trainer.run(until=1)


def test_a_folder_is_free_again_when_its_trainer_is_closed_or_gone(tmp_path):
    for end in ("close", "gone"):
        trainer = Trainer(config(tmp_path / end), corpus())
        if end == "close":
            trainer.close()
        del trainer
        with another_process(tmp_path / end):
            pass


def test_a_trainer_that_could_not_be_built_holds_nothing(tmp_path):
    with pytest.raises(ValueError, match="fewer than batch_size"):
        Trainer(config(tmp_path / "run", context=5000), corpus())
    with another_process(tmp_path / "run"):
        pass


def test_within_a_process_the_later_run_has_the_folder(tmp_path):
    first = Trainer(config(tmp_path), corpus())
    first.run(until=4)
    second = Trainer(config(tmp_path), corpus())
    before = files(tmp_path)
    with pytest.raises(RunInUseError, match="taken over by a later run of this process"):
        first.run()
    first.close()
    assert files(tmp_path) == before
    with pytest.raises(subprocess.CalledProcessError):  # still held, by the second
        subprocess.run([sys.executable, "-c", HOLD, str(tmp_path)], check=True, capture_output=True)
    second.run()
    assert second.finished


def test_a_finished_run_is_left_as_it_is(finished, monkeypatch):
    before = files(finished)
    monkeypatch.setattr(records, "__version__", "9.9.9")
    records.code.cache_clear()
    try:
        with Trainer(config(finished, device="auto"), corpus()) as trainer:
            assert trainer.finished and len(trainer.run()) == 12 and trainer.run() == trainer.log
    finally:
        records.code.cache_clear()
    assert files(finished) == before


def test_a_resumed_run_names_every_process_that_took_part(stopped, monkeypatch):
    monkeypatch.setattr(records, "__version__", "9.9.9")
    records.code.cache_clear()
    try:
        with Trainer(config(stopped), corpus()) as trainer:
            trainer.run()
    finally:
        records.code.cache_clear()
    record = read_record(stopped / "record.json", require_commit=False)
    assert [(part["from_step"], part["code"]["version"]) for part in record["parts"]] == [(0, "0.1.0"), (8, "9.9.9")]
    assert all(part["code"]["sha256"] and part["machines"][0]["versions"]["torch"] for part in record["parts"])
    assert record["code"] == record["parts"][-1]["code"]


def test_a_kill_before_the_record_is_made_up_for(finished):
    record = read_record(finished / "record.json", require_commit=False)
    (finished / "record.json").unlink()
    shutil.rmtree(finished / "model")
    with Trainer(config(finished), corpus()) as trainer:
        trainer.run()
    again = read_record(finished / "record.json", require_commit=False)
    assert again["results"] == record["results"] and [part["from_step"] for part in again["parts"]] == [0, 12]
    assert file_sha256(finished / "model" / "model.safetensors") == record["results"]["model_sha256"]


def test_a_record_without_the_end_of_its_run_is_not_trained_over(finished):
    before = files(finished)
    (finished / "checkpoint.safetensors").unlink()
    with pytest.raises(ValueError, match="the record of a finished run, but no checkpoint of its end"):
        Trainer(config(finished), corpus())
    assert files(finished) == {k: v for k, v in before.items() if k.name != "checkpoint.safetensors"}


LINE = b'{"step": 3, "tokens": 1, "loss": 1.0, "learning_rate": 1.0, "seconds": 1.0}\n'


@pytest.mark.parametrize("damage", [
    lambda lines: b"".join(lines[:5]), lambda lines: None, lambda lines: b"", lambda lines: b"\xff" * 100,
    lambda lines: b"".join(lines[:2]) + b'{"step": 3}\n' + b"".join(lines[3:]),
    lambda lines: b"".join(lines[:2]) + LINE + b"".join(lines[3:]),
    lambda lines: b"".join(lines).replace(b'"loss": ', b'"loss": 1', 1),
], ids=["shortened", "missing", "empty", "no text", "a line cut", "a line changed", "a digit"])
def test_a_log_that_was_damaged_is_written_anew_from_the_checkpoint(stopped, capsys, damage):
    path = stopped / "log.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    left = damage(lines)
    path.unlink() if left is None else path.write_bytes(left)
    with Trainer(config(stopped), corpus()) as trainer:
        said = capsys.readouterr().out
        assert said == f"{path} did not hold the 8 steps of the checkpoint; written anew from it\n"
        assert path.read_bytes() == b"".join(lines[:8])
        trainer.run()
    record = read_record(stopped / "record.json", require_commit=False)
    assert [entry["step"] for entry in record["results"]["curve"]] == list(range(1, 13))


def test_a_log_that_only_went_further_is_cut_without_a_word(stopped, capsys):
    with Trainer(config(stopped), corpus()):
        assert capsys.readouterr().out == ""
        assert len((stopped / "log.jsonl").read_bytes().splitlines()) == 8


def test_a_log_takes_finite_numbers_only(tmp_path):
    with Trainer(config(tmp_path), corpus()) as trainer:
        with pytest.raises(ValueError, match="Out of range float"):
            trainer._log.add({"step": 1, "loss": float("nan")})
        assert not (tmp_path / "log.jsonl").exists() and trainer.log == []


@pytest.mark.parametrize("size", [0, 1000, 1_000_000])
def test_a_disk_that_fills_up_leaves_what_was_there_and_one_line(stopped, size):
    """At the log, at the checkpoint: whatever does not fit, the run goes on from the same place later."""
    before = files(stopped)
    with Trainer(config(stopped), corpus()) as trainer, files_no_larger_than(size):
        with pytest.raises(OSError, match="could not be written .*make room") as caught:
            trainer.run()
        assert "\n" not in str(caught.value)
    kept = {path: data for path, data in files(stopped).items() if path.name.startswith("checkpoint")}
    assert kept == {path: data for path, data in before.items() if path.name.startswith("checkpoint")}
    with Trainer(config(stopped), corpus()) as trainer:
        curve = losses(trainer.run())
    assert curve == losses(Trainer(config(), corpus()).run())


def test_a_disk_that_fills_up_at_the_end_leaves_a_run_that_can_be_ended(tmp_path):
    """The last checkpoint fits, model and record do not."""
    with Trainer(config(tmp_path), corpus()) as trainer:
        trainer.run(until=11)
        save = trainer.model.save_pretrained

        def on_a_full_disk(folder):
            with files_no_larger_than(1000):
                save(folder)

        trainer.model.save_pretrained = on_a_full_disk
        with pytest.raises(OSError, match="model could not be written"):
            trainer.run()
    assert not (tmp_path / "record.json").exists()
    with Trainer(config(tmp_path), corpus()) as trainer:
        trainer.run()
    assert read_record(tmp_path / "record.json", require_commit=False)["results"]["steps"] == 12


def test_too_little_room_is_found_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**7))
    with pytest.raises(OSError, match="10 MB free, the run needs 51 MB for two checkpoints"):
        Trainer(config(tmp_path), corpus())
    left = tmp_path / "checkpoint.safetensors.partial"  # by a kill: the next save writes over it
    left.touch()
    os.truncate(left, 45 * 10**6)
    Trainer(config(tmp_path), corpus()).close()
    left.unlink()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**8))
    Trainer(config(tmp_path), corpus()).close()
    with Trainer(config(tmp_path), corpus()) as trainer:
        log = trainer.run()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    with Trainer(config(tmp_path), corpus()) as trainer:  # finished: nothing is written
        assert trainer.run() == log


def test_a_process_that_is_not_the_main_one_may_come_before_the_folder(tmp_path):
    RunFolder(tmp_path / "run", is_main=False).require_space(10)
    assert not (tmp_path / "run").exists()


@contextmanager
def rights_of_nobody():
    """As root, who may write everywhere, become somebody else for a while."""
    if os.geteuid() == 0:
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)
    else:
        yield


def test_what_cannot_be_a_folder_of_a_run_is_found_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(NotADirectoryError, match="is no folder; give another place"):
            RunFolder(out)
    (tmp_path / "run" / "record.json").mkdir(parents=True)
    with pytest.raises(IsADirectoryError, match="record.json is a folder"):
        RunFolder(tmp_path / "run")


def test_a_folder_without_permission_is_found_before_the_work():
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o555)
        with rights_of_nobody(), pytest.raises(PermissionError, match="no permission to write") as made:
            RunFolder(Path(above) / "run")
        os.chmod(above, 0o755)
        RunFolder(Path(above) / "run").close()
        os.chmod(above + "/run", 0o555)
        with rights_of_nobody(), pytest.raises(PermissionError, match="no permission to write") as written:
            RunFolder(Path(above) / "run")
        assert all("\n" not in str(e.value) and "delete" not in str(e.value) for e in (made, written))


def test_a_run_that_diverges_ends_without_a_record(tmp_path):
    trainer = Trainer(config(tmp_path, eval_every=100), corpus())
    with torch.no_grad():
        trainer.model.blocks[0].mixer.to_out.bias[0] = float("nan")
    with pytest.raises(DivergedError):
        trainer.run()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "tokenizer"]
    assert trainer.log == []
