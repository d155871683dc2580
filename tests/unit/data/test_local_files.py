"""Files that are named to mislead, pack more than they show, or would have a network asked for them."""

import gzip
import json
import lzma
import subprocess
import sys

import pytest
from shard_texts import one_line, write_jsonl

from caracal_min.data import count_documents, documents, load_corpus, local_files
from caracal_min.data.local_files import FORMATS, LONGEST_DOCUMENT


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
        assert list(documents(path)) == ["of the named file"] and count_documents(path) == 1
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
from caracal_min.data import count_documents, documents, load_corpus, tokenize
folder = Path(sys.argv[1])
for path in sorted(folder.iterdir()):
    assert len(list(documents(str(path)))) == count_documents(str(path)) == 60
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


BOUNDED = """
import resource, sys
from caracal_min.data import count_documents, documents, tokenize
import pyarrow.parquet
limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + 250 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for name in sys.argv[2:]:
    for call in (lambda: list(documents(name)), lambda: tokenize(name, sys.argv[1], "byte", progress=False)):
        try:
            call()
        except ValueError as error:
            print(error)
"""


def bombs(folder):
    """Files of some kilobytes that unpack to one line of 300 MiB."""
    piece, times = b"x" * 2**20, 300
    for name, opened in (("line.jsonl.gz", gzip.open), ("line.jsonl.xz", lzma.open)):
        with opened(folder / name, "wb") as file:
            file.write(b'{"text": "')
            for _ in range(times):
                file.write(piece)
            file.write(b'"}\n')
    with gzip.open(folder / "zeros.jsonl.gz", "wb") as file:
        for _ in range(times):
            file.write(bytes(2**20))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit to memory is that of Linux")
def test_a_bomb_is_refused_in_bounded_memory(tmp_path):
    bombs(tmp_path)
    paths = [tmp_path / name for name in ("line.jsonl.gz", "line.jsonl.xz", "zeros.jsonl.gz")]
    assert all(path.stat().st_size < 2e6 for path in paths)
    done = subprocess.run([sys.executable, "-c", BOUNDED, tmp_path / "out", *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1000:]
    for line, path in zip(done.stdout.splitlines(), [path for path in paths for _ in range(2)], strict=True):
        assert line.startswith(f"{path}, line 1, has more than 16,777,216 bytes, the most that a document may have")
    assert not (tmp_path / "out").exists()


def test_a_parquet_file_that_packs_too_much_is_refused(tmp_path):
    import pyarrow
    import pyarrow.parquet

    text = "x" * (2 * LONGEST_DOCUMENT)
    for compression, words in (("zstd", "packs .* bytes of text into .*, more than 100 to 1"),
                               ("none", "document 1, has more than 16,777,216 bytes")):
        path = tmp_path / f"{compression}.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"text": [text]}), path, compression=compression)
        with pytest.raises(ValueError, match=words) as caught:
            list(documents(str(path)))
        one_line(caught)


def test_an_xz_file_may_not_ask_for_all_memory(tmp_path, monkeypatch):
    line, path = b'{"text": "a"}\n', tmp_path / "a.jsonl.xz"
    small, large = (lzma.compress(line, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": size}])
                    for size in (1 << 16, 1 << 29))
    for content in (large, small + large, lzma.compress(line, preset=9) + large):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read .*[Mm]emory usage limit") as caught:
            list(documents(str(path)))
        one_line(caught)
    path.write_bytes(lzma.compress(line, preset=9) + bytes(8) + small)  # streams, and zeros between them
    assert list(documents(str(path))) == ["a", "a"]
    for end in (1, 13, len(small) - 1):
        path.write_bytes(lzma.compress(line) + small[:end])
        with pytest.raises(ValueError, match="it ends in the middle"):
            list(documents(str(path)))


def test_the_longest_document_is_the_same_for_every_source(tmp_path, monkeypatch):
    """The limit is in bytes of UTF-8, of the text or of the line that holds it."""
    module = sys.modules["caracal_min.data.documents"]
    monkeypatch.setattr(local_files, "LONGEST_DOCUMENT", 100)
    monkeypatch.setattr(module, "LONGEST_DOCUMENT", 60)
    for ending in FORMATS:
        path = write_texts(tmp_path / f"a{ending}", ["short", "x" * 60])
        assert [len(text) for text in documents(path)] == [5, 60]
        path = write_texts(tmp_path / f"b{ending}", ["short", "é" * 31])
        with pytest.raises(ValueError, match=r"b.*(document|line) 2, has more than 100 bytes"):
            list(documents(path))
        with pytest.raises(ValueError, match="has more than 100 bytes"):
            load_corpus(path, progress=False)
    monkeypatch.setattr(module, "_fineweb", lambda: iter(["x" * 61]))
    with pytest.raises(ValueError, match="fineweb, document 1, has more than 100 bytes"):
        list(documents("fineweb"))


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


def test_a_row_without_a_text_gets_one_line(tmp_path):
    for row in ({"body": "x"}, {"text": None, "id": 1}, {"text": 7}, {"text": ["a"]}):
        path = tmp_path / "a.jsonl"
        path.write_text('{"text": "first"}\n' + json.dumps(row) + "\n")
        with pytest.raises(ValueError, match=f"columns {', '.join(row)}; a column `text` of strings") as caught:
            list(documents(str(path)))
        one_line(caught)
    import pyarrow
    import pyarrow.parquet

    for table in ({"body": ["x"]}, {"text": [1, 2]}, {"text": ["a", None]}):
        pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
        with pytest.raises(ValueError, match=f"columns {', '.join(table)}; a column `text` of strings") as caught:
            list(documents(str(tmp_path / "a.parquet")))
        one_line(caught)
