"""Corpora, tokenizers and batches: real files through the real path."""

import gzip
import json
import lzma

import numpy as np
import pytest

from caracal_min.data import (
    Batches,
    ByteTokenizer,
    count_documents,
    documents,
    load_corpus,
    make_tokenizer,
    sequential_windows,
    tokenizer_for,
)
from caracal_min.data.write_shards import tokenize


def write_jsonl(path, rows):
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return str(path)


@pytest.mark.parametrize("text", ["", "plain", "naïve – ünïcode 日本語 🐈"])
def test_bytes_round_trip(text):
    tokenizer = ByteTokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode(text) == list(text.encode())


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
    assert count_documents(str(folder)) == 5
    first, second = (tokenize(folder, tmp_path / out, "byte", workers=1, progress=False) for out in ("x", "y"))
    assert first.settings.source == "texts" and first.tokens == 3 + 3 + 5 + 4 + 4 + 5 and vars(first) == vars(second)
    write_jsonl(folder / "b.jsonl", [{"text": "2"}, {"text": "3"}])
    with pytest.raises(ValueError, match="was made with source_sha256="):
        tokenize(folder, tmp_path / "x", "byte", workers=1, progress=False)
    corpus = load_corpus(str(folder), "byte", progress=False, held_out_every=5)
    assert bytes(corpus.validation.tolist()) == b"five\x00"


def test_embedded_corpus_is_real_text_split_by_document():
    corpus = load_corpus("embedded", progress=False)
    assert len(corpus.train) > 1_000_000 and 0.05 < len(corpus.validation) / len(corpus.train) < 0.25
    assert corpus.train.dtype == np.uint16 and corpus.train.max() < 256
    tokenizer = ByteTokenizer()
    held_out = set(tokenizer.decode(corpus.validation).split("\0"))
    trained = set(tokenizer.decode(corpus.train).split("\0"))
    assert len(held_out) > 20 and not (held_out & trained) - {""}
    assert corpus.digest == load_corpus("embedded", progress=False).digest


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.xz", ".parquet"])
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
    assert count_documents(str(path)) == 20
    corpus = load_corpus(str(path), held_out_every=5, progress=False)
    assert ByteTokenizer().decode(corpus.validation).split("\0")[:-1] == texts[4::5]


def test_reading_stops_at_the_document_that_fills_the_budget(tmp_path):
    path = write_jsonl(tmp_path / "c.jsonl", [{"text": "x" * 99}] * 50)
    corpus = load_corpus(path, max_tokens=450, held_out_every=2, progress=False)
    assert len(corpus.train) + len(corpus.validation) == 500


def test_fineweb_tokens_agree_with_its_own_counts(shared_data, gpt2):
    """Real FineWeb through the local path, tokenized by GPT-2's encoding, against the counts FineWeb states."""
    path = shared_data / "corpus" / "fineweb-validation.jsonl.xz"
    tokenizer = make_tokenizer("gpt2")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        stated = [json.loads(line)["token_count"] for line in file]
    counted = [len(tokenizer.encode(text)) for text in documents(str(path))]
    assert len(counted) == len(stated) == 300
    assert sum(a == b for a, b in zip(counted, stated, strict=True)) >= 290
    corpus = load_corpus(str(path), "gpt2", progress=False)
    assert len(corpus.train) + len(corpus.validation) == sum(counted) + 300
    assert corpus.train.max() == tokenizer.end_of_text == 50_256
    assert "FineWeb" not in tokenizer.decode(corpus.train[:50])
    assert tokenizer.decode(tokenizer.encode("Ünï 🐈")) == "Ünï 🐈"


def test_tokenizer_for():
    assert tokenizer_for(256).name == "byte"
    with pytest.raises(ValueError, match=r"no tokenizer with 100 ids; known are 256 \(byte\), 50257 \(gpt2\)"):
        tokenizer_for(100)


def test_targets_are_inputs_shifted():
    batches = Batches(np.arange(1000, dtype=np.uint16), context=16, batch_size=4)
    for i in (0, 5, 500):
        x, y = batches[i]
        assert x.shape == y.shape == (4, 16)
        assert (y == x + 1).all()


def test_no_window_repeats_within_an_epoch_and_epochs_differ():
    batches = Batches(np.arange(1000, dtype=np.uint16), context=10, batch_size=7)
    epochs = [[int(s) for i in range(batches.per_epoch) for s in batches[e * batches.per_epoch + i][0][:, 0]]
              for e in range(3)]
    for starts in epochs:
        assert len(set(starts)) == len(starts) == 7 * batches.per_epoch
        assert len(starts) * 10 > 0.9 * 1000
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_batch_depends_on_its_index_and_seed_only():
    tokens = np.arange(1000, dtype=np.uint16)
    one, two = Batches(tokens, 10, 7, seed=3), Batches(tokens, 10, 7, seed=3)
    for i in range(40):
        one[i]
    for i in (39, 2, 17):
        assert (one[i][0] == two[i][0]).all()
    assert (Batches(tokens, 10, 7, seed=4)[0][0] != two[0][0]).any()


def test_sequential_windows_cover_the_text_once():
    windows = sequential_windows(np.arange(101, dtype=np.uint16), 10)
    assert windows[:, 1:].flatten().tolist() == list(range(1, 101))
    few = sequential_windows(np.arange(101, dtype=np.uint16), 10, limit=3)
    assert few[:, 0].tolist() == [0, 40, 90]


@pytest.mark.parametrize("source, error, words", [
    ("nowhere.jsonl", FileNotFoundError, ["nowhere.jsonl"]),
    ("corpus.txt", ValueError, ["corpus.txt", "embedded", ".jsonl.xz"]),
])
def test_unknown_sources(source, error, words):
    with pytest.raises(error) as caught:
        load_corpus(source, progress=False)
    for word in words:
        assert word in str(caught.value)


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


def test_bad_corpora_get_one_clear_line(tmp_path):
    no_text = write_jsonl(tmp_path / "a.jsonl", [{"body": "x"}])
    with pytest.raises(ValueError, match="columns body; a column `text`"):
        load_corpus(no_text, progress=False)
    short = write_jsonl(tmp_path / "b.jsonl", [{"text": "x"}] * 3)
    with pytest.raises(ValueError, match="gave 3 documents; at least 10"):
        load_corpus(short, progress=False)
    with pytest.raises(ValueError, match="unknown tokenizer 'bpe'; accepted: byte, gpt2"):
        load_corpus("embedded", "bpe", progress=False)
    with pytest.raises(ValueError, match="held_out_every=1"):
        load_corpus("embedded", held_out_every=1, progress=False)
    with pytest.raises(ValueError, match="20 tokens hold 1 windows of 10, fewer than batch_size=4"):
        Batches(np.zeros(20, dtype=np.uint16), 10, 4)
    with pytest.raises(ValueError, match="5 tokens are fewer than one window of 10"):
        sequential_windows(np.zeros(5, dtype=np.uint16), 10)
