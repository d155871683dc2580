"""One rule of splitting: the same documents are held out in every source and layout, for training and measuring."""

import json

import datasets
import numpy as np
import pytest
from shard_texts import write_jsonl

from caracal_min.data import RULE, ByteTokenizer, is_held_out, load_corpus, split, tokens_of
from caracal_min.data.corpus import require_rule
from caracal_min.data.shards import Manifest, ShardedTokens
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
def source(request, tmp_path, monkeypatch):
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
        monkeypatch.setattr(datasets, "load_dataset", lambda *_, **options: rows)
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
    for part, expected in (("held_out", HELD), ("train", KEPT), ("all", TEXTS)):
        assert sorted(texts_of(tokens_of(source, "byte", part, progress=False))) == sorted(expected)
    other = write_jsonl(tmp_path / "other.jsonl", [{"text": "measured"}])
    assert sorted(texts_of(load_corpus(source, progress=False, validation=other).train)) == sorted(KEPT)


def test_what_is_read_of_a_source_does_not_move_a_document(tmp_path):
    path = write_jsonl(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    for limit in (3000, 5000, None):
        corpus = load_corpus(path, max_tokens=limit, progress=False)
        assert set(texts_of(corpus.train)) <= set(KEPT) and set(texts_of(corpus.validation)) <= set(HELD)
    measured = texts_of(tokens_of(path, "byte", "held_out", 100, progress=False))
    assert measured == HELD[:len(measured)] and sum(map(len, measured)) + len(measured) >= 100


@pytest.fixture
def earlier(tmp_path):
    """Shards as an earlier version wrote them: without marks."""
    path = write_jsonl(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    tokenize(path, tmp_path / "old", "byte", 1000, progress=False)
    stored = json.loads((tmp_path / "old" / "manifest.json").read_text())
    old = {k: v for k, v in stored.items() if k not in ("rule", "digest")}
    old["shards"] = [{k: v for k, v in shard.items() if k != "held_out"} for shard in old["shards"]]
    write_manifest(tmp_path / "old", old)
    return tmp_path / "old"


def write_manifest(folder, stored):
    import hashlib

    digest = hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(stored | {"digest": digest}))


def test_shards_of_an_earlier_version_are_trained_on_as_before_and_say_so(earlier, tmp_path, capsys):
    for call in (dict(source=str(earlier)), dict(source=str(tmp_path / "texts.jsonl"), shards=earlier)):
        if "shards" in call:  # a run whose own shards are of that version, with another size, goes on with them
            tokenize(tmp_path / "texts.jsonl", tmp_path / "own", "byte", progress=False)
            stored = json.loads((tmp_path / "own" / "manifest.json").read_text())
            stored = {k: v for k, v in stored.items() if k not in ("rule", "digest")}
            del stored["shards"][0]["held_out"]
            write_manifest(tmp_path / "own", stored)
            call["shards"] = tmp_path / "own"
        corpus = load_corpus(**call, progress=False)
        train, measured = texts_of(corpus.train), texts_of(corpus.validation)
        assert train + measured == TEXTS and 2 <= len(measured) <= 8
        assert corpus.rule == "the documents in the last hundredth of the tokens"
        said = [line for line in capsys.readouterr().out.splitlines() if "as an earlier version did" in line]
        assert len(said) == 1 and corpus.rule in said[0] and "evaluate --split held_out refuses" in said[0]
    other = write_jsonl(tmp_path / "other.jsonl", [{"text": "measured"}])
    corpus = load_corpus(str(earlier), progress=False, validation=other)
    assert texts_of(corpus.train) == TEXTS and corpus.rule is None
    assert "nothing of it is held out" in capsys.readouterr().out


def test_a_split_that_cannot_be_known_is_refused(earlier, tmp_path):
    for rule in (None, "every third document"):
        if rule is not None:
            tokenize(tmp_path / "texts.jsonl", tmp_path / "third", "byte", progress=False)
            stored = json.loads((tmp_path / "third" / "manifest.json").read_text())
            stored.pop("digest")
            write_manifest(tmp_path / "third", stored | {"rule": rule})
        folder = earlier if rule is None else tmp_path / "third"
        for part in ("held_out", "train"):
            with pytest.raises(ValueError, match=rule or "no rule, an earlier version made it") as caught:
                tokens_of(str(folder), "byte", part)
            assert "\n" not in str(caught.value) and RULE in str(caught.value)
        assert texts_of(tokens_of(str(folder), "byte")) == TEXTS
    with pytest.raises(ValueError, match="does not say which of its documents are held out"):
        ShardedTokens(earlier, "train")
    require_rule(str(tmp_path / "texts.jsonl"))


def test_a_corpus_in_memory_that_an_earlier_version_split_comes_back(tmp_path, capsys):
    path = write_jsonl(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    now = load_corpus(path, progress=False)
    assert capsys.readouterr().out == ""
    encoded = [np.array([*text.encode(), 0], np.uint16) for text in TEXTS]
    train = np.concatenate([ids for i, ids in enumerate(encoded) if i % 10 != 9])
    measured = np.concatenate(encoded[9::10])
    digest = type(now)("", "byte", train, measured).digest
    before = load_corpus(path, progress=False, digest=digest)
    assert before.digest == digest != now.digest and before.rule == split.EVERY_TENTH
    assert "held out are every tenth document; the run keeps to that" in capsys.readouterr().out
    assert load_corpus(path, progress=False, digest="0" * 64).digest == now.digest
    assert load_corpus(path, progress=False, digest=now.digest).rule == RULE


def test_manifests_say_by_which_rule_and_what(tmp_path):
    path = write_jsonl(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    manifest = tokenize(path, tmp_path / "out", "byte", 2000, progress=False)
    stored = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert stored["rule"] == RULE == Manifest.load(tmp_path / "out").settings.rule
    ids = ShardedTokens(tmp_path / "out")[:]
    marked = [ids[i * 2000 + int(a):i * 2000 + int(b)] for i, shard in enumerate(stored["shards"])
              for a, b in (pair.split("-") for pair in shard["held_out"].split())]
    assert texts_of(np.concatenate(marked)) == HELD and manifest.documents == 400
