"""Texts to a folder of ids: the same as in memory, killed anywhere and resumed."""

import json
from contextlib import suppress

import numpy as np
import pytest
from shard_texts import TEXTS, write_rows

from caracal_min.data import Batches, ByteTokenizer, load_corpus, make_tokenizer, shards, tokenize, tokens_of
from caracal_min.data.shards import open_shards
from caracal_min.files import file_sha256


@pytest.fixture
def source(tmp_path):
    return write_rows(tmp_path / "texts.jsonl", TEXTS)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("batch", [1, 7, 256])
def test_a_folder_holds_the_splits_of_memory_in_two_plain_files(source, tmp_path, monkeypatch, batch):
    monkeypatch.setattr(shards, "BATCH", batch)
    memory, out = load_corpus(source, progress=False), tmp_path / "out"
    index = tokenize(source, out, "byte", progress=False)
    assert sorted(contents(out)) == ["held_out.bin", "shards.json", "train.bin"]
    assert (out / "train.bin").read_bytes() == memory.train.tobytes()
    assert (out / "held_out.bin").read_bytes() == memory.validation.tobytes()
    assert index == json.loads((out / "shards.json").read_text())
    assert (index["documents"], index["train"], index["held_out"], index["digest"]) == (
        len(TEXTS), len(memory.train), len(memory.validation), memory.digest)
    mapped = load_corpus(out, progress=False)
    assert isinstance(mapped.train, np.memmap) and mapped.digest == memory.digest
    for ours, theirs in zip(Batches(mapped.train, 32, 8)[5], Batches(memory.train, 32, 8)[5], strict=True):
        assert (ours == theirs).all()
    for split, expected in (("train", memory.train), ("held_out", memory.validation),
                            ("all", [*memory.train, *memory.validation])):
        assert (tokens_of(out, "byte", split) == expected).all()
    assert len(load_corpus(out, max_tokens=777).train) == 777


def test_ids_beyond_two_bytes_take_four(source, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SAVED_EVERY", 50)
    class Wide(ByteTokenizer):
        vocab_size, end_of_text = 70_000, 69_999

    tokenize(source, tmp_path / "out", Wide(), progress=False)
    memory = load_corpus(source, Wide(), progress=False)
    for ours, theirs in zip(open_shards(tmp_path / "out", Wide()), (memory.train, memory.validation), strict=True):
        assert ours.dtype == np.uint32 and ours.max() == 69_999 and (ours == theirs).all()


@pytest.mark.parametrize("limit", [1, 4000, 30_000, 10**9])
def test_a_budget_limits_what_is_trained_on_and_held_out_documents_come_on_top(source, tmp_path, limit):
    whole, corpus = (load_corpus(source, max_tokens=most, progress=False) for most in (None, max(limit, 4000)))
    tokens = whole.train.tolist()
    ends = [i + 1 for i, token in enumerate(tokens) if token == 0]
    expected = next((end for end in ends if end >= limit), len(tokens))
    index = tokenize(source, tmp_path / "out", "byte", limit, progress=False)
    assert index["train"] == expected and index["held_out"] <= len(whole.validation)
    if limit >= 4000:
        assert len(corpus.train) == expected and len(corpus.validation) == index["held_out"]


@pytest.mark.parametrize("limit", [None, 120_000])
def test_killed_anywhere_and_resumed_ends_with_the_same_bytes(source, tmp_path, monkeypatch, limit):
    """Before each write of the index, and behind it, each call going on from the last one's ruins."""
    monkeypatch.setattr(shards, "SAVED_EVERY", 100)
    tokenize(source, tmp_path / "whole", "byte", limit, progress=False)
    out, write, kills = tmp_path / "out", shards._write, 0
    for step, end in enumerate([0, 0, 1, 2, 0, 1, 0]):
        when = ("before", "after")[step % 2]
        seen = []

        def killed(*arguments, when=when, end=end, seen=seen):
            if when == "before" and len(seen) == end:
                raise KeyboardInterrupt
            write(*arguments)
            seen.append(arguments)
            if when == "after" and len(seen) > end:
                raise KeyboardInterrupt

        monkeypatch.setattr(shards, "_write", killed)
        with suppress(KeyboardInterrupt):
            tokenize(source, out, "byte", limit, progress=False)
            kills -= 1
        kills += 1
    assert kills == 7
    monkeypatch.setattr(shards, "_write", write)
    tokenize(source, out, "byte", limit, progress=False)
    assert contents(out) == contents(tmp_path / "whole")


def test_a_complete_folder_needs_its_source_no_more_and_stays_as_it_is(source, tmp_path):
    first = load_corpus(source, max_tokens=5000, progress=False, shards=tmp_path / "run")
    before = {path: (path.stat().st_mtime_ns, file_sha256(path)) for path in (tmp_path / "run").iterdir()}
    source.unlink()
    for most in (5000, 9000, None):  # a longer run goes on with the text that it began with
        again = load_corpus(source, max_tokens=most, progress=False, shards=tmp_path / "run")
        assert again.digest == first.digest and again.source == str(tmp_path / "run")
    assert before == {path: (path.stat().st_mtime_ns, file_sha256(path)) for path in (tmp_path / "run").iterdir()}


def test_shards_of_another_source_or_tokenizer_are_refused(source, tmp_path, gpt2):
    tokenize(source, tmp_path / "out", "byte", progress=False)
    with pytest.raises(ValueError, match="was made with source='texts.jsonl', and now it is 'embedded'; give the same"):
        load_corpus("embedded", shards=tmp_path / "out")
    source.write_text(source.read_text() + source.read_text().splitlines()[0] + "\n")  # it has grown since
    with pytest.raises(ValueError, match="was made with source_bytes="):
        tokenize(source, tmp_path / "out", "byte", progress=False)
    for call in (lambda: load_corpus(tmp_path / "out", "gpt2:300"), lambda: tokens_of(tmp_path / "out", "gpt2:300")):
        with pytest.raises(ValueError, match="was made with tokenizer_sha256=.* give the same, or another folder"):
            call()
    assert load_corpus(tmp_path / "out", make_tokenizer("byte")).vocab_size == 256
