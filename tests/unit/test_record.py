"""Records: written whole, refused when edited, and taken into the package only with the commit that made them."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version

import add_record
import pytest
import torch

from caracal_min import record as record_module
from caracal_min.record import (
    RecordError,
    code,
    code_sha256,
    files_of,
    machine,
    read_record,
    require_new,
    require_recordable,
    seal,
    write_record,
)

CURVE = [{"step": 1, "tokens": 64, "loss": 5.5, "learning_rate": 1e-3, "grad_norm": 1.0, "seconds": 0.1}]
RESULTS = {"parameters": 10, "steps": 1, "tokens": 64, "curve": CURVE, "model_sha256": "0" * 64}
DATA = {"source": "text", "validation": None, "tokenizer": "byte", "train_tokens": 100, "validation_tokens": 10,
        "sha256": "1" * 64}


def write(path, kind="train", config=None, results=RESULTS, data=DATA, seconds=1.5):
    config = {"preset": "nano", "out": path.parent} if config is None else config
    return write_record(path, kind, config, results, data, seconds, torch.device("cpu"))


@pytest.fixture
def record(tmp_path):
    write(tmp_path / "record.json")
    return tmp_path / "record.json"


def edit(path, change):
    stored = json.loads(path.read_text())
    change(stored)
    path.write_text(json.dumps(stored))


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
    lambda r: r["config"].update(seed=7),
    lambda r: r.update(note="better"),
    lambda r: r.update(digest="0" * 64),
])
def test_a_record_edited_by_hand_is_refused(record, change):
    edit(record, change)
    with pytest.raises(RecordError, match="was edited, it does not match its own digest; run it again") as caught:
        read_record(record, require_commit=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("commit, clean", [(None, None), ("0" * 40, False), (None, True), ("0" * 40, None)])
def test_code_that_no_commit_holds_is_refused(record, commit, clean):
    edit(record, lambda r: r["code"].update(commit=commit, clean=clean))
    record.write_text(json.dumps(seal(json.loads(record.read_text()))))
    read_record(record, require_commit=False)
    with pytest.raises(RecordError, match="made with code that no commit is known to hold; commit, and run it again"):
        read_record(record)


@pytest.mark.parametrize("text", ["", "[]", "{}", "not json", '{"format": "caracal-record-1"}'])
def test_what_is_no_record_is_refused(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(RecordError, match="is not a record of a run") as caught:
        read_record(tmp_path / "r.json")
    assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match="no record"):
        read_record(tmp_path / "none.json")


@pytest.mark.parametrize("change, place", [
    (dict(kind="magic"), "at kind"),
    (dict(results={}), "at results"),
    (dict(results=RESULTS | {"curve": []}), "at results/curve"),
    (dict(results=RESULTS | {"curve": [CURVE[0] | {"step": "one"}]}), "at results/curve/0/step"),
    (dict(data=None), "at data"),
    (dict(data=DATA | {"sha256": "short"}), "at data"),
    (dict(config={}), "at config"),
    (dict(seconds=0.0), "at seconds"),
])
def test_the_schema_is_enforced_when_writing(tmp_path, change, place):
    with pytest.raises(RecordError, match=place) as caught:
        write(tmp_path / "record.json", **change)
    assert "\n" not in str(caught.value) and not (tmp_path / "record.json").exists()


PART = {"from_step": 0, "started": "2026-01-01T00:00:00Z", "code": None, "machines": []}


def test_a_record_names_the_processes_that_took_part(tmp_path):
    path, now = tmp_path / "record.json", {"code": code(), "machines": [machine(torch.device("cpu"))]}
    write_record(path, "train", {"a": 1}, RESULTS, DATA, 1.0, torch.device("cpu"), [PART, PART | now])
    assert [part["code"] for part in read_record(path, require_commit=False)["parts"]] == [None, code()]
    for wrong in ({"code": {}}, {"machines": None}, {"from_step": -1}, {"started": "today"}, {"more": 1}):
        with pytest.raises(RecordError, match="at parts/0"):
            write_record(tmp_path / "wrong.json", "train", {"a": 1}, RESULTS, DATA, 1.0, torch.device("cpu"),
                         [PART | wrong])


def sealed(path, change):
    edit(path, change)
    path.write_text(json.dumps(seal(json.loads(path.read_text()))))


@pytest.mark.parametrize("part", [PART, PART | {"code": {"version": "1", "sha256": "0" * 64, "commit": None,
                                                           "clean": None}}])
def test_code_of_any_process_must_be_that_of_a_commit(record, part):
    sealed(record, lambda r: r.update(parts=[part]) or r["code"].update(commit="0" * 40, clean=True))
    with pytest.raises(RecordError, match="no commit is known to hold"):
        read_record(record)
    read_record(record, require_commit=False)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none_are_neither_written_nor_read(record, tmp_path, text):
    curve = [CURVE[0] | {"validation_loss": float(text.replace("inity", ""))}]
    with pytest.raises(RecordError, match="results that are not finite numbers") as caught:
        write(tmp_path / "other.json", results=RESULTS | {"curve": curve})
    assert "\n" not in str(caught.value) and not (tmp_path / "other.json").exists()
    record.write_text(record.read_text().replace("5.5", text))
    with pytest.raises(RecordError, match=f"not a record of a run .*{text} is no number"):
        read_record(record, require_commit=False)


def test_a_record_is_never_written_over_a_file(record, tmp_path):
    before = record.read_bytes()
    with pytest.raises(FileExistsError, match="exists, and no record is written over another file; move it") as caught:
        write(record)
    assert "\n" not in str(caught.value) and record.read_bytes() == before
    (tmp_path / "link.json").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match="link.json exists"):
        require_new(tmp_path / "link.json")


EVALUATED = {"source": "text", "files": [{"name": "a.jsonl", "sha256": "2" * 64}], "split": "held_out",
             "rule": "a rule", "model_rule": None, "tokenizer": "byte", "tokens": 100, "sha256": "1" * 64}


@pytest.mark.parametrize("change", [
    dict(split="some"), dict(rule=7), dict(files=["a.jsonl"]), dict(files=[{"name": "a.jsonl"}]), dict(tokens=0),
    dict(model_rule=0), dict(sha256=None),
])
def test_what_an_evaluation_measured_has_a_form(tmp_path, change):
    results = {"parameters": 10, "model_sha256": "0" * 64}
    write(tmp_path / "right.json", "evaluate", results=results, data=EVALUATED)
    with pytest.raises(RecordError, match="at data"):
        write(tmp_path / "wrong.json", "evaluate", results=results, data=EVALUATED | change)


def test_the_schema_is_enforced_when_reading(record):
    sealed(record, lambda r: r["results"].pop("curve"))
    with pytest.raises(RecordError, match="at results: 'curve' is a required property"):
        read_record(record, require_commit=False)


def test_a_commit_that_does_not_hold_the_code_is_refused(record, root):
    commit = git(root, "rev-parse", "HEAD")
    true = code_sha256(files_of(commit))
    sealed(record, lambda r: r["code"].update(commit=commit, clean=True, sha256=true))
    read_record(record)
    sealed(record, lambda r: r["code"].update(sha256="0" * 64))
    with pytest.raises(RecordError, match=f"names commit {commit[:7]}, which does not hold the code that made it"):
        read_record(record)


def test_the_code_is_that_of_the_beginning_of_the_run(checkout, tmp_path):
    """A file of the package that changes while a run goes on is not what ran."""
    body = ("require_recordable(Path({0!r})); Path({1!r}).write_text('# later work')\n"
            "write_record(Path({0!r}), 'train', {{'a': 1}}, {2!r}, {3!r}, 1.0, torch.device('cpu'))")
    path = tmp_path / "record.json"
    text = ("import sys, torch\nfrom pathlib import Path\n"
            "from caracal_min.record import require_recordable, write_record\n"
            + body.format(str(path), str(checkout / "caracal_min" / "relaxed.py"), RESULTS, DATA))
    subprocess.run([sys.executable, "-c", text], cwd=checkout, check=True,
                   env=os.environ | {"PYTHONPATH": str(checkout)})
    stored = json.loads(path.read_text())["code"]
    assert stored["clean"] is True and stored["sha256"] == code_sha256(files_of("HEAD", checkout))


def test_what_a_record_needs_is_looked_for_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    require_recordable(tmp_path / "new" / "folder" / "record.json")
    assert not (tmp_path / "new").exists()
    for path, kind in ((tmp_path, IsADirectoryError), (tmp_path / "file" / "x.json", NotADirectoryError)):
        with pytest.raises(kind, match=str(tmp_path)):
            require_recordable(path)


def test_a_record_is_written_without_jsonschema_and_read_with_it(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "jsonschema", None)
        require_recordable(path)
        written = write_record(path, "train", {"a": 1}, RESULTS, DATA, 1.0, torch.device("cpu"))
        with pytest.raises(ImportError, match="a record needs jsonschema"):
            read_record(path, require_commit=False)
    assert read_record(path, require_commit=False) == written


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


def made_in(folder, path):
    """Write a record with the package that lies in a folder."""
    code = ("import sys, torch\nfrom pathlib import Path\nfrom caracal_min.record import write_record\n"
            f"write_record(Path({str(path)!r}), 'train', {{'a': 1}}, {RESULTS!r}, {DATA!r}, 1.0, torch.device('cpu'))")
    environment = os.environ | {"PYTHONPATH": str(folder)}
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, env=environment)
    return path


def test_a_clean_checkout_is_named_and_a_dirty_one_refused(checkout, tmp_path):
    stored = read_record(made_in(checkout, tmp_path / "clean.json"))
    assert stored["code"]["commit"] == git(checkout, "rev-parse", "HEAD") and stored["code"]["clean"] is True
    with open(checkout / "caracal_min" / "model.py", "a") as file:
        file.write("# one more line\n")
    dirty = made_in(checkout, tmp_path / "dirty.json")
    assert json.loads(dirty.read_text())["code"]["clean"] is False
    with pytest.raises(RecordError, match="no commit is known to hold"):
        read_record(dirty)
    with pytest.raises(RecordError, match="no commit holds the code that made it; commit first"):
        add_record.admitted(dirty, checkout)
    git(checkout, "commit", "-aqm", "two")
    assert add_record.admitted(dirty, checkout)["code"]["commit"] == git(checkout, "rev-parse", "HEAD")


def test_a_run_without_history_finds_its_commit_later(checkout, tmp_path):
    with_history = git(checkout, "rev-parse", "HEAD")
    copy = shutil.copytree(checkout, tmp_path / "copy", ignore=shutil.ignore_patterns(".git"))
    path = made_in(copy, tmp_path / "record.json")
    assert json.loads(path.read_text())["code"]["commit"] is None
    (checkout / "caracal_min" / "config.py").write_text("# later work\n")
    git(checkout, "commit", "-aqm", "two")
    found = add_record.admitted(path, checkout)
    assert found["code"]["commit"] == with_history and found["digest"] == seal(found)["digest"]
    edit(path, lambda r: r["results"].update(steps=2))
    with pytest.raises(RecordError, match="was edited"):
        add_record.admitted(path, checkout)


def test_of_a_path_on_the_machine_that_ran_it_the_last_name_is_kept(checkout, tmp_path):
    path = made_in(checkout, tmp_path / "record.json")
    there = {"data": "/home/somebody/texts/web.jsonl", "tasks": ["/data/evals", "lambada"], "share": 0.5,
             "command": ["a", "../evals/b.json", ".scratch/c/d.xz", "~/e"], "sample": "... and/or f",
             "source": "run/shards"}
    path.write_text(json.dumps(seal(json.loads(path.read_text()) | {"config": there})))
    found = add_record.admitted(path, checkout)
    assert found["config"] == there | {"data": "web.jsonl", "tasks": ["evals", "lambada"],
                                       "command": ["a", "b.json", "d.xz", "e"]}
    assert found["digest"] == seal(found)["digest"]


def test_a_record_is_put_where_pages_look_for_it(checkout, tmp_path):
    path = add_record.add(made_in(checkout, tmp_path / "record.json"), "a_run", checkout)
    assert path.parent == checkout / "book" / "caracal_book" / "runs"
    assert (path.parent / "__init__.py").is_file() and read_record(path)["results"] == RESULTS


def test_a_record_or_a_model_that_is_new_leaves_the_code_as_committed(checkout, monkeypatch):
    monkeypatch.setattr(record_module, "_PACKAGE", checkout / "caracal_min")
    for name in ("caracal_min/pretrained/a/config.json", "book/caracal_book/runs/new.json",
                 "book/caracal_book/viz/new.js"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("{}")
    assert record_module._checkout()["clean"] is True
    (checkout / "book" / "caracal_book" / "experiments" / "new.py").touch()
    assert record_module._checkout()["clean"] is False


@pytest.mark.parametrize("name", ["caracal_book/runs/run.json", "caracal_book/viz/clock.js", "pretrained/a/config.json",
                                  "caracal_book/exercises/counting.py", "caracal_book/rules/cells.py"])
def test_what_decides_no_number_is_not_in_the_hash_of_the_code(name):
    files = {"a.py": b"1", "b/c.js": b"2", "caracal_book/experiments/race.py": b"3"}
    assert code_sha256(files) == code_sha256(files | {name: b"4", "x.pyc": b"4", "notes.txt": b"5"})
    for change in ({"a.py": b"2"}, {"caracal_book/experiments/race.py": b"4"}, {"new.py": b""}, {"new.json": b"{}"}):
        assert code_sha256(files) != code_sha256(files | change)
    assert code_sha256(files) != code_sha256({"d.py" if name == "a.py" else name: files[name] for name in files})


def test_files_of_a_commit_are_those_of_the_checkout(checkout):
    files = add_record.files_of("HEAD", checkout)
    assert files["model.py"] == (checkout / "caracal_min" / "model.py").read_bytes()
    assert "caracal_book/viz/poke.js" in files
