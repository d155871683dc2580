"""Training and held-out tokens, from memory and from shards."""

import hashlib
import json
import lzma
import re

import numpy as np
import pytest
from shard_texts import one_line, write_jsonl

from caracal_book import runs
from caracal_min.data import (
    RULE,
    Batches,
    ByteTokenizer,
    Corpus,
    chunks,
    documents,
    is_held_out,
    load_corpus,
    load_tokenizer,
    make_tokenizer,
    save_tokenizer,
    tokens_of,
)
from caracal_min.data.shards import ShardedTokens
from caracal_min.data.write_shards import tokenize

TEXTS = [f"document number {i} " * (i % 7 + 1) for i in range(1000)]


def write(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "texts.jsonl", TEXTS)


HELD = [text for text in TEXTS if is_held_out(text)]
KEPT = [text for text in TEXTS if not is_held_out(text)]


def split(corpus):
    return tuple(ByteTokenizer().decode(part[:]).split("\0")[:-1] for part in (corpus.train, corpus.validation))


def test_the_embedded_text_is_the_one_that_the_chapters_quote():
    """Records, and the numbers in the prose, are of this text, under whatever Python it is read."""
    digest = hashlib.sha256("\0".join(documents("embedded")).encode()).hexdigest()
    assert digest == "075e1cad719a6ff4a9bdcc2191b352000ccbae6f39fab46086851fdccfb5523f"


def test_embedded_corpus_is_real_text_split_by_document():
    corpus = load_corpus("embedded", progress=False)
    assert len(corpus.train) > 1_000_000 and 0.01 < len(corpus.validation) / len(corpus.train) < 0.1
    assert corpus.train.dtype == np.uint16 and corpus.train.max() < 256
    tokenizer = ByteTokenizer()
    held_out = set(tokenizer.decode(corpus.validation).split("\0"))
    trained = set(tokenizer.decode(corpus.train).split("\0"))
    assert len(held_out) > 12 and not (held_out & trained) - {""}
    assert corpus.digest == load_corpus("embedded", progress=False).digest


def test_reading_stops_at_the_document_that_fills_the_budget(tmp_path):
    path = write(tmp_path / "c.jsonl", [f"x{i:098}" for i in range(150)])
    corpus = load_corpus(path, max_tokens=4950, progress=False)
    assert len(corpus.train) + len(corpus.validation) == 5000
    assert [len(tokens_of(path, "byte", split, 450, progress=False)) for split in ("train", "all")] == [500, 500]


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
    assert corpus.train.max() == tokenizer.end_of_text
    assert "FineWeb" not in tokenizer.decode(corpus.train[:50])
    assert tokenizer.decode(tokenizer.encode("Ünï 🐈")) == "Ünï 🐈"


def test_the_bytes_that_investigation_c_divides_by_are_those_of_the_text(shared_data, gpt2, root):
    """Its losses per byte are losses per token over bytes a token: tokens are recorded, bytes stated in the cell."""
    text = list(documents(str(shared_data / "corpus" / "fineweb-validation.jsonl.xz")))
    cells = json.loads((root / "notebooks" / "c_what_it_uses.ipynb").read_text())["cells"]
    stated = re.search(r"HELD_OUT_BYTES = ([\d_]+)", "".join(line for cell in cells for line in cell["source"]))[1]
    assert int(stated) == sum(len(document.encode()) for document in text)
    encode = make_tokenizer("gpt2").encode
    tokens = sum(len(encode(document)) + 1 for document in text)  # each ends in the token for the end of a text
    assert tokens == runs.load("tiny_fineweb_evaluation")["data"]["tokens"]


def test_bad_corpora_get_one_clear_line(tmp_path):
    no_text = write_jsonl(tmp_path / "a.jsonl", [{"body": "x"}])
    with pytest.raises(ValueError, match="columns body; a column `text`"):
        load_corpus(no_text, progress=False)
    short = write(tmp_path / "b.jsonl", KEPT[:3])
    with pytest.raises(ValueError, match="gave 3 documents, and none to hold out .*; give more text, or a validation"):
        load_corpus(short, progress=False)
    with pytest.raises(ValueError, match="has no document of the split 'held_out' .*; give more text"):
        tokens_of(short, "byte", "held_out", progress=False)
    for shards in (None, tmp_path / "held"):
        with pytest.raises(ValueError, match="gave 2 documents, and none to train on .*; give more text$"):
            load_corpus(write(tmp_path / "d.jsonl", HELD[:2]), progress=False, shards=shards)
    with pytest.raises(ValueError, match="unknown tokenizer 'bpe'; accepted: byte, gpt2"):
        load_corpus("embedded", "bpe", progress=False)
    with pytest.raises(ValueError, match="max_tokens=0; give a number >= 1"):
        load_corpus("embedded", max_tokens=0, progress=False)


def test_shards_hold_out_the_same_documents(source, tmp_path):
    tokenize(source, tmp_path / "shards", "byte", shard_tokens=10_000, progress=False)
    corpus = load_corpus(str(tmp_path / "shards"), "byte")
    assert isinstance(corpus.train, ShardedTokens) and split(corpus) == (KEPT, HELD)
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
    count = len(train) + len(held_out)
    assert (train, held_out) == tuple([t for t in TEXTS[:count] if t in part] for part in (KEPT, HELD))


@pytest.mark.parametrize("through_shards", [False, True])
def test_a_validation_text_of_its_own(source, tmp_path, through_shards):
    other = write(tmp_path / "other.jsonl", ["held out", "and this"])
    shards = tmp_path / "shards" if through_shards else None
    corpus = load_corpus(source, "byte", progress=False, validation=other, shards=shards)
    assert split(corpus) == (KEPT, ["held out", "and this"])  # what the rule holds out is not trained on even so
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
    with pytest.raises(ValueError, match="made with tokenizer='byte' .*, now it is 'gpt2' .*; give the same"):
        load_corpus(str(tmp_path / "shards"), "gpt2")
    tokenize(write(tmp_path / "one.jsonl", KEPT[:1]), tmp_path / "one", "byte", progress=False)
    with pytest.raises(ValueError, match="one gave 1 documents, and none to hold out"):
        load_corpus(str(tmp_path / "one"), "byte")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty has no file that ends in .parquet.* and it is no folder of shards"):
        load_corpus(str(tmp_path / "empty"), "byte")


def test_an_empty_validation_text_is_refused(source, tmp_path):
    with pytest.raises(ValueError, match="none.jsonl cannot be read"):
        load_corpus(source, "byte", progress=False, validation=write(tmp_path / "none.jsonl", []))


def test_texts_of_ones_own_are_a_corpus(source):
    corpus = Corpus.from_texts(TEXTS, "byte")
    assert split(corpus) == (KEPT, HELD) and corpus.rule == RULE and corpus.vocab_size == 256
    assert corpus.digest == Corpus.from_texts(iter(TEXTS)).digest == load_corpus(source, progress=False).digest
    own = Corpus.from_texts(iter(TEXTS), validation=iter(["held out", "and this"]), source="mine")
    assert split(own) == (KEPT, ["held out", "and this"]) and own.source == "mine"
    assert Corpus.from_texts(KEPT[:1], validation=["one"]).validation.tolist() == [*b"one\0"]


def test_texts_take_a_tokenizer_of_ones_own(gpt2, tmp_path):
    save_tokenizer(make_tokenizer("gpt2:300"), tmp_path)
    loaded = load_tokenizer(tmp_path)
    by_name, *others = (Corpus.from_texts(TEXTS, tokenizer) for tokenizer in (
        "gpt2:300", loaded, tmp_path / "tokenizer.json", str(tmp_path / "tokenizer.json")))
    assert by_name.vocab_size == 300 and by_name.train.max() == by_name.tokenizer.end_of_text == 299
    assert {corpus.digest for corpus in others} == {by_name.digest} and others[0].tokenizer is loaded


def test_texts_that_are_no_corpus_get_one_line():
    for call, error, words in [
        (lambda: Corpus.from_texts("one text"), TypeError, "texts is one text; give a list of texts"),
        (lambda: Corpus.from_texts(TEXTS, validation="one"), TypeError, "validation is one text"),
        (lambda: Corpus.from_texts(TEXTS, validation=[]), ValueError, "validation has no documents; give at least"),
        (lambda: Corpus.from_texts(KEPT[:3]), ValueError, "texts gave 3 documents, and none to hold out"),
        (lambda: Corpus.from_texts(HELD[:3]), ValueError, "texts gave 3 documents, and none to train on"),
        (lambda: Corpus.from_texts(["a", None]), ValueError, "texts, document 2, is of type NoneType, and no text"),
        (lambda: Corpus.from_texts(["a", "\ud83d"]), ValueError, "texts, document 2, holds half of a surrogate pair"),
        (lambda: Corpus.from_texts([]), ValueError, "texts gave 0 documents, and none to train on"),
    ]:
        with pytest.raises(error, match=words) as caught:
            call()
        one_line(caught)


def test_shards_are_opened_by_what_the_tokenizer_is_not_by_its_name(source, tmp_path, gpt2):
    tokenize(source, tmp_path / "shards", "gpt2:300", progress=False)
    save_tokenizer(make_tokenizer("gpt2:300"), tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").unlink()  # then its name is that of the file
    loaded = load_tokenizer(tmp_path / "model")
    assert loaded.name == "tokenizer.json"
    assert load_corpus(tmp_path / "shards", loaded).vocab_size == 300
    other = write(tmp_path / "tokenizer.json", []) and tmp_path / "tokenizer.json"
    other.write_text(make_tokenizer("gpt2:301").to_json())
    with pytest.raises(ValueError, match="made with tokenizer='gpt2:300' .*, now it is 'tokenizer.json' .sha256"):
        load_corpus(tmp_path / "shards", other)


def test_a_text_in_memory_is_encoded_by_several_threads_in_order(source, monkeypatch):
    monkeypatch.setattr(chunks, "_DOCUMENTS", 7)
    seen, encode = [], ByteTokenizer.encode_batch
    monkeypatch.setattr(ByteTokenizer, "encode_batch", lambda self, texts, threads: seen.append(
        (len(texts), threads)) or encode(self, texts, threads))
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    assert split(load_corpus(source, progress=False)) == (KEPT, HELD)
    assert {threads for _, threads in seen} == {3} and sum(count for count, _ in seen) == len(TEXTS)
