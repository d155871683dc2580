"""Records: written whole, refused when edited, and taken into the book only with the commit that made them."""

import json
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from importlib.metadata import version

import add_record
import pytest
import torch

from caracal_book.records import (
    RecordError,
    code_sha256,
    files_of,
    read_record,
    record_of_run,
    require_new,
    save_record,
    seal,
    write_record,
)
from caracal_min import Caracal

jsonschema = pytest.importorskip("jsonschema")
CURVE = [{"step": 1, "tokens": 64, "loss": 5.5, "learning_rate": 1e-3, "grad_norm": 1.0, "seconds": 0.1}]
RESULTS = {"parameters": 10, "steps": 1, "tokens": 64, "curve": CURVE, "model_sha256": "0" * 64}
DATA = {"source": "text", "validation": None, "tokenizer": "byte", "train_tokens": 100, "validation_tokens": 10,
        "sha256": "1" * 64}


def write(path, kind="train", config=None, results=RESULTS, data=DATA, seconds=1.5, **more):
    config = {"preset": "nano", "out": path.parent} if config is None else config
    return write_record(path, kind, config, results, data, seconds, torch.device("cpu"), **more)


@pytest.fixture
def record(tmp_path):
    write(tmp_path / "record.json")
    return tmp_path / "record.json"


def edit(path, change):
    stored = json.loads(path.read_text())
    change(stored)
    path.write_text(json.dumps(stored))


def sealed(path, change):
    edit(path, change)
    path.write_text(json.dumps(seal(json.loads(path.read_text()))))


def test_a_record_says_what_was_run_where_and_on_what(record):
    stored = read_record(record, require_commit=False)
    assert stored["config"] == {"preset": "nano", "out": str(record.parent)} and stored["results"] == RESULTS
    assert stored["machine"]["versions"]["torch"] == version("torch") and stored["machine"]["device"] == "cpu"
    assert stored["command"][1:] == sys.argv[1:] and stored["data"] == DATA
    assert len(stored["code"]["sha256"]) == 64


@pytest.mark.parametrize("change", [
    lambda r: r["results"]["curve"][0].update(loss=1.2),
    lambda r: r["machine"].update(device="NVIDIA H200"),
    lambda r: r["code"].update(clean=True, commit="0" * 40),
    lambda r: r.update(note="better"),
    lambda r: r.update(digest="0" * 64),
])
def test_a_record_edited_by_hand_is_refused(record, change):
    edit(record, change)
    with pytest.raises(RecordError, match="was edited, it does not match its own digest; run it again"):
        read_record(record, require_commit=False)


@pytest.mark.parametrize("commit, clean", [(None, None), ("0" * 40, False), (None, True)])
def test_code_that_no_commit_holds_is_refused(record, commit, clean):
    sealed(record, lambda r: r["code"].update(commit=commit, clean=clean))
    read_record(record, require_commit=False)
    with pytest.raises(RecordError, match="made with code that no commit is known to hold; commit, and run it again"):
        read_record(record)


@pytest.mark.parametrize("change", [
    dict(kind="magic"), dict(results={}), dict(results=RESULTS | {"curve": [CURVE[0] | {"step": "one"}]}),
    dict(data=None), dict(data=DATA | {"sha256": "short"}), dict(config={}), dict(seconds=0.0),
])
def test_the_schema_is_enforced(tmp_path, change):
    with pytest.raises(jsonschema.ValidationError):
        write(tmp_path / "record.json", **change)
    assert not (tmp_path / "record.json").exists()


def test_a_record_is_never_written_over_a_file(record):
    before = record.read_bytes()
    with pytest.raises(FileExistsError, match="exists, and no record is written over another file; move it"):
        write(record)
    with pytest.raises(FileExistsError):
        require_new(record)
    assert record.read_bytes() == before
    assert write(record, seconds=2.5, grown=True)["seconds"] == 2.5


def test_a_commit_that_does_not_hold_the_code_is_refused(record, root):
    commit = git(root, "rev-parse", "HEAD")
    true = code_sha256(files_of(commit))
    sealed(record, lambda r: r["code"].update(commit=commit, clean=True, sha256=true))
    read_record(record)
    sealed(record, lambda r: r["code"].update(sha256="0" * 64))
    with pytest.raises(RecordError, match=f"names commit {commit[:7]}, which does not hold the code that made it"):
        read_record(record)


@pytest.fixture
def run(tmp_path):
    """The folder of a finished training run, as the trainer leaves it."""
    folder = tmp_path / "run"
    model = Caracal.from_preset("nano", n_layers=1)
    model.save_pretrained(folder / "model")
    (folder / "run.json").write_text(json.dumps({
        "config": {"preset": "nano", "variant": "default", "validation": None, "tokenizer": "/home/me/micro"},
        "tokens": 64, "steps": 1, "epochs": 0.6, "seconds": 1.5, "parameters": model.num_parameters(),
        "precision": "float32", "device": "NVIDIA H100",
        "versions": {"torch": "2.99"}, "history": [{"from_step": 0, "tokens": 64}], "curve": CURVE,
        "data": {"source": "text", "tokenizer": "byte", "digest": "1" * 64, "train_tokens": 100,
                 "validation_tokens": 10}}))
    return folder


CODE = {"version": "0.1.0", "sha256": "2" * 64, "commit": "3" * 40, "clean": True}


def test_the_folder_of_a_run_becomes_a_record_of_training(run):
    saved = save_record(record_of_run(run, CODE), run / "record.json")
    stored = read_record(run / "record.json", require_commit=False)
    assert stored == saved and stored["kind"] == "train" and stored["code"] == CODE
    assert stored["data"] == DATA and stored["results"]["curve"] == CURVE
    assert stored["machine"]["versions"]["torch"] == "2.99" and stored["machine"]["device"] == "NVIDIA H100"
    assert stored["seconds"] == 1.5 and stored["config"]["tokenizer"] == "micro"  # without the path of a machine
    weights = (run / "model" / "model.safetensors").read_bytes()
    assert stored["results"]["model_sha256"] == sha256(weights).hexdigest()


def git(folder, *arguments):
    done = subprocess.run(["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
                          capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(root, tmp_path):
    """A repository of its own, with both packages in it and one commit."""
    folder = tmp_path / "repository"
    for package in ("caracal_min", "book/caracal_book"):
        shutil.copytree(root / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    git(folder.parent, "init", "-q", str(folder))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder


def made_in(folder, path, before=""):
    """Write a record with the packages that lie in a folder."""
    text = ("import torch\nfrom pathlib import Path\nfrom caracal_book.records import require_new, write_record\n"
            f"require_new(Path({str(path)!r}))\n{before}\n"
            f"write_record(Path({str(path)!r}), 'train', {{'a': 1}}, {RESULTS!r}, {DATA!r}, 1.0, torch.device('cpu'))")
    environment = os.environ | {"PYTHONPATH": f"{folder}:{folder / 'book'}"}
    subprocess.run([sys.executable, "-c", text], cwd=folder, check=True, env=environment)
    return path


@pytest.mark.process
@pytest.mark.slow
def test_a_clean_checkout_is_named_and_a_dirty_one_refused(checkout, tmp_path):
    later = checkout / "caracal_min" / "decoding.py"
    body = later.read_text()
    # A new record, figure or model decides no number; a new experiment does.
    for name in ("caracal_min/pretrained/a/config.json", "book/caracal_book/runs/new.json",
                 "book/caracal_book/viz/new.js"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("{}")
    # What changes while a run goes on is not what ran.
    clean = made_in(checkout, tmp_path / "clean.json", f"Path({str(later)!r}).write_text('# later work')")
    stored = read_record(clean)["code"]
    assert stored["commit"] == git(checkout, "rev-parse", "HEAD") and stored["clean"] is True
    assert stored["sha256"] == code_sha256(files_of("HEAD", checkout))
    later.write_text(body)
    (checkout / "book" / "caracal_book" / "experiments" / "new.py").touch()
    dirty = made_in(checkout, tmp_path / "dirty.json")
    with pytest.raises(RecordError, match="no commit is known to hold"):
        read_record(dirty)
    with pytest.raises(RecordError, match="no commit holds the code that made it; commit first"):
        add_record.admitted(dirty, checkout)
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "two")
    assert add_record.admitted(dirty, checkout)["code"]["commit"] == git(checkout, "rev-parse", "HEAD")
