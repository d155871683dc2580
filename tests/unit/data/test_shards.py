"""What a folder of shards holds: read back, corrupted, and of an earlier version."""

import hashlib
import json
import os
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_texts import SIZE, STREAM, TEXTS, contents, one_line, write_jsonl

from caracal_min.data import RULE, is_held_out, sequential_windows, write_shards
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


OLD = """{
 "source": "texts.jsonl",
 "source_sha256": "26cc03f4f38a24f513f38dc1803055ba20bcff3800bf749003b8fb59d7cfb71e",
 "tokenizer": "byte",
 "vocab_size": 256,
 "end_of_text": 0,
 "shard_tokens": 4,
 "limit_documents": 9,
 "limit_tokens": null,
 "complete": true,
 "documents": 2,
 "tokens": 7,
 "shards": [
  {
   "name": "shard_00000.bin",
   "tokens": 4,
   "documents": 1,
   "offset": 0,
   "sha256": "54f0a6ab7fb3d5cec5075b63ab8756fdb01634129601bf5103b3f3e424509cdc"
  },
  {
   "name": "shard_00001.bin",
   "tokens": 3,
   "documents": 2,
   "offset": 0,
   "sha256": "c9f930f1d75f29693468d2bfd0c0795d9c7788f885f01d08bab30ea75777e956"
  }
 ],
 "dtype": "<u2",
 "digest": "0963859d7b96b279face5d8a01072ce641533c2eb55bd8bce58949a7abcedacb"
}
"""


def test_a_folder_of_the_first_version_is_read_and_written_byte_for_byte(tmp_path):
    """Its manifest was written when the settings were fields of it; the file is as flat as then."""
    source, out = tmp_path / "texts.jsonl", tmp_path / "out"
    source.write_text('{"text": "abc"}\n{"text": "de"}\n')
    out.mkdir()
    (out / "manifest.json").write_text(OLD)
    (out / "shard_00000.bin").write_bytes(b"a\0b\0c\0\0\0")
    (out / "shard_00001.bin").write_bytes(b"d\0e\0\0\0")
    verify(out)
    assert ShardedTokens(out)[:].tolist() == [*b"abc\0de\0"]
    before, manifest = contents(out), Manifest.load(out)
    assert manifest.settings.limit_documents == 9 and manifest.settings.limit_tokens is None
    assert tokenize(source, out, "byte", 4, limit_documents=9, progress=False) == manifest
    with pytest.raises(ValueError, match="limit_tokens=None, now it is 3"):
        tokenize(source, out, "byte", 4, limit_documents=9, limit_tokens=3, progress=False)
    manifest.save(out)
    assert contents(out) == before
    tokenize(source, tmp_path / "again", "byte", 4, limit_documents=9, progress=False)
    now = contents(tmp_path / "again")
    assert {name: now[name] for name in before if name != "manifest.json"} | {"manifest.json": OLD.encode()} == before
    assert Manifest.load(tmp_path / "again").settings == replace(manifest.settings, rule=RULE)


def test_a_folder_that_the_first_version_left_unfinished_ends_as_it_began(tmp_path):
    source, out = tmp_path / "texts.jsonl", tmp_path / "out"
    source.write_text('{"text": "abc"}\n{"text": "de"}\n')
    out.mkdir()
    (out / "manifest.json").write_text(OLD)
    old = Manifest.load(out)
    (out / "shard_00000.bin").write_bytes(b"a\0b\0c\0\0\0")
    replace(old, complete=False, documents=1, tokens=4, shards=old.shards[:1]).save(out)
    assert tokenize(source, out, "byte", 4, limit_documents=9, progress=False) == old
    assert contents(out)["manifest.json"] == OLD.encode()


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
    (edit_manifest, "manifest.json was edited", True),
    (break_json, "manifest.json is not a readable manifest", True),
    (other_json, "manifest.json is not a readable manifest", True),
    (no_manifest, "no .*manifest.json", True),
])
def test_damage_is_found_and_named(damaged, spoil, words, seen_at_opening):
    spoil(damaged)
    with pytest.raises((ValueError, FileNotFoundError), match=words) as caught:
        verify(damaged)
    one_line(caught)
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        ShardedTokens(damaged, check_hashes=True)
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


def parts_of(texts):
    """What each part of the shards of some texts should be, by the rule of splitting alone."""
    chosen = {"train": [text for text in texts if not is_held_out(text)],
              "held_out": [text for text in texts if is_held_out(text)], "all": texts}
    return {part: np.array([*b"".join(text.encode() + b"\0" for text in some)], np.int64)
            for part, some in chosen.items()}


@given(st.data())
@settings(deadline=None)
def test_a_part_reads_as_if_the_rest_were_not_there(whole, data):
    part = data.draw(st.sampled_from(["train", "held_out", "all"]))
    tokens, expected = ShardedTokens(whole, part), parts_of(TEXTS)[part]
    assert len(tokens) == len(expected) > 0
    start = data.draw(st.integers(0, len(expected)))
    count = data.draw(st.integers(0, len(expected) - start))
    assert (tokens.read(start, count) == expected[start:start + count]).all()
    assert (tokens.head(start)[:] == expected[:start]).all()


@pytest.mark.parametrize("size, chunk", [(3, 2), (500, 1), (1999, 7), (10**6, 256)])
def test_the_parts_are_the_same_in_every_layout(tmp_path, monkeypatch, size, chunk):
    monkeypatch.setattr(write_shards, "_CHUNK", chunk)
    texts = TEXTS[5:10] if size == 3 else TEXTS
    source = write_jsonl(tmp_path / "some.jsonl", [{"text": text} for text in texts])
    tokenize(source, tmp_path / "out", "byte", size, progress=False)
    for part, expected in parts_of(texts).items():
        assert (ShardedTokens(tmp_path / "out", part)[:] == expected).all()
    with pytest.raises(ValueError, match="part='test'; accepted: train, held_out, all"):
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
    (lambda m: m["shards"][0].update(name="../shard_00000.bin"), "shards/0/name='../shard_00000.bin', accepted: 's"),
    (lambda m: m["shards"][1].update(name="/etc/passwd"), "shards/1/name='/etc/passwd'"),
    (lambda m: m["shards"][1].update(name="shard_00000.bin"), "accepted: 'shard_00001.bin'"),
    (lambda m: m["shards"][0].update(name=7), "shards/0/name is '7', accepted: a text"),
    (lambda m: m["shards"][0].pop("sha256"), "shards/0/sha256 is missing"),
    (lambda m: m["shards"][0].update(sha256="AB" * 32), "shards/0/sha256 is .* a SHA-256 in hexadecimal"),
    (lambda m: m["shards"][0].update(tokens=2499), "shards/0/tokens=2499, of shards with 2500"),
    (lambda m: m["shards"][0].update(documents=10**9), "shards/1/documents="),
    (lambda m: m["shards"][0].update(more=1), "shards/0/more is not known"),
    (lambda m: m["shards"][0].update(held_out="3-1"), "shards/0/held_out is not in order"),
    (lambda m: m["shards"][0].update(held_out="0-2501"), "leaves the 2500 tokens"),
    (lambda m: m["shards"][0].update(held_out="1-2-3"), "shards/0/held_out is .*, accepted: ranges"),
    (lambda m: m["shards"].__setitem__(0, []), "shards/0 is no object"),
    (lambda m: m.update(tokens=10), "tokens=10, the shards have"),
    (lambda m: m.update(documents=True), "documents is 'True', accepted: a number"),
    (lambda m: m.update(complete="yes"), "complete is 'yes', accepted: true or false"),
    (lambda m: m.update(shard_tokens=0), "shard_tokens is '0', accepted: a number >= 1"),
    (lambda m: m.update(vocab_size=10**6), "vocab_size is '1000000', accepted: a number from 1 to 65,536"),
    (lambda m: m.update(end_of_text=256), "end_of_text=256, of 256 ids"),
    (lambda m: m.update(dtype="<u4"), "dtype is '<u4', accepted: '<u2'"),
    (lambda m: m.update(source=None), "source is 'None', accepted: a text"),
    (lambda m: m.update(shards={}), "shards is '{}', accepted: a list"),
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
        with pytest.raises(ValueError, match="shards/0/name="):
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
