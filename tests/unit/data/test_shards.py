"""Token shards: real text through the real path, killed, resumed, corrupted, and read back in batches."""

import hashlib
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from caracal_min.data import Batches, documents, sequential_windows, write_shards
from caracal_min.data.shards import Manifest, ShardedTokens, ShardSettings, verify
from caracal_min.data.write_shards import tokenize

TEXTS = [("", "a", "tiny text", "é" * 40, "line\n" * 30, "x" * 500)[i % 6] + str(i) * (i % 4) for i in range(150)]
STREAM = np.frombuffer(b"".join(text.encode() + b"\0" for text in TEXTS), dtype=np.uint8).astype(np.int64)
SIZE = 2500  # tokens per shard: several shards, borders inside documents


def write_jsonl(path, rows):
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_jsonl(tmp_path_factory.mktemp("source") / "texts.jsonl", [{"text": text} for text in TEXTS])


@pytest.fixture(scope="module")
def whole(source, tmp_path_factory):
    """A finished folder, never interrupted.  Read only."""
    folder = tmp_path_factory.mktemp("whole") / "shards"
    tokenize(source, folder, "byte", SIZE, workers=1, progress=False)
    return folder


@pytest.fixture
def damaged(whole, tmp_path):
    """A copy to spoil."""
    return shutil.copytree(whole, tmp_path / "copy")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def one_line(caught):
    assert "\n" not in str(caught.value)
    return str(caught.value)


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


@pytest.mark.parametrize("size, places", [
    (500, [(5, 0), (10, 0), (15, 0), (20, 0)]),  # every border is the end of a document, the last one of the text too
    (800, [(8, 0), (16, 0), (20, 0)]),
    (40, [(0, 40), (0, 80), (1, 20), (1, 60)]),  # a document spans several shards
])
def test_places_to_go_on_from(tmp_path, size, places):
    path = write_jsonl(tmp_path / "texts.jsonl", [{"text": "x" * 99}] * 20)
    manifest = tokenize(path, tmp_path / "out", "byte", size, workers=1, progress=False)
    verify(tmp_path / "out")
    assert [(shard["documents"], shard["offset"]) for shard in manifest.shards][:len(places)] == places
    assert len(manifest.shards) == -(-2000 // size) and manifest.tokens == 2000
    before = contents(tmp_path / "out")
    for kept in (0, 1, 2, len(manifest.shards) - 1, len(manifest.shards)):  # as a kill after that many leaves it
        done = manifest.shards[:kept]
        replace(manifest, complete=False, shards=done, tokens=sum(shard["tokens"] for shard in done),
                documents=done[-1]["documents"] if done else 0).save(tmp_path / "out")
        tokenize(path, tmp_path / "out", "byte", size, workers=1, progress=False)
        assert contents(tmp_path / "out") == before


def test_counts_agree_with_finewebs_own_and_workers_change_nothing(shared_data, gpt2, tmp_path):
    path = shared_data / "corpus" / "fineweb-validation.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        stated = [json.loads(line)["token_count"] for line in file]
    manifest = tokenize(path, tmp_path / "one", shard_tokens=50_000, workers=1, progress=False)
    settings = manifest.settings
    assert (settings.tokenizer, settings.vocab_size, settings.end_of_text) == ("gpt2", 50_257, 50_256)
    tokens = ShardedTokens(tmp_path / "one", check_hashes=True)[:]
    ends = np.flatnonzero(tokens == 50_256)
    counted = np.diff(ends, prepend=-1) - 1
    assert len(counted) == len(stated) == manifest.documents == 300 and ends[-1] == len(tokens) - 1
    assert (counted == stated).sum() >= 290
    tokenize(path, tmp_path / "two", shard_tokens=50_000, workers=2, progress=False)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_fineweb_streams_through_the_same_code(tmp_path, monkeypatch):
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS, "url": TEXTS}), tmp_path / "000.parquet")
    real, asked = datasets.load_dataset, []

    def hub(**options):
        asked.append(options)
        return real("parquet", data_files=str(tmp_path / "000.parquet"), split="train", streaming=True)

    monkeypatch.setattr(datasets, "load_dataset", hub)
    manifest = tokenize("fineweb", tmp_path / "out", "byte", 1000, workers=1, limit_documents=100, progress=False)
    assert asked == [{"path": "HuggingFaceFW/fineweb", "name": "sample-10BT", "split": "train", "streaming": True}]
    assert manifest.documents == 100 and "fineweb" in manifest.settings.source
    assert (ShardedTokens(tmp_path / "out")[:] == STREAM[:manifest.tokens]).all()
    monkeypatch.undo()
    local = tokenize(tmp_path / "000.parquet", tmp_path / "local", "byte", 1000, workers=1, progress=False)
    assert local.tokens == len(STREAM) and local.shards[0] == manifest.shards[0]


def test_a_second_run_does_nothing_and_says_so(whole, source, capsys):
    before = {path: path.stat().st_mtime_ns for path in whole.iterdir()}
    manifest = tokenize(source, whole, "byte", SIZE, workers=1, progress=False)
    assert manifest == Manifest.load(whole)
    assert "complete, 150 documents" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in whole.iterdir()}


def test_progress_shows_tokens_per_second(source, tmp_path, capsys):
    tokenize(source, tmp_path / "out", "byte", SIZE, workers=1, limit_documents=140)
    shown = capsys.readouterr().err
    assert "140/140" in shown and "tokens/s" in shown


@pytest.mark.parametrize("limit", [1, 2, 5000, 7321, len(STREAM) - 1, len(STREAM), 10 * len(STREAM)])
def test_it_stops_after_the_document_that_reaches_a_number_of_tokens(source, tmp_path, limit):
    ends = np.cumsum([len(text.encode()) + 1 for text in TEXTS])
    expected = int(ends[min(np.searchsorted(ends, limit), len(ends) - 1)])
    out, call = tmp_path / "out", dict(tokenizer="byte", shard_tokens=SIZE, limit_tokens=limit, progress=False)
    manifest = tokenize(source, out, workers=1, **call)
    assert manifest.tokens == expected and manifest.documents == np.searchsorted(ends, expected) + 1
    assert (ShardedTokens(out)[:] == STREAM[:expected]).all()
    tokenize(source, tmp_path / "two", workers=2, **call)
    before = contents(out)
    assert contents(tmp_path / "two") == before
    for kept in range(len(manifest.shards) + 1):  # as a kill after that many leaves it
        done = manifest.shards[:kept]
        replace(manifest, complete=False, shards=done, tokens=sum(shard["tokens"] for shard in done),
                documents=done[-1]["documents"] if done else 0).save(out)
        tokenize(source, out, workers=1, **call)
        assert contents(out) == before


def test_progress_shows_the_time_left(source, tmp_path, capsys):
    tokenize(source, tmp_path / "a", "byte", SIZE, workers=1)
    assert "150/150" in capsys.readouterr().err
    tokenize(source, tmp_path / "b", "byte", SIZE, workers=1, limit_tokens=5000)
    assert "/5.00k" in capsys.readouterr().err


def test_other_settings_are_refused(damaged, source, tmp_path):
    before = contents(damaged)
    other = write_jsonl(tmp_path / "texts.jsonl", [{"text": "another text in a file of the same name"}])
    for words, call in {
        "source_sha256": (other, damaged, "byte", SIZE),
        "shard_tokens=2500, now it is 2600": (source, damaged, "byte", 2600),
        "limit_documents=None, now it is 7": (source, damaged, "byte", SIZE, 1, 7),
        "source='texts.jsonl', now it is 'documentation of Python": ("embedded", damaged, "byte", SIZE),
    }.items():
        with pytest.raises(ValueError, match=words) as caught:
            tokenize(*call, progress=False)
        assert "give another folder" in one_line(caught)
    assert contents(damaged) == before


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


def test_another_tokenizer_is_refused(damaged, source, gpt2):
    with pytest.raises(ValueError, match="tokenizer='byte', now it is 'gpt2'"):
        tokenize(source, damaged, "gpt2", SIZE, progress=False)


KILLER = """
import os, signal, sys
import datasets  # imported once; every fork below is a process of its own
from caracal_min.data.write_shards import tokenize
source, out, size = sys.argv[1], sys.argv[2], int(sys.argv[3])

def run(deadline):
    '''Run in a child that is killed at the deadline-th step of writing; return the signal it died of, or 0.'''
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] & 127
    steps = 0
    def counted(call):
        def wrapper(*arguments):
            nonlocal steps
            for at in ("before", "after"):
                steps += 1
                if steps == deadline:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = call(*arguments) if at == "before" else result
            return result
        return wrapper
    os.fsync, os.replace = counted(os.fsync), counted(os.replace)
    tokenize(source, out, "byte", size, workers=1, progress=False)
    os._exit(0)

kills = 0
for deadline in map(int, sys.argv[4].split(",")):
    died = run(deadline)
    assert died in (0, signal.SIGKILL), died
    kills += died == signal.SIGKILL
print(kills)
"""


@pytest.mark.parametrize("deadlines", ["1,2,3,4,5,6,7,8,9,10,11,12", "7,17,8,27", "20,24,5,99"])
def test_killed_anywhere_and_resumed_ends_with_the_same_bytes(source, whole, tmp_path, deadlines):
    """Kills before and after every fsync and every renaming, each run going on from the last one's ruins."""
    out = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", KILLER, source, out, str(SIZE), deadlines], capture_output=True,
                          text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) >= 3
    tokenize(source, out, "byte", SIZE, workers=1, progress=False)
    verify(out)
    assert contents(out) == contents(whole)


def test_killed_with_workers_leaves_no_process_and_resumes(tmp_path):
    """Workers hold the pipe of the dead parent's output: it ends only when all of them are gone."""
    source = write_jsonl(tmp_path / "long.jsonl", [{"text": f"{i} " * 3000} for i in range(3000)])
    out, size = tmp_path / "out", 1_000_000
    code = f"from caracal_min.data import tokenize; tokenize({str(source)!r}, {str(out)!r}, 'byte', {size}, 2)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    until = time.monotonic() + 120
    while not (out / "shard_00002.bin").exists() and time.monotonic() < until and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    with pytest.raises(ValueError, match="is not finished; run the same tokenize call again"):
        verify(out)
    with pytest.raises(ValueError, match="is not finished"):
        ShardedTokens(out)
    kept = {p.name: p.stat().st_mtime_ns for p in out.glob("*.bin")
            if p.name in [shard["name"] for shard in Manifest.load(out).shards]}
    assert kept
    tokenize(source, out, "byte", size, workers=1, progress=False)
    assert all((out / name).stat().st_mtime_ns == then for name, then in kept.items())  # not written again
    verify(out)
    expected = hashlib.sha256()
    for text in documents(str(source)):
        expected.update(np.frombuffer(text.encode() + b"\0", np.uint8).astype("<u2"))
    assert hashlib.sha256(b"".join(p.read_bytes() for p in sorted(out.glob("*.bin")))).digest() == expected.digest()


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
        tokenize(source, damaged, "byte", SIZE, workers=1, progress=False)


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


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    """Shards whose tokens tell their place: token i is i, in 7 shards.  Read only."""
    folder = tmp_path_factory.mktemp("counting") / "shards"
    manifest = Manifest(ShardSettings("counting", None, "byte", 65_536, 0, 1500, None, None))
    for start in range(0, 10_001, 1500):
        manifest = write_shards._add(folder, manifest, np.arange(start, min(start + 1500, 10_001), dtype="<u2"), 1, 0)
    replace(manifest, complete=True).save(folder)
    return folder


def starts_of(batches, epoch):
    steps = range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)
    return [int(s) for i in steps for s in batches[i][0][:, 0]]


def test_an_epoch_reads_every_window_once_and_the_next_in_another_order(counting):
    batches = Batches(ShardedTokens(counting), context=32, batch_size=8)
    assert batches.windows == 311 and batches.per_epoch == 38
    whole_epochs = Batches(ShardedTokens(counting), context=32, batch_size=1)
    for kind, kept in ((batches, 304), (whole_epochs, 311)):
        epochs = [starts_of(kind, epoch) for epoch in range(3)]
        for starts in epochs:
            assert len(set(starts)) == len(starts) == kept
            assert len({s % 32 for s in starts}) == 1  # windows of one grid: none overlaps another
        ranks = [np.argsort(np.argsort(starts)).tolist() for starts in epochs]  # the order, whatever the offset
        assert ranks[0] != ranks[1] != ranks[2] != ranks[0] and ranks[0] != sorted(ranks[0])
        assert min(epochs[0]) < 32 and max(epochs[0]) > 10_001 - 32 * (2 + 311 - kept) - 32


def test_targets_are_inputs_shifted(counting):
    x, y = Batches(ShardedTokens(counting), context=100, batch_size=5)[7]
    assert x.shape == y.shape == (5, 100) and x.dtype == y.dtype == torch.int64
    assert (y == x + 1).all() and (x[:, 1:] == x[:, :-1] + 1).all()


def test_the_same_batches_as_from_memory(counting):
    memory = Batches(np.arange(10_001, dtype=np.uint16), 32, 8, seed=5)
    batches = Batches(ShardedTokens(counting), 32, 8, seed=5)
    assert batches.epochs(19) == memory.epochs(19) == 0.5
    for i in (0, 1, 37, 38, 100, 5):
        for a, b in zip(batches[i], memory[i], strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_partition_the_global_batch(counting, world_size):
    one = Batches(ShardedTokens(counting), 32, 4 * world_size, seed=1)
    ranks = [Batches(ShardedTokens(counting), 32, 4, 1, rank, world_size) for rank in range(world_size)]
    for i in (0, 3, one.per_epoch - 1, one.per_epoch, 3 * one.per_epoch + 2):
        parts = [rank[i] for rank in ranks]
        assert all(len(x) == len(y) == 4 for x, y in parts)
        for k in range(2):
            assert torch.equal(torch.cat([part[k] for part in parts]), one[i][k])
    assert {rank.per_epoch for rank in ranks} == {one.per_epoch}


def test_a_step_is_the_same_after_opening_again_and_another_seed_is_not(counting):
    used = Batches(ShardedTokens(counting), 32, 8, seed=3)
    for i in range(50):
        used[i]
    for i in (49, 2, 40):
        assert torch.equal(used[i][0], Batches(ShardedTokens(counting), 32, 8, seed=3)[i][0])
    assert not torch.equal(used[0][0], Batches(ShardedTokens(counting), 32, 8, seed=4)[0][0])


def test_places_beyond_32_bits():
    class Endless:
        """10B tokens that are their own place."""

        def __len__(self):
            return 10_000_000_000

        def __getitem__(self, where):
            assert 0 <= where.start < where.stop <= len(self)
            return np.arange(where.start, where.stop)

    x, _ = Batches(Endless(), context=100_000, batch_size=64)[3]
    assert x.max() > 2**32 and x.min() >= 0 and len(set(x[:, 0].tolist())) == 64


def test_bad_sources_and_sizes_get_one_line(tmp_path, whole, monkeypatch):
    out = tmp_path / "out"
    no_text = write_jsonl(tmp_path / "a.jsonl", [{"body": "x"}])
    empty = write_jsonl(tmp_path / "b.jsonl", [])
    monkeypatch.setattr(datasets, "load_dataset", lambda path, real=datasets.load_dataset, **options: (
        [] if path == "HuggingFaceFW/fineweb" else real(path, **options)))
    for error, words, call in [
        (ValueError, "columns body; a column `text`", lambda: tokenize(no_text, out, "byte")),
        (ValueError, "b.jsonl is empty; give a file", lambda: tokenize(empty, out, "byte")),
        (ValueError, "fineweb gave no documents", lambda: tokenize("fineweb", out, "byte", workers=1)),
        (FileNotFoundError, "no file .*c.jsonl", lambda: tokenize(tmp_path / "c.jsonl", out, "byte")),
        (ValueError, "unknown source", lambda: tokenize("nowhere", out, "byte")),
        (ValueError, "unknown tokenizer 'bpe'; accepted: byte, gpt2", lambda: tokenize(no_text, out, "bpe")),
        (ValueError, "shard_tokens=0; give a number >= 1", lambda: tokenize(no_text, out, "byte", 0)),
        (ValueError, "workers=0", lambda: tokenize(no_text, out, "byte", workers=0)),
        (ValueError, "limit_documents=-1", lambda: tokenize(no_text, out, "byte", limit_documents=-1)),
        (ValueError, "hold 0 windows of 99999, fewer than", lambda: Batches(ShardedTokens(whole), 99_999, 1)),
        (ValueError, "rank=2, world_size=2; give a rank from 0", lambda: Batches(ShardedTokens(whole), 8, 1, 0, 2, 2)),
        (ValueError, "context=0", lambda: Batches(ShardedTokens(whole), 0, 1)),
    ]:
        with pytest.raises(error, match=words) as caught:
            call()
        one_line(caught)
    assert not out.exists()

    class Large:
        name, vocab_size, end_of_text = "large", 65_537, 0

    monkeypatch.setattr(write_shards, "make_tokenizer", lambda name: Large())
    with pytest.raises(ValueError, match="'large' has 65,537 ids; a shard holds 65,536 at most") as caught:
        tokenize(no_text, out, "large")
    one_line(caught)
