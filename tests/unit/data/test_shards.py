"""What a folder of shards holds: read back, corrupted, and of an earlier version."""

import hashlib
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shard_texts import SIZE, STREAM, TEXTS, contents, one_line

from caracal_min.data import sequential_windows
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
    assert contents(tmp_path / "again") == before


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
