"""The texts of real files, folders and damaged files."""

import gzip
import inspect
import lzma
import re

import pytest
from shard_texts import write_jsonl

from caracal_min.data import ByteTokenizer, TokenizeConfig, documents, is_held_out, load_corpus
from caracal_min.data.documents import SOURCES
from caracal_min.data.local_files import FORMATS, PLAIN
from caracal_min.data.write_shards import tokenize
from caracal_min.training import TrainConfig


def test_a_folder_is_its_files_in_the_order_of_their_names(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "texts"
    folder.mkdir()
    write_jsonl(folder / "b.jsonl", [{"text": "two", "url": "x"}, {"text": "three"}])
    write_jsonl(folder / "a.jsonl.xz", [{"text": "one", "id": 7}])
    table = pyarrow.table({"text": ["four", "five"]})
    parquet.write_table(table, folder / "c.parquet")
    (folder / "README.md").write_text("not text to train on")
    assert list(documents(str(folder))) == ["one", "two", "three", "four", "five"]
    first, second = (tokenize(folder, tmp_path / out, "byte", progress=False) for out in ("x", "y"))
    assert first.settings.source == "texts" and first.tokens == 3 + 3 + 5 + 4 + 4 + 5 and vars(first) == vars(second)
    write_jsonl(folder / "b.jsonl", [{"text": "2"}, {"text": "3"}])
    with pytest.raises(ValueError, match="was made with source='texts' .sha256"):
        tokenize(folder, tmp_path / "x", "byte", progress=False)
    (folder / "d.jsonl").symlink_to(tmp_path / "gone.jsonl")
    with pytest.raises(FileNotFoundError, match="no file .*d.jsonl; check the path"):
        list(documents(str(folder)))


@pytest.mark.parametrize("ending", FORMATS)
def test_local_files(tmp_path, ending):
    texts = [f"document {i} " * 3 for i in range(20)]
    path = tmp_path / ("corpus" + ending)
    if ending == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        pyarrow = pytest.importorskip("pyarrow")
        parquet.write_table(pyarrow.table({"id": list(range(20)), "text": texts}), path)
    else:
        write_jsonl(path, [{"id": i, "text": t} for i, t in enumerate(texts)])
    assert list(documents(str(path))) == texts
    corpus = load_corpus(str(path), progress=False)
    assert ByteTokenizer().decode(corpus.validation).split("\0")[:-1] == list(filter(is_held_out, texts)) != []


@pytest.mark.parametrize("source, error, words", [
    ("nowhere.jsonl", FileNotFoundError, ["nowhere.jsonl"]),
    ("nowhere.txt", FileNotFoundError, ["nowhere.txt"]),
    ("corpus.csv", ValueError, ["corpus.csv", "embedded", ".jsonl.xz", ".txt"]),
])
def test_unknown_sources(source, error, words):
    with pytest.raises(error) as caught:
        load_corpus(source, progress=False)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("kind, field", [(TokenizeConfig, "source: str"), (TrainConfig, "data: str")])
def test_the_help_names_every_source_and_format(kind, field):
    said = inspect.getsource(kind).partition(f"    {field}")[2].split('"""')[1]
    for name in (*SOURCES, *FORMATS, PLAIN):
        assert re.search(rf"(^|[ /]){re.escape(name.removeprefix('.'))}(,| /| file| \()", said), name


def damaged_files():
    whole = b'{"text": "abc"}\n' * 10_000
    return {"empty.jsonl": b"", "empty.jsonl.xz": lzma.compress(b""), "empty.jsonl.gz": gzip.compress(b""),
            "other.jsonl": b"not json\n", "other.jsonl.xz": b"not xz at all",
            "cut.jsonl.xz": lzma.compress(whole)[:-20], "cut.jsonl.gz": gzip.compress(whole)[:-30],
            "other.parquet": b"not parquet"}


@pytest.mark.parametrize("name", damaged_files())
def test_damaged_and_empty_files_get_one_line(tmp_path, name):
    (tmp_path / name).write_bytes(damaged_files()[name])
    with pytest.raises(ValueError, match=rf"{name} cannot be read \(.+\): is it empty, cut off") as caught:
        list(documents(str(tmp_path / name)))
    assert "\n" not in str(caught.value)
