"""Training and held-out tokens, from memory and from shards."""

import json

import pytest

from caracal_min.data import Batches, ByteTokenizer, load_corpus
from caracal_min.data.shards import ShardedTokens
from caracal_min.data.write_shards import tokenize

TEXTS = [f"document number {i} " * (i % 7 + 1) for i in range(1000)]


def write(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "texts.jsonl", TEXTS)


def split(corpus):
    return tuple(ByteTokenizer().decode(part[:]).split("\0")[:-1] for part in (corpus.train, corpus.validation))


def test_shards_hold_out_the_documents_of_the_last_hundredth(source, tmp_path):
    tokenize(source, tmp_path / "shards", "byte", shard_tokens=10_000, progress=False)
    corpus = load_corpus(str(tmp_path / "shards"), "byte")
    train, held_out = split(corpus)
    assert isinstance(corpus.train, ShardedTokens) and train + held_out == TEXTS
    assert 5 <= len(held_out) <= 10
    assert Batches(corpus.train, 64, 8)[3][0].shape == (8, 64)
    with pytest.raises(IndexError):
        corpus.train.read(len(corpus.train) - 2, 3)


def test_a_file_goes_through_shards_and_stays_there(source, tmp_path):
    first = load_corpus(source, "byte", 20_000, progress=False, shards=tmp_path / "run" / "shards")
    made = (tmp_path / "run" / "shards" / "manifest.json").stat().st_mtime_ns
    again = load_corpus(source, "byte", 20_000, progress=False, shards=tmp_path / "run" / "shards")
    assert (tmp_path / "run" / "shards" / "manifest.json").stat().st_mtime_ns == made
    assert first.digest == again.digest and 20_000 <= len(first.train) + len(first.validation) < 20_200
    train, held_out = split(first)
    assert train + held_out == TEXTS[:len(train) + len(held_out)]


@pytest.mark.parametrize("through_shards", [False, True])
def test_a_validation_text_of_its_own(source, tmp_path, through_shards):
    other = write(tmp_path / "other.jsonl", ["held out", "and this"])
    shards = tmp_path / "shards" if through_shards else None
    corpus = load_corpus(source, "byte", progress=False, validation=other, shards=shards)
    assert split(corpus) == (TEXTS, ["held out", "and this"])
    tokenize(other, tmp_path / "other", "byte", progress=False)
    assert split(load_corpus(source, "byte", progress=False, validation=str(tmp_path / "other"))) == split(corpus)


def test_the_digest_tells_corpora_apart(source, tmp_path):
    tokenize(source, tmp_path / "shards", "byte", progress=False)
    shards = str(tmp_path / "shards")
    other = write(tmp_path / "other.jsonl", TEXTS[:-1] + ["another"])
    corpora = [load_corpus(source, "byte", progress=False), load_corpus(other, "byte", progress=False),
               load_corpus(source, "byte", progress=False, validation=other), load_corpus(shards, "byte"),
               load_corpus(shards, "byte", max_tokens=5000), load_corpus(shards, "byte", validation=other)]
    assert len({corpus.digest for corpus in corpora}) == len(corpora)
    assert len(corpora[4].train) == 5000 and len(corpora[3].train) + len(corpora[3].validation) == sum(
        len(text) + 1 for text in TEXTS)


def test_shards_that_do_not_fit_get_one_line(source, tmp_path, gpt2):
    tokenize(source, tmp_path / "shards", "byte", progress=False)
    with pytest.raises(ValueError, match="made with tokenizer='byte', now it is 'gpt2'; give the same"):
        load_corpus(str(tmp_path / "shards"), "gpt2")
    tokenize(write(tmp_path / "one.jsonl", ["x" * 9999]), tmp_path / "one", "byte", progress=False)
    with pytest.raises(ValueError, match="last hundredth of .*, 100 tokens, holds no whole document"):
        load_corpus(str(tmp_path / "one"), "byte")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty has no file that ends in .parquet.* and it is no folder of shards"):
        load_corpus(str(tmp_path / "empty"), "byte")


def test_an_empty_validation_text_is_refused(source, tmp_path):
    with pytest.raises(ValueError, match="none.jsonl cannot be read"):
        load_corpus(source, "byte", progress=False, validation=write(tmp_path / "none.jsonl", []))
