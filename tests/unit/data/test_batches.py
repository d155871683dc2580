"""A corpus and its splits; batches in an order that is never another; windows."""

import json
import re

import numpy as np
import pytest
import torch
from shard_texts import TEXTS, write_rows

from caracal_book import runs
from caracal_min.data import (
    RULE,
    Batches,
    ByteTokenizer,
    Corpus,
    documents,
    is_held_out,
    load_corpus,
    load_tokenizer,
    make_tokenizer,
    save_tokenizer,
    sequential_windows,
    tokenize,
    tokens_of,
)

HELD = [text for text in TEXTS if is_held_out(text)]
KEPT = [text for text in TEXTS if not is_held_out(text)]


def texts_of(tokens):
    return ByteTokenizer().decode(tokens).split("\0")[:-1]


def splits_of(corpus):
    return texts_of(corpus.train), texts_of(corpus.validation)


def test_batches_come_in_the_order_of_the_recorded_runs():
    """To the element, with another seed, another epoch and a second process: records and chapter 9 depend on it."""
    one = Batches(np.arange(1000, dtype=np.uint16), 16, 4, seed=3)
    assert [one[i][0][:, 0].tolist() for i in (0, 1, 20)] == [
        [12, 76, 636, 284], [60, 812, 380, 44], [143, 895, 303, 399]]
    second = Batches(np.arange(100_000), 7, 3, seed=1, rank=1, world_size=2)
    assert [second[i][0][:, 0].tolist() for i in (0, 5000)] == [[81574, 38538, 27310], [17630, 33359, 66189]]
    assert one.per_epoch == 15 and one.epochs(30) == 2


def test_an_epoch_reads_every_window_once_and_targets_are_inputs_shifted():
    batches = Batches(np.arange(10_001, dtype=np.uint16), context=32, batch_size=8)
    assert batches.windows == 311 and batches.per_epoch == 38
    orders = []
    for epoch in range(3):
        found = [batches[epoch * 38 + i] for i in range(38)]
        assert all((y == x + 1).all() and x.dtype == y.dtype == torch.int64 for x, y in found)
        starts = torch.cat([x[:, 0] for x, _ in found]).tolist()
        assert len(set(starts)) == 304 and len({start % 32 for start in starts}) == 1
        orders.append(starts)
    assert orders[0] != orders[1] != orders[2] and min(orders[0]) < 100


def test_the_batches_of_processes_are_parts_of_one():
    tokens = np.arange(10_001)
    one, parts = Batches(tokens, 32, 12, seed=1), [Batches(tokens, 32, 4, 1, rank, 3) for rank in range(3)]
    for i in (0, one.per_epoch - 1, one.per_epoch, 3 * one.per_epoch + 2):
        for k in range(2):
            assert torch.equal(torch.cat([part[i][k] for part in parts]), one[i][k])


def test_windows_cover_the_text_once():
    windows = sequential_windows(np.arange(101, dtype=np.uint16), 10)
    assert windows[:, 1:].flatten().tolist() == list(range(1, 101)) and windows.dtype == torch.int64
    assert sequential_windows(np.arange(101), 10, limit=3)[:, 0].tolist() == [0, 40, 90]


def test_too_little_text_is_told():
    with pytest.raises(ValueError, match="20 tokens are fewer than a batch of 4 windows of 10; give more text"):
        Batches(np.zeros(20), 10, 4)
    with pytest.raises(ValueError, match="validate on has 5 tokens, fewer than a window of 10 . 1; give more"):
        sequential_windows(np.zeros(5), 10)


def test_the_embedded_corpus_is_the_one_of_the_records():
    corpus = load_corpus("embedded", progress=False)
    assert (len(corpus.train), len(corpus.validation)) == (2_081_614, 129_020) and corpus.train.dtype == np.uint16
    assert corpus.digest == "bd29c5cc97248f524c5f0c3d23b92478c9c084f38b256a4804045767edb251e3"


@pytest.fixture(params=["file", "reversed", "folder", "shards"])
def source(request, tmp_path):
    """The same texts, stored in another way."""
    path = write_rows(tmp_path / "texts.jsonl", TEXTS)
    if request.param == "reversed":
        path = write_rows(tmp_path / "reversed.parquet", TEXTS[::-1])
    elif request.param == "folder":
        (tmp_path / "folder").mkdir()
        write_rows(tmp_path / "folder" / "b.jsonl.gz", TEXTS[:130])
        write_rows(tmp_path / "folder" / "a.jsonl.xz", TEXTS[130:])
        path = tmp_path / "folder"
    elif request.param == "shards":
        path = tmp_path / "shards"
        tokenize(tmp_path / "texts.jsonl", path, "byte", progress=False)
    return path


def test_no_document_is_on_both_sides_however_it_is_stored(source, tmp_path):
    other = write_rows(tmp_path / "other.jsonl", ["measured", *HELD[:1]])
    for shards in (None, tmp_path / "run"):
        corpus = load_corpus(str(source), progress=False, shards=shards)
        assert [sorted(split) for split in splits_of(corpus)] == [sorted(KEPT), sorted(HELD)] and corpus.rule == RULE
        corpus = load_corpus(source, progress=False, shards=shards, validation=other)
        assert sorted(texts_of(corpus.train)) == sorted(KEPT)  # what the rule holds out is not trained on either way
        assert texts_of(corpus.validation) == ["measured", HELD[0]]
    for split, expected in (("held_out", HELD), ("train", KEPT), ("all", TEXTS)):
        assert sorted(texts_of(tokens_of(source, "byte", split, progress=False))) == sorted(expected)


def test_all_of_a_source_comes_in_its_order_and_reading_stops_at_a_budget(tmp_path):
    path = write_rows(tmp_path / "texts.jsonl", TEXTS)
    assert texts_of(tokens_of(path, "byte", progress=False)) == TEXTS
    for split, expected in (("held_out", HELD), ("train", KEPT), ("all", TEXTS)):
        few = texts_of(tokens_of(path, "byte", split, 2000, progress=False))
        assert few == expected[:len(few)] and len("\0".join(few).encode()) >= 1999 > len("\0".join(few[:-1]).encode())
    corpus = load_corpus(path, max_tokens=9000, progress=False)
    assert texts_of(corpus.train) == KEPT[:len(texts_of(corpus.train))] and 9000 <= len(corpus.train) < 9600
    assert texts_of(corpus.validation) == HELD[:len(texts_of(corpus.validation))] != []


def test_texts_of_ones_own_are_a_corpus(tmp_path, gpt2):
    corpus = Corpus.from_texts(TEXTS, "byte")
    assert splits_of(corpus) == (KEPT, HELD) and corpus.rule == RULE and corpus.vocab_size == 256
    assert corpus.digest == Corpus.from_texts(iter(TEXTS)).digest != Corpus.from_texts(TEXTS[::-1]).digest
    own = Corpus.from_texts(iter(TEXTS), validation=iter(["held out", *HELD[:2], "this"]), source="mine")
    assert splits_of(own) == (KEPT, ["held out", *HELD[:2], "this"]) and own.source == "mine"
    save_tokenizer(make_tokenizer("gpt2:300"), tmp_path)
    by_name, *others = (Corpus.from_texts(TEXTS, tokenizer) for tokenizer in (
        "gpt2:300", load_tokenizer(tmp_path), tmp_path, str(tmp_path / "tokenizer.json")))
    assert by_name.vocab_size == 300 and by_name.train.max() == 299 == by_name.tokenizer.end_of_text
    assert {corpus.digest for corpus in others} == {by_name.digest}
    assert Corpus("test", "byte", np.arange(9), np.arange(9)).tokenizer.name == "byte"


def test_the_bytes_that_investigation_c_divides_by_are_those_of_the_text(shared_data, gpt2, root):
    """Its losses per byte are losses per token over bytes a token: tokens are recorded, bytes stated in the cell."""
    text = list(documents(shared_data / "corpus" / "fineweb-validation.jsonl.xz"))
    cells = json.loads((root / "notebooks" / "b_what_it_has_become.ipynb").read_text())["cells"]
    stated = re.search(r"HELD_OUT_BYTES = ([\d_]+)", "".join(line for cell in cells for line in cell["source"]))[1]
    assert int(stated) == sum(len(document.encode()) for document in text)
    tokens = tokens_of(shared_data / "corpus" / "fineweb-validation.jsonl.xz", "gpt2", progress=False)
    assert len(tokens) == runs.load("tiny_fineweb_evaluation")["data"]["tokens"]
