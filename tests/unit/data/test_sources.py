"""The documents of files, folders and FineWeb, and which of them are held out."""

import hashlib
import subprocess
import sys

import datasets
import numpy as np
import pytest
from shard_texts import TEXTS, write_rows

from caracal_min.data import RULE, documents, is_held_out
from caracal_min.data.sources import FINEWEB_REVISION, FORMATS, PIECE, fineweb_revision

ROWS = FORMATS[:-1]


def test_the_rule_is_what_it_always_was():
    """Were it to change, texts that old models were trained on would be called held out: then it needs a new name."""
    assert RULE == "sha256 of the text, one document in 20"
    assert [i for i in range(100) if is_held_out(str(i))] == [96] and not is_held_out("")
    assert 0.045 < np.mean([is_held_out(f"document {i}") for i in range(20_000)]) < 0.055


def test_the_embedded_text_is_the_one_that_the_chapters_quote():
    digest = hashlib.sha256("\0".join(documents("embedded")).encode()).hexdigest()
    assert digest == "075e1cad719a6ff4a9bdcc2191b352000ccbae6f39fab46086851fdccfb5523f"


@pytest.mark.parametrize("ending", ROWS)
def test_a_row_is_a_document_in_every_format(tmp_path, ending):
    path = write_rows(tmp_path / f"corpus{ending}", TEXTS[:300])
    assert list(documents(str(path))) == list(documents(path)) == TEXTS[:300]


def test_a_folder_is_its_files_in_the_order_of_their_names(tmp_path):
    for i, name in enumerate("dbfaceg"):
        write_rows(tmp_path / f"{name}{ROWS[i % 4]}", [name, name * 2])
    (tmp_path / "README.md").write_text("not text to train on")
    assert list(documents(tmp_path)) == [name * i for name in "abcdefg" for i in (1, 2)]


def test_plain_text_is_cut_at_ends_of_lines_and_nothing_is_lost(tmp_path):
    text = "".join(f"{i}: to be, é\N{CAT}\n" * (i % 9) + "\n" for i in range(9000)) + "the end"
    (tmp_path / "play.txt").write_bytes(text.encode("utf-8-sig"))
    found = list(documents(tmp_path / "play.txt"))
    assert "".join(found) == text and len(found) > 99
    assert all(piece.endswith("\n") and PIECE <= len(piece) < PIECE + 50 for piece in found[:-1])
    assert sum(map(is_held_out, found)) >= 1


ALONE = """
import os, sys
def refused(event, arguments):
    if event.startswith("socket."):
        print(event, arguments, file=sys.stderr, flush=True)
        os._exit(7)
sys.addaudithook(refused)
from caracal_min.data import documents
for path in sys.argv[1:]:
    assert len(list(documents(path))) == 60
"""


@pytest.mark.process
def test_local_files_are_read_without_a_socket(tmp_path):
    """No look-up of a host and no connection, in threads either: the process would end with 7."""
    paths = [write_rows(tmp_path / f"a{ending}", TEXTS[:60]) for ending in ROWS]
    done = subprocess.run([sys.executable, "-c", ALONE, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_the_chapters_read_needs_no_further_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    path = write_rows(tmp_path / "slice.jsonl.xz", TEXTS[:9])
    assert list(documents(path)) == TEXTS[:9] and next(documents("embedded"))


def test_fineweb_is_streamed_at_a_commit_that_never_changes(tmp_path, monkeypatch):
    path, real, asked = write_rows(tmp_path / "000.parquet", TEXTS), datasets.load_dataset, []

    def load(path_of, **options):
        asked.append((path_of, options))
        return real("parquet", data_files=str(path), split="train", streaming=True)

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert list(documents("fineweb")) == TEXTS
    assert asked == [("HuggingFaceFW/fineweb", {"name": "sample-10BT", "split": "train", "streaming": True,
                                                "revision": FINEWEB_REVISION})]


def test_a_hub_that_does_not_answer_is_a_connection_that_failed(monkeypatch):
    def unreachable(*_, **__):
        raise OSError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", unreachable)
    with pytest.raises(ConnectionError, match="fineweb cannot be reached: Name or service"):
        fineweb_revision()


@pytest.mark.parametrize("source, error, words", [
    ("nowhere.jsonl", FileNotFoundError, "nowhere.jsonl"),
    ("corpus.csv", ValueError, "unknown source 'corpus.csv'; accepted: embedded, fineweb, .*.parquet, .*.txt"),
])
def test_a_source_that_is_none_is_told(source, error, words):
    with pytest.raises(error, match=words):
        next(documents(source))


def test_rows_without_a_text_are_told_their_columns(tmp_path):
    path = write_rows(tmp_path / "a.jsonl", ["x"])
    path.write_text(path.read_text().replace('"text"', '"body"'))
    with pytest.raises(ValueError, match="has columns id, body; a column `text` is needed"):
        next(documents(path))
