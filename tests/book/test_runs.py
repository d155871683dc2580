"""The recorded runs of the book: each as it was written, by code that its commit holds."""

import json
import subprocess
from functools import cache

import add_record
import jsonschema
import pytest

from caracal_book import runs
from caracal_book.records import code_sha256, files_of, read_record


@cache
def sha256_at(commit):
    return code_sha256(files_of(commit))


@pytest.mark.parametrize("name", runs.names())
def test_recorded_runs_are_as_they_were_written_by_code_that_their_commit_holds(name, root):
    record = runs.load(name)
    assert runs.describe(record).startswith("recorded, not rerun: ")
    assert add_record._without_folders(record) == record, "python tools/add_record.py takes a record into the book"
    jsonschema.validate(record, json.loads((root / "book" / "caracal_book" / "record_schema.json").read_text()))
    commit = record["code"]["commit"]
    if subprocess.run(["git", "-C", str(root), "cat-file", "-e", commit], capture_output=True).returncode:
        pytest.skip(f"no commit {commit} here (a shallow clone, or no clone): the code of the record is not compared")
    assert sha256_at(commit) == record["code"]["sha256"]


def test_the_record_of_the_shipped_model_is_as_it_was_written(root):
    assert read_record(root / "caracal_min" / "pretrained" / "micro" / "record.json")["kind"] == "train"
