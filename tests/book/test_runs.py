"""The recorded runs of the book: each as it was written, by code that its commit holds."""

import json
import subprocess

import jsonschema
import pytest

from caracal_book import runs
from caracal_book.records import code_sha256, files_of, read_record


@pytest.mark.parametrize("name", runs.names())
def test_recorded_runs_are_as_they_were_written_by_code_that_their_commit_holds(name, root):
    record = runs.load(name)
    jsonschema.validate(record, json.loads((root / "book" / "caracal_book" / "record_schema.json").read_text()))
    commit = record["code"]["commit"]
    if subprocess.run(["git", "-C", str(root), "cat-file", "-e", commit], capture_output=True).returncode:
        pytest.skip(f"no commit {commit} here (a shallow clone, or no clone): the code of the record is not compared")
    assert code_sha256(files_of(commit)) == record["code"]["sha256"]


def test_the_record_of_the_shipped_model_is_as_it_was_written(root):
    assert read_record(root / "caracal_min" / "pretrained" / "micro" / "record.json")["kind"] == "train"


def test_a_record_is_described_in_a_line():
    assert all(runs.describe(runs.load(name)).startswith("recorded, not rerun: ") for name in runs.names())
