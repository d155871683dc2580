"""Plain text: where it is cut, that nothing is lost, and what is no text."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_texts import one_line, write_jsonl

from caracal_min.data import ByteTokenizer, documents, is_held_out, load_corpus, tokenize, tokens_of
from caracal_min.data.local_files import PIECE


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def play(paragraphs, seed=0):
    """Paragraphs of 20 to 2,000 bytes, blank lines between them, no two alike."""
    sizes = np.random.default_rng(seed).integers(1, 100, paragraphs)
    return "\n".join(f"{i}: to be or not to be\n" * size for i, size in enumerate(sizes))


def test_a_file_is_cut_after_a_paragraph_and_nothing_is_lost(tmp_path):
    text = play(1000)
    path = write(tmp_path / "play.txt", text)
    found = list(documents(path))
    assert "".join(found) == text and len(found) > 100
    sizes = [len(piece.encode()) for piece in found]
    assert min(sizes[:-1]) >= PIECE and max(sizes) < 3 * PIECE
    ends = [piece.endswith("\n\n") for piece in found[:-1]]
    assert sum(ends) > 0.95 * len(ends)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_text_comes_back_whole(tmp_path_factory, data):
    """Lines longer than a piece, characters of one to four bytes where it is cut, blank lines of every kind."""
    part = st.one_of(st.text("a é\N{CAT}\n\r\t\f", max_size=40), st.sampled_from(["\n\n", "\r\n\r\n", " \n"]),
                     st.builds(lambda c, n: c * n, st.sampled_from(["x", "é", "\N{CAT}", "a b\n"]),
                               st.integers(1, 3 * PIECE)))
    text = "first" + "".join(data.draw(st.lists(part, max_size=8))) + "last"
    path = write(tmp_path_factory.mktemp("text") / "a.txt", text)
    found = list(documents(path))
    assert "".join(found).split() == text.split() and len("".join(found)) <= len(text)
    assert all(len(piece.encode()) < 3 * PIECE + 4 for piece in found)


def test_one_file_gives_text_to_train_on_and_text_that_is_held_out(tmp_path):
    """A megabyte in one file, as tiny Shakespeare is; the same documents are held out in memory and in shards."""
    text = play(1000)
    path = write(tmp_path / "input.txt", text)
    corpus = load_corpus(path, progress=False)
    train, held = (ByteTokenizer().decode(part).split("\0")[:-1] for part in (corpus.train, corpus.validation))
    assert 0.01 < len(corpus.validation) / len(corpus.train) < 0.15 and all(map(is_held_out, held))
    assert sorted(train + held) == sorted(documents(path)) and not set(train) & set(held)
    tokenize(path, tmp_path / "shards", "byte", 50_000, progress=False)
    assert load_corpus(str(tmp_path / "shards")).validation[:].tolist() == corpus.validation.tolist()
    (tmp_path / "folder").mkdir()
    (tmp_path / "input.txt").rename(tmp_path / "folder" / "input.txt")
    assert tokens_of(str(tmp_path / "folder"), "byte", "held_out", progress=False).tolist() == (
        corpus.validation.tolist())


def test_a_short_file_is_one_document_and_a_folder_has_many(tmp_path):
    for name, text in {"b.txt": "two\n\nparagraphs", "a.txt": "one", "c.md": "not text to train on"}.items():
        write(tmp_path / name, text)
    assert list(documents(str(tmp_path))) == ["one", "two\n\nparagraphs"]
    write_jsonl(tmp_path / "data.jsonl", [{"text": "a row"}])
    with pytest.warns(UserWarning, match="2 of its files, such as a.txt, are left out beside data.jsonl"):
        assert list(documents(str(tmp_path))) == ["a row"]  # beside rows, a text file tells what they are


@pytest.mark.parametrize("name", ["more.JSONL", "more.jsonl.zst", "more.TXT", "more.csv"])
def test_a_file_of_another_ending_is_not_left_out_without_a_word(tmp_path, name):
    for file in ("data.jsonl", name):
        write_jsonl(tmp_path / file, [{"text": "a row"}])
    with pytest.warns(UserWarning, match=f"1 of its files, such as {name}, are left out beside data.jsonl; read are "):
        assert list(documents(str(tmp_path))) == ["a row"]


@pytest.mark.parametrize("content, words", [
    ("first\nna\xefve\n".encode("latin-1"), "line 2 is not in UTF-8"),
    ("cut \N{CAT}".encode()[:-1], "is not in UTF-8"),
    (("whole line\n" * 2000).encode() + b"\xff", "line 2001 is not in UTF-8"),
    ("in UTF-16".encode("utf-16"), "line 1 is not in UTF-8"),
    ("in UTF-16".encode("utf-16-le"), "line 1 holds the character NUL"),
    (bytes(range(256)), "line 1 holds the character NUL"),
    (bytes(10_000), "line 1 holds the character NUL"),
])
def test_what_is_no_text_gets_one_line(tmp_path, content, words):
    path = write(tmp_path / "a.txt", content)
    for read in (documents, lambda path: [load_corpus(path, progress=False)]):
        with pytest.raises(ValueError, match=words) as caught:
            list(read(path))
        assert one_line(caught)


@pytest.mark.parametrize("content", ["", " \n\n\t\n", "\ufeff"])
def test_a_blank_file_has_no_document(tmp_path, content):
    path = write(tmp_path / "a.txt", content)
    with pytest.raises(ValueError, match="a.txt cannot be read .no document in it"):
        list(documents(path))


def test_a_mark_at_the_beginning_is_no_character(tmp_path):
    assert list(documents(write(tmp_path / "a.txt", "text".encode("utf-8-sig")))) == ["text"]


def test_a_file_without_a_line_end_is_read_in_bounded_memory(tmp_path):
    """30 MB, of which a document is in memory at a time."""
    path = tmp_path / "line.txt"
    with open(path, "wb") as file:
        for _ in range(30):
            file.write(b"x" * 10**6)
    tracemalloc.start()
    try:
        assert sum(map(len, documents(str(path)))) == 3 * 10**7
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
