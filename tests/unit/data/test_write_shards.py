"""Real text to shards through the real path: limited, killed, resumed."""

import hashlib
import io
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
from shard_texts import SIZE, STREAM, TEXTS, contents, one_line, write_jsonl

from caracal_min.data import GPT2Tokenizer, chunks, documents, load_corpus, make_tokenizer, save_tokenizer
from caracal_min.data.manifest import Manifest
from caracal_min.data.shards import ShardedTokens, verify
from caracal_min.data.write_shards import tokenize


@pytest.mark.parametrize("size, places", [
    (500, [(5, 0), (10, 0), (15, 0), (20, 0)]),  # every border is the end of a document, the last one of the text too
    (800, [(8, 0), (16, 0), (20, 0)]),
    (40, [(0, 40), (0, 80), (1, 20), (1, 60)]),  # a document spans several shards
])
def test_places_to_go_on_from(tmp_path, size, places):
    path = write_jsonl(tmp_path / "texts.jsonl", [{"text": "x" * 99}] * 20)
    manifest = tokenize(path, tmp_path / "out", "byte", size, progress=False)
    verify(tmp_path / "out")
    assert [(shard["documents"], shard["offset"]) for shard in manifest.shards][:len(places)] == places
    assert len(manifest.shards) == -(-2000 // size) and manifest.tokens == 2000
    before = contents(tmp_path / "out")
    for kept in (0, 1, 2, len(manifest.shards) - 1, len(manifest.shards)):  # as a kill after that many leaves it
        done = manifest.shards[:kept]
        replace(manifest, complete=False, shards=done, tokens=sum(shard["tokens"] for shard in done),
                documents=done[-1]["documents"] if done else 0).save(tmp_path / "out")
        tokenize(path, tmp_path / "out", "byte", size, progress=False)
        assert contents(tmp_path / "out") == before


def test_counts_agree_with_finewebs_own_and_threads_change_nothing(shared_data, gpt2, tmp_path):
    path = shared_data / "corpus" / "fineweb-validation.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        stated = [json.loads(line)["token_count"] for line in file]
    manifest = tokenize(path, tmp_path / "one", shard_tokens=50_000, threads=1, progress=False)
    settings = manifest.settings
    assert (settings.tokenizer, settings.vocab_size, settings.end_of_text) == (
        GPT2Tokenizer.name, GPT2Tokenizer.vocab_size, GPT2Tokenizer.end_of_text)
    tokens = ShardedTokens(tmp_path / "one")[:]
    ends = np.flatnonzero(tokens == GPT2Tokenizer.end_of_text)
    counted = np.diff(ends, prepend=-1) - 1
    assert len(counted) == len(stated) == manifest.documents == 300 and ends[-1] == len(tokens) - 1
    assert (counted == stated).sum() >= 290
    tokenize(path, tmp_path / "two", shard_tokens=50_000, threads=3, progress=False)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.parametrize("chunk", [1, 7, 64, 150, 151])
def test_what_is_encoded_at_once_changes_nothing(source, whole, tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(chunks, "_DOCUMENTS", chunk)
    tokenize(source, tmp_path / "out", "byte", SIZE, progress=False)
    assert contents(tmp_path / "out") == contents(whole)


ASKED = {"path": "HuggingFaceFW/fineweb", "name": "sample-10BT", "split": "train", "streaming": True,
         "revision": "a" * 40}


def test_fineweb_streams_through_the_same_code(tmp_path, monkeypatch):
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS, "url": TEXTS}), tmp_path / "000.parquet")
    real, asked = datasets.load_dataset, []

    def load(path, **options):
        asked.append({"path": path, **options})
        return real("parquet", data_files=str(tmp_path / "000.parquet"), split="train", streaming=True)

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr("caracal_min.data.write_shards.fineweb_revision", lambda: "a" * 40)
    manifest = tokenize("fineweb", tmp_path / "out", "byte", 1000, limit_documents=100, progress=False)
    assert asked == [ASKED]
    assert manifest.documents == 100 and "fineweb" in manifest.settings.source
    assert (ShardedTokens(tmp_path / "out")[:] == STREAM[:manifest.tokens]).all()
    monkeypatch.undo()
    local = tokenize(tmp_path / "000.parquet", tmp_path / "local", "byte", 1000, progress=False)
    assert local.tokens == len(STREAM) and local.shards[0] == manifest.shards[0]


@pytest.fixture
def broken_off(hub, tmp_path, monkeypatch):
    """Shards of a stream whose server disconnected after 100 of its 150 documents."""
    monkeypatch.setattr(chunks, "_DOCUMENTS", 16)
    hub.rows, hub.ends_after = [{"text": text} for text in TEXTS], 100
    with pytest.raises(ConnectionError) as caught:
        tokenize("fineweb", tmp_path / "out", "byte", SIZE, progress=False)
    return one_line(caught)


def test_a_stream_that_breaks_off_says_so_and_the_same_call_goes_on(hub, broken_off, tmp_path, monkeypatch):
    kept = len(Manifest.load(tmp_path / "out").shards)
    assert kept > 1 and broken_off == (
        "fineweb cannot be read from the network (Disconnected: Server disconnected without sending a response.); "
        f"{tmp_path / 'out'} keeps {kept} shards, and the same command goes on from there")
    hub.ends_after, hub.commit = None, "b" * 40  # by now the repository has a newer commit
    manifest = tokenize("fineweb", tmp_path / "out", "byte", SIZE, progress=False)
    assert manifest.settings.revision == "a" * 40
    assert hub.asked == [{"newest of": "HuggingFaceFW/fineweb"}, ASKED, ASKED]
    verify(tmp_path / "out")
    assert (ShardedTokens(tmp_path / "out")[:] == STREAM).all()
    assert tokenize("fineweb", tmp_path / "new", "byte", SIZE, progress=False).settings.revision == "b" * 40


@pytest.mark.parametrize("change", ["first", "last that was read", "cut by a shard", "fewer"])
def test_a_stream_that_has_changed_is_noticed_before_anything_is_written(hub, broken_off, tmp_path, change):
    hub.ends_after, last = None, Manifest.load(tmp_path / "out").shards[-1]
    assert last["offset"] > 0
    at = {"first": 0, "last that was read": last["documents"] - 1, "cut by a shard": last["documents"], "fewer": 9}
    hub.rows[at[change]:at[change] + 1] = [] if change == "fewer" else [{"text": "another text"}]
    del hub.rows[50 if change == "fewer" else 150:]
    before = contents(tmp_path / "out")
    with pytest.raises(ValueError, match="fineweb has changed: its first .* documents are not those that") as caught:
        tokenize("fineweb", tmp_path / "out", "byte", SIZE, progress=False)
    assert "give another folder" in one_line(caught) and contents(tmp_path / "out") == before


def test_a_row_of_the_stream_without_a_text_is_named(hub, tmp_path):
    hub.rows = [{"text": "a"}, {"text": None}]
    with pytest.raises(ValueError, match="fineweb, document 2, is of type NoneType, and no text"):
        tokenize("fineweb", tmp_path / "out", "byte", progress=False)


def test_a_hub_that_does_not_answer_is_named_before_a_folder_is_made(hub, tmp_path, monkeypatch):
    def unreachable(api, repository):
        raise OSError("Name or service not known\n(while resolving)")

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", unreachable)
    for call in (lambda: tokenize("fineweb", tmp_path / "out", "byte"), lambda: next(documents("fineweb"))):
        with pytest.raises(ConnectionError, match="fineweb cannot be read from the network .OSError: Name") as caught:
            call()
        one_line(caught)
    assert not (tmp_path / "out").exists()


def test_finished_shards_need_their_source_no_more(source, tmp_path, capsys):
    mine = shutil.copy(source, tmp_path / "mine.jsonl")
    made = tokenize(mine, tmp_path / "out", "byte", SIZE, progress=False)
    for call in (lambda: tokenize(mine, tmp_path / "out", "byte", SIZE, progress=False),
                 lambda: load_corpus(mine, progress=False, shards=tmp_path / "run")):
        (tmp_path / "mine.jsonl").exists() or shutil.copy(source, mine)
        before = call()
        (tmp_path / "mine.jsonl").unlink()
        assert call().digest == before.digest
    with pytest.raises(FileNotFoundError, match="no file .*yours.jsonl"):
        tokenize(tmp_path / "yours.jsonl", tmp_path / "out", "byte", SIZE, progress=False)
    with pytest.raises(ValueError, match="shard_tokens=2500, now it is 999"):
        tokenize(mine, tmp_path / "out", "byte", 999, progress=False)
    replace(made, complete=False).save(tmp_path / "out")
    with pytest.raises(FileNotFoundError, match="no file .*mine.jsonl"):
        tokenize(mine, tmp_path / "out", "byte", SIZE, progress=False)


def test_a_source_is_its_content_not_its_path(source, whole, tmp_path, monkeypatch):
    """Relative, absolute, moved and renamed files are one source; so are a tokenizer and its file."""
    out = shutil.copytree(whole, tmp_path / "out")
    monkeypatch.chdir(source.parent)
    save_tokenizer(make_tokenizer("byte"), tmp_path / "tokenizer")
    renamed = shutil.copy(source, tmp_path / "renamed.jsonl")
    for path in (source.name, f"./{source.name}", source, renamed):
        for tokenizer in ("byte", tmp_path / "tokenizer" / "tokenizer.json"):
            assert tokenize(path, out, tokenizer, SIZE, progress=False) == Manifest.load(whole)


def test_a_second_run_does_nothing_and_says_so(whole, source, capsys):
    before = {path: path.stat().st_mtime_ns for path in whole.iterdir()}
    manifest = tokenize(source, whole, "byte", SIZE, progress=False)
    assert manifest == Manifest.load(whole)
    assert "complete, 150 documents" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in whole.iterdir()}


class Terminal(io.StringIO):
    """A stream that somebody watches."""

    def isatty(self):
        return True


def test_progress_shows_tokens_per_second(source, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    tokenize(source, tmp_path / "out", "byte", SIZE, limit_tokens=4000)
    assert "/4.00k" in shown.getvalue() and "tokens/s" in shown.getvalue()


def test_a_log_file_gets_no_bar(source, tmp_path, capsys):
    tokenize(source, tmp_path / "out", "byte", SIZE)
    load_corpus(str(source))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("limit", [1, 2, 5000, 7321, len(STREAM) - 1, len(STREAM), 10 * len(STREAM)])
def test_it_stops_after_the_document_that_reaches_a_number_of_tokens(source, tmp_path, limit, monkeypatch):
    monkeypatch.setattr(chunks, "_DOCUMENTS", 16)
    ends = np.cumsum([len(text.encode()) + 1 for text in TEXTS])
    expected = int(ends[min(np.searchsorted(ends, limit), len(ends) - 1)])
    out, call = tmp_path / "out", dict(tokenizer="byte", shard_tokens=SIZE, limit_tokens=limit, progress=False)
    manifest = tokenize(source, out, **call)
    assert manifest.tokens == expected and manifest.documents == np.searchsorted(ends, expected) + 1
    assert (ShardedTokens(out)[:] == STREAM[:expected]).all()
    before = contents(out)
    for kept in range(len(manifest.shards) + 1):  # as a kill after that many leaves it
        done = manifest.shards[:kept]
        replace(manifest, complete=False, shards=done, tokens=sum(shard["tokens"] for shard in done),
                documents=done[-1]["documents"] if done else 0).save(out)
        tokenize(source, out, **call)
        assert contents(out) == before


def test_progress_counts_tokens_and_shows_the_time_left_where_the_end_is_known(source, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    tokenize(source, tmp_path / "a", "byte", SIZE)
    assert "19.2k tokens" in shown.getvalue()
    tokenize(source, tmp_path / "b", "byte", SIZE, limit_tokens=5000)
    assert "/5.00k" in shown.getvalue()


def test_other_settings_are_refused(damaged, source, tmp_path):
    before = contents(damaged)
    other = write_jsonl(tmp_path / "texts.jsonl", [{"text": "another text in a file of the same name"}])
    for words, call in {
        "source='texts.jsonl' .sha256 .*, now it is 'texts.jsonl' .sha256": (other, damaged, "byte", SIZE),
        "shard_tokens=2500, now it is 2600": (source, damaged, "byte", 2600),
        "limit_documents=None, now it is 7": (source, damaged, "byte", SIZE, 1, 7),
        "source='texts.jsonl' .sha256 .*, now it is 'documentation of Python": ("embedded", damaged, "byte", SIZE),
    }.items():
        with pytest.raises(ValueError, match=words) as caught:
            tokenize(*call, progress=False)
        assert "give the same, or another folder" in one_line(caught)
    assert contents(damaged) == before


def test_another_tokenizer_is_refused(damaged, source, gpt2):
    with pytest.raises(ValueError, match="tokenizer='byte' .sha256 .*, now it is 'gpt2' .sha256"):
        tokenize(source, damaged, "gpt2", SIZE, progress=False)


KILLER = """
import os, signal, sys
import datasets  # imported once; every fork below is a process of its own
from caracal_min.data import chunks, tokenize
source, out, size, chunks._DOCUMENTS = sys.argv[1], sys.argv[2], int(sys.argv[3]), 16

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
    tokenize(source, out, "byte", size, progress=False)
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
    tokenize(source, out, "byte", SIZE, progress=False)
    verify(out)
    assert contents(out) == contents(whole)


def test_killed_while_threads_encode_and_resumed(tmp_path, gpt2):
    """A kill from outside, at no chosen moment; what was whole by then is not written again."""
    source = write_jsonl(tmp_path / "long.jsonl", [{"text": f"{i} " * 3000} for i in range(1000)])
    out, size = tmp_path / "out", 300_000
    code = f"from caracal_min.data import tokenize; tokenize({str(source)!r}, {str(out)!r}, 'gpt2', {size}, 2)"
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
    tokenize(source, out, "gpt2", size, progress=False)
    assert all((out / name).stat().st_mtime_ns == then for name, then in kept.items())  # not written again
    verify(out)
    expected, tokenizer = hashlib.sha256(), make_tokenizer("gpt2")
    for text in documents(str(source)):
        expected.update(np.array([*tokenizer.encode(text), tokenizer.end_of_text], "<u2"))
    assert hashlib.sha256(b"".join(p.read_bytes() for p in sorted(out.glob("*.bin")))).digest() == expected.digest()


def test_bad_sources_and_sizes_get_one_line(tmp_path, monkeypatch, hub):
    out = tmp_path / "out"
    no_text = write_jsonl(tmp_path / "a.jsonl", [{"body": "x"}])
    empty = write_jsonl(tmp_path / "b.jsonl", [])
    for error, words, call in [
        (ValueError, "columns body; a column `text`", lambda: tokenize(no_text, out, "byte")),
        (ValueError, "b.jsonl is empty; give a file", lambda: tokenize(empty, out, "byte")),
        (ValueError, "fineweb gave no documents", lambda: tokenize("fineweb", out, "byte")),
        (FileNotFoundError, "no file .*c.jsonl", lambda: tokenize(tmp_path / "c.jsonl", out, "byte")),
        (ValueError, "unknown source", lambda: tokenize("nowhere", out, "byte")),
        (ValueError, "unknown tokenizer 'bpe'; accepted: byte, gpt2", lambda: tokenize(no_text, out, "bpe")),
        (ValueError, "shard_tokens=0; give a number >= 1", lambda: tokenize(no_text, out, "byte", 0)),
        (ValueError, "threads=0", lambda: tokenize(no_text, out, "byte", threads=0)),
        (ValueError, "limit_documents=-1", lambda: tokenize(no_text, out, "byte", limit_documents=-1)),
    ]:
        with pytest.raises(error, match=words) as caught:
            call()
        one_line(caught)
    assert not out.exists()

    class Large:
        name, vocab_size, end_of_text = "large", 65_537, 0

    with pytest.raises(ValueError, match="'large' has 65,537 ids; a corpus holds 65,536 at most") as caught:
        tokenize(no_text, out, Large())
    one_line(caught)
