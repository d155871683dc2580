"""Files that are named to mislead, hold what is no text, or would have a network asked for them."""

import lzma
import subprocess
import sys

import pytest
from shard_texts import one_line, write_jsonl

from caracal_min.data import documents, load_corpus
from caracal_min.data.local_files import FORMATS


def write_texts(path, texts):
    """Write texts in the format that the name of the file says."""
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)
    else:
        write_jsonl(path, [{"text": text} for text in texts])
    return str(path)


@pytest.mark.parametrize("name", ["a[12]", "a*", "a?", "**", "[!a]", "{a1,a2}", "a%2a", "~", " ", "a#b", "file::x"])
def test_exactly_the_named_file_is_read(tmp_path, name):
    for ending in FORMATS:
        for other in ("a1", "a2", "a*b", "b"):
            write_texts(tmp_path / (other + ending), [f"of {other}"])
        path = write_texts(tmp_path / (name + ending), ["of the named file"])
        assert list(documents(path)) == ["of the named file"]
        (tmp_path / (name + ending)).unlink()
        with pytest.raises(FileNotFoundError, match="no file"):
            list(documents(path))


@pytest.mark.parametrize("name", ["f[12]", "f*"])
def test_exactly_the_named_folder_is_read(tmp_path, name):
    for folder in ("f1", "f2", name):
        (tmp_path / folder).mkdir()
        write_texts(tmp_path / folder / "x[1].jsonl", [f"of {folder}"])
        write_texts(tmp_path / folder / "y.jsonl", [f"also of {folder}"])
    assert list(documents(str(tmp_path / name))) == [f"of {name}", f"also of {name}"]


ALONE = """
import sys
import torch  # with CUDA it asks where the system's libraries lie, by a process
def refused(event, arguments):
    if event.startswith("socket.") or event == "subprocess.Popen":
        print(event, arguments, file=sys.stderr, flush=True)
        import os; os._exit(7)
sys.addaudithook(refused)
from pathlib import Path
from caracal_min.data import documents, load_corpus, tokenize
folder = Path(sys.argv[1])
for path in sorted(folder.iterdir()):
    assert len(list(documents(str(path)))) == 60
    tokenize(path, folder.parent / "out" / path.name, "byte", progress=False)
load_corpus(str(folder), progress=False)
load_corpus(str(folder), progress=False, validation=str(path))
"""


def test_local_files_are_read_without_a_socket(tmp_path):
    """No look-up of a host and no connection, in threads either: the process would end with 7."""
    (tmp_path / "texts").mkdir()
    for ending in FORMATS:
        write_texts(tmp_path / "texts" / f"a{ending}", [f"text number {i} " * 20 for i in range(60)])
    done = subprocess.run([sys.executable, "-c", ALONE, tmp_path / "texts"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_xz_files_of_several_streams_are_read_whole(tmp_path):
    line, path = b'{"text": "a"}\n', tmp_path / "a.jsonl.xz"
    small = lzma.compress(line)
    path.write_bytes(lzma.compress(line, preset=9) + small)
    assert list(documents(str(path))) == ["a", "a"]
    for end in (13, len(small) - 1):
        path.write_bytes(lzma.compress(line) + small[:end])
        with pytest.raises(ValueError, match="a.jsonl.xz cannot be read .*ended before the end") as caught:
            list(documents(str(path)))
        one_line(caught)


@pytest.mark.parametrize("second", ["magic", "block", "text"])
def test_a_damaged_stream_is_not_the_end_of_an_xz_file(tmp_path, second):
    """Python's own reader leaves it out without a word, and all that follow."""
    line, path = b'{"text": "a"}\n', tmp_path / "a.jsonl.xz"
    damaged = bytearray(lzma.compress(line) if second != "text" else line)
    if second != "text":
        damaged[0 if second == "magic" else 30] ^= 1
    path.write_bytes(lzma.compress(line) + damaged + lzma.compress(line))
    with pytest.raises(ValueError, match="a.jsonl.xz cannot be read ") as caught:
        list(documents(str(path)))
    one_line(caught)


def test_a_document_may_have_any_length(tmp_path):
    for ending in FORMATS:
        path = write_texts(tmp_path / f"a{ending}", ["short", "x" * (1 << 25)])
        assert [len(text) for text in documents(path)] == [5, 1 << 25]


def test_half_a_character_is_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "whole"}\n{"text": "half \\ud83d"}\n')
    with pytest.raises(ValueError, match="a.jsonl, document 2, holds half of a surrogate pair") as caught:
        list(documents(str(path)))
    one_line(caught)
    path.write_text('{"text": "both \\ud83d\\udc08"}\n')
    assert list(documents(str(path))) == ["both 🐈"]


@pytest.mark.parametrize("line", ["[" * 100_000, "9" * 5000, '"text"', "[1]", '{"text": "a"', "\ufeffx", "nul"])
def test_what_is_no_object_gets_one_line(tmp_path, line):
    (tmp_path / "a.jsonl").write_text('{"text": "first"}\n\n' + line + "\n")
    with pytest.raises(ValueError, match="a.jsonl cannot be read .line 3: ") as caught:
        list(documents(str(tmp_path / "a.jsonl")))
    assert len(one_line(caught)) < 400


@pytest.mark.parametrize("value, words", [(None, "is null"), (7, "is of type int"), (["a"], "is of type list")])
def test_a_row_without_a_text_is_named(tmp_path, value, words):
    """The 151st of 200, in every format that has rows, and whoever reads it."""
    texts = [f"text {i}" for i in range(150)] + [value] + ["more"] * 49
    for ending in FORMATS:
        if ending == ".parquet" and value is not None:
            continue  # a column of parquet has one type
        path = write_texts(tmp_path / f"a{ending}", texts)
        row = "row" if ending == ".parquet" else "line"
        for read in (lambda path=path: list(documents(path)), lambda path=path: load_corpus(path, progress=False)):
            with pytest.raises(ValueError, match=f"a{ending}, {row} 151: its column `text` {words}") as caught:
                read()
            one_line(caught)


def test_a_file_without_the_column_is_told_its_columns(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "first"}\n\n{"body": "x", "id": 1}\n')
    with pytest.raises(ValueError, match="a.jsonl, line 3 has columns body, id; a column `text` of strings") as caught:
        list(documents(str(tmp_path / "a.jsonl")))
    one_line(caught)
    import pyarrow
    import pyarrow.parquet

    for table, words in (({"body": ["x"]}, "a.parquet, row 1 has columns body; a column `text`"),
                         ({"text": [1, 2]}, "a.parquet, row 1: its column `text` is of type int")):
        pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
        with pytest.raises(ValueError, match=words) as caught:
            list(documents(str(tmp_path / "a.parquet")))
        one_line(caught)
