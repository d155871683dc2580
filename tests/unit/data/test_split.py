"""One rule of splitting: the same documents are held out in every source and layout, for training and measuring."""

import json

import numpy as np
import pytest
from shard_texts import write_jsonl

from caracal_min.data import RULE, ByteTokenizer, is_held_out, load_corpus, tokens_of
from caracal_min.data.manifest import Manifest
from caracal_min.data.shards import ShardedTokens
from caracal_min.data.write_shards import tokenize

TEXTS = [f"text {i}: {'word ' * (i % 9)}" for i in range(400)]
HELD = [text for text in TEXTS if is_held_out(text)]
KEPT = [text for text in TEXTS if not is_held_out(text)]


def texts_of(tokens):
    return ByteTokenizer().decode(tokens[:]).split("\0")[:-1]


def test_the_rule_is_what_it_always_was():
    """Were it to change, texts that old models were trained on would be called held out: then it needs a new name."""
    assert RULE == "sha256 of the text, one document in 20"
    assert [i for i in range(100) if is_held_out(str(i))] == [96]
    assert is_held_out("") is False
    assert 0.045 < np.mean([is_held_out(f"document {i}") for i in range(20_000)]) < 0.055


@pytest.fixture(params=["file", "reversed", "folder", "parquet", "stream", "shards", "shards of another size"])
def source(request, tmp_path, hub):
    """The same texts, stored in another way."""
    rows = [{"text": text} for text in TEXTS]
    path = write_jsonl(tmp_path / "texts.jsonl", rows)
    if request.param == "reversed":
        path = write_jsonl(tmp_path / "reversed.jsonl.gz", rows[::-1])
    elif request.param == "folder":
        (tmp_path / "folder").mkdir()
        write_jsonl(tmp_path / "folder" / "b.jsonl", rows[:130])
        write_jsonl(tmp_path / "folder" / "a.jsonl.xz", rows[130:])
        path = tmp_path / "folder"
    elif request.param == "parquet":
        import pyarrow
        import pyarrow.parquet

        path = tmp_path / "texts.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS}), path, row_group_size=37)
    elif request.param == "stream":
        hub.rows = rows
        return "fineweb"
    elif request.param.startswith("shards"):
        size = 1000 if request.param == "shards" else 777
        tokenize(path, tmp_path / "shards", "byte", size, progress=False)
        path = tmp_path / "shards"
    return str(path)


def test_no_document_is_on_both_sides_however_it_is_read(source, tmp_path):
    """What trains (in memory, and through shards) and what measures, each from the same texts stored in its own way."""
    sources = [load_corpus(source, progress=False), load_corpus(source, progress=False, shards=tmp_path / "run")]
    for corpus in sources:
        assert sorted(texts_of(corpus.train)) == sorted(KEPT) and corpus.rule == RULE
        assert sorted(texts_of(corpus.validation)) == sorted(HELD)
    for side, expected in (("held_out", HELD), ("train", KEPT), ("all", TEXTS)):
        assert sorted(texts_of(tokens_of(source, "byte", side, progress=False))) == sorted(expected)
    other = write_jsonl(tmp_path / "other.jsonl", [{"text": "measured"}])
    assert sorted(texts_of(load_corpus(source, progress=False, validation=other).train)) == sorted(KEPT)


def test_what_is_read_of_a_source_does_not_move_a_document(tmp_path):
    path = write_jsonl(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    for limit in (3000, 5000, None):
        corpus = load_corpus(path, max_tokens=limit, progress=False)
        assert set(texts_of(corpus.train)) <= set(KEPT) and set(texts_of(corpus.validation)) <= set(HELD)
    measured = texts_of(tokens_of(path, "byte", "held_out", 100, progress=False))
    assert measured == HELD[:len(measured)] and sum(map(len, measured)) + len(measured) >= 100


def test_manifests_say_by_which_rule_and_what(tmp_path):
    path = write_jsonl(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    manifest = tokenize(path, tmp_path / "out", "byte", 2000, progress=False)
    stored = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert stored["rule"] == RULE == Manifest.load(tmp_path / "out").settings.rule
    ids = ShardedTokens(tmp_path / "out")[:]
    marked = [ids[i * 2000 + int(a):i * 2000 + int(b)] for i, shard in enumerate(stored["shards"])
              for a, b in (pair.split("-") for pair in shard["held_out"].split())]
    assert texts_of(np.concatenate(marked)) == HELD and manifest.documents == 400
