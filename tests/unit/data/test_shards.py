"""What a folder of shards holds: read back, corrupted, pickled."""

import hashlib
import json
import os
import pickle
import random
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_texts import SIZE, STREAM, TEXTS, one_line, write_jsonl

from caracal_min.data import chunks, is_held_out, sequential_windows
from caracal_min.data.shards import Manifest, ShardedTokens, verify
from caracal_min.data.write_shards import tokenize


def test_shards_hold_every_document_and_its_end_in_order(whole):
    verify(whole)
    manifest = Manifest.load(whole)
    assert manifest.complete and manifest.documents == len(TEXTS) and manifest.tokens == len(STREAM)
    sizes = [shard["tokens"] for shard in manifest.shards]
    assert len(sizes) > 3 and set(sizes[:-1]) == {SIZE} and 0 < sizes[-1] <= SIZE
    files = sorted(whole.glob("shard_*.bin"))
    assert [path.name for path in files] == [f"shard_{i:05d}.bin" for i in range(len(sizes))]
    assert b"".join(path.read_bytes() for path in files) == STREAM.astype("<u2").tobytes()
    ends = np.cumsum([len(text.encode()) + 1 for text in TEXTS])
    for i, shard in enumerate(manifest.shards[:-1]):
        border = (i + 1) * SIZE
        count = int((ends <= border).sum())
        assert shard["documents"] == count and shard["offset"] == border - ([0, *ends][count])
        assert shard["sha256"] == hashlib.sha256(files[i].read_bytes()).hexdigest()
    assert any(shard["offset"] for shard in manifest.shards)  # a border inside a document was tried


def flip_byte(folder):
    data = bytearray((folder / "shard_00001.bin").read_bytes())
    data[777] ^= 1
    (folder / "shard_00001.bin").write_bytes(data)


def truncate(folder):
    os.truncate(folder / "shard_00002.bin", 2 * SIZE - 2)


def delete(folder):
    (folder / "shard_00001.bin").unlink()


def add_foreign(folder):
    (folder / "shard_00099.bin").write_bytes(b"..")


def swap_shards(folder):
    (folder / "shard_00000.bin").rename(folder / "t")
    (folder / "shard_00001.bin").rename(folder / "shard_00000.bin")
    (folder / "t").rename(folder / "shard_00001.bin")


def edit_manifest(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"documents": 150', '"documents": 149'))


def break_json(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text()[:-20])


def other_json(folder):
    (folder / "manifest.json").write_text('["a list"]')


def no_manifest(folder):
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize("spoil, words, seen_at_opening", [
    (flip_byte, "shard_00001.bin has another hash", False),
    (swap_shards, "shard_00000.bin has another hash", False),
    (add_foreign, "shard_00099.bin is not listed", False),
    (truncate, "shard_00002.bin has 4,998 bytes, the manifest says 5,000", True),
    (delete, "shard_00001.bin is missing", True),
    (edit_manifest, "manifest.json .*it was edited: it does not match", True),
    (break_json, "manifest.json is not a readable manifest", True),
    (other_json, "manifest.json is not a readable manifest", True),
    (no_manifest, "no .*manifest.json", True),
])
def test_damage_is_found_and_named(damaged, spoil, words, seen_at_opening):
    spoil(damaged)
    with pytest.raises((ValueError, FileNotFoundError), match=words) as caught:
        verify(damaged)
    one_line(caught)
    if seen_at_opening:
        with pytest.raises((ValueError, FileNotFoundError), match=words):
            ShardedTokens(damaged)


def test_a_run_does_not_go_on_from_damage(damaged, source):
    truncate(damaged)
    with pytest.raises(ValueError, match="shard_00002.bin has 4,998 bytes"):
        tokenize(source, damaged, "byte", SIZE, progress=False)


@given(st.data())
@settings(deadline=None)
def test_reads_cross_borders(whole, data):
    tokens = ShardedTokens(whole)
    border = st.integers(0, len(STREAM) // SIZE).map(lambda i: i * SIZE)
    start = data.draw(st.one_of(st.integers(0, len(STREAM)), border))
    count = data.draw(st.one_of(st.integers(0, len(STREAM) - start), st.integers(0, min(5, len(STREAM) - start))))
    found = tokens.read(start, count)
    assert found.dtype == np.int64 and found.shape == (count,)
    assert (found == STREAM[start:start + count]).all()
    stop = data.draw(st.integers(-10, len(STREAM) + 10))
    assert (tokens[start:stop] == STREAM[start:stop]).all()


def splits_of(texts):
    """What each split of the shards of some texts should be, by the rule alone."""
    chosen = {"train": [text for text in texts if not is_held_out(text)],
              "held_out": [text for text in texts if is_held_out(text)], "all": texts}
    return {split: np.array([*b"".join(text.encode() + b"\0" for text in some)], np.int64)
            for split, some in chosen.items()}


@given(st.data())
@settings(deadline=None)
def test_a_split_reads_as_if_the_rest_were_not_there(whole, data):
    split = data.draw(st.sampled_from(["train", "held_out", "all"]))
    tokens, expected = ShardedTokens(whole, split), splits_of(TEXTS)[split]
    assert len(tokens) == len(expected) > 0
    start = data.draw(st.integers(0, len(expected)))
    count = data.draw(st.integers(0, len(expected) - start))
    assert (tokens.read(start, count) == expected[start:start + count]).all()
    assert (tokens.head(start)[:] == expected[:start]).all()


@pytest.mark.parametrize("size, chunk", [(3, 2), (500, 1), (1999, 7), (10**6, 256)])
def test_the_splits_are_the_same_in_every_layout(tmp_path, monkeypatch, size, chunk):
    monkeypatch.setattr(chunks, "_DOCUMENTS", chunk)
    texts = TEXTS[5:10] if size == 3 else TEXTS
    source = write_jsonl(tmp_path / "some.jsonl", [{"text": text} for text in texts])
    tokenize(source, tmp_path / "out", "byte", size, progress=False)
    for split, expected in splits_of(texts).items():
        assert (ShardedTokens(tmp_path / "out", split)[:] == expected).all()
    with pytest.raises(ValueError, match="split='test'; accepted: train, held_out, all"):
        ShardedTokens(tmp_path / "out", "test")


def rewritten(folder, change):
    """Change what a manifest says, and its digest with it, as somebody would who wants to be believed."""
    path = folder / "manifest.json"
    stored = json.loads(path.read_text())
    change(stored)
    stored.pop("digest")
    digest = hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(stored | {"digest": digest}))


@pytest.mark.parametrize("change, words", [
    (lambda m: m["shards"][0].update(name="../shard_00000.bin"), "shard 0 is ../shard_00000.bin"),
    (lambda m: m["shards"][1].update(name="/etc/passwd"), "shard 1 is /etc/passwd"),
    (lambda m: m["shards"][1].update(name="shard_00000.bin"), "shard 1 is shard_00000.bin"),
    (lambda m: m["shards"][0].update(tokens=2499), "shard 0 is .* with 2499 tokens"),
    (lambda m: m["shards"][-1].update(tokens=0), "with 0 tokens"),
    (lambda m: m["shards"][0].pop("held_out"), "held_out"),
    (lambda m: m["shards"][0].update(held_out="3-1"), "held_out of shard 0 is not in order"),
    (lambda m: m["shards"][0].update(held_out="0-2501"), "leaves its 2500 tokens"),
    (lambda m: m["shards"][0].update(held_out="1-2-3"), "readable"),
    (lambda m: m["shards"].__setitem__(0, []), "readable"),
    (lambda m: m.update(tokens=10), "tokens=10, and the shards have others"),
    (lambda m: m.update(rule="every tenth document"), "rule='every tenth document'"),
    (lambda m: m.update(dtype="<u4"), "dtype='<u4'"),
    (lambda m: m.update(more=1), "more"),
    (lambda m: m.pop("tokenizer_sha256"), "tokenizer_sha256"),
])
def test_a_manifest_that_says_what_cannot_be_is_refused(damaged, change, words):
    rewritten(damaged, change)
    for call in (lambda: ShardedTokens(damaged), lambda: verify(damaged)):
        with pytest.raises(ValueError, match=words) as caught:
            call()
        assert "is not a readable manifest of shards" in one_line(caught)


def test_nothing_outside_the_folder_is_read(damaged, tmp_path):
    """A manifest that is right but for a name that leads elsewhere, where the same bytes lie."""
    (tmp_path / "elsewhere.bin").write_bytes((damaged / "shard_00000.bin").read_bytes())
    for name in ("../elsewhere.bin", str(tmp_path / "elsewhere.bin")):
        rewritten(damaged, lambda m, name=name: m["shards"][0].update(name=name))
        with pytest.raises(ValueError, match="shard 0 is "):
            ShardedTokens(damaged)


def test_every_flipped_bit_is_found_when_its_shard_is_read(whole, damaged):
    draw, size = random.Random(0), (damaged / "shard_00001.bin").stat().st_size
    for _ in range(50):
        data = bytearray((whole / "shard_00001.bin").read_bytes())
        data[draw.randrange(size)] ^= 1 << draw.randrange(8)
        (damaged / "shard_00001.bin").write_bytes(data)
        tokens = ShardedTokens(damaged)
        assert (tokens[:SIZE] == STREAM[:SIZE]).all()  # another shard
        for _ in range(2):
            with pytest.raises(ValueError, match="shard_00001.bin has another hash than the manifest says") as caught:
                tokens.read(SIZE + draw.randrange(SIZE), 1)
            one_line(caught)


def test_a_shard_is_hashed_once_however_often_it_is_read(damaged, monkeypatch):
    real, hashed = hashlib.sha256, []

    def counted(data=b""):
        if isinstance(data, np.ndarray):
            hashed.append(len(data))
        return real(data)

    monkeypatch.setattr(hashlib, "sha256", counted)
    tokens = ShardedTokens(damaged)
    assert hashed == []
    for _ in range(3):
        tokens[:SIZE + 1]
    ShardedTokens(damaged).head(9)[:]
    ShardedTokens(damaged, "train")[:9]
    assert hashed == [SIZE, SIZE]


def test_reads_outside_are_errors(whole):
    tokens = ShardedTokens(whole)
    assert len(tokens) == len(STREAM) and len(tokens.read(len(tokens), 0)) == 0
    for start, count in ((-1, 2), (0, len(tokens) + 1), (len(tokens), 1), (3, -1)):
        with pytest.raises(IndexError, match=f"start={start}, count={count} leaves the") as caught:
            tokens.read(start, count)
        one_line(caught)
    with pytest.raises(ValueError, match="step 2"):
        tokens[0:10:2]
    assert (sequential_windows(tokens, 64) == sequential_windows(STREAM, 64)).all()


def test_a_pickle_holds_no_tokens_and_reads_the_same(whole, damaged, monkeypatch, tmp_path):
    """As a worker process gets them: by a relative path, and under another working directory."""
    monkeypatch.chdir(whole.parent)
    for tokens in (ShardedTokens(whole.name), ShardedTokens(whole.name, "train").head(3000)):
        stored = pickle.dumps(tokens)
        assert len(stored) < 1000
        monkeypatch.chdir(tmp_path)
        again = pickle.loads(stored)
        assert (again[:] == tokens[:]).all() and again.digest == tokens.digest
        monkeypatch.chdir(whole.parent)
    stored = pickle.dumps(ShardedTokens(damaged))
    rewritten(damaged, lambda m: m["shards"][0].update(sha256="0" * 64))
    with pytest.raises(ValueError, match="copy holds other tokens than when this was pickled") as caught:
        pickle.loads(stored)
    one_line(caught)


def test_the_digest_of_tokens_is_that_of_their_content(source, whole, tmp_path):
    """Where they lie, what the source was called and whether all of it was asked for makes no other tokens."""
    shutil.copytree(whole, tmp_path / "moved")
    renamed = shutil.copy(source, tmp_path / "renamed.jsonl")
    tokenize(renamed, tmp_path / "again", "byte", SIZE, limit_documents=10**6, progress=False)
    for split in ("train", "held_out", "all"):
        digests = {ShardedTokens(folder, split).digest for folder in (whole, tmp_path / "moved", tmp_path / "again")}
        assert len(digests) == 1
    other = write_jsonl(tmp_path / "other.jsonl", [{"text": text} for text in reversed(TEXTS)])
    tokenize(other, tmp_path / "other", "byte", SIZE, progress=False)
    assert ShardedTokens(tmp_path / "other").digest != ShardedTokens(whole).digest
