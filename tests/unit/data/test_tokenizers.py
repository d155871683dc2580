"""Text to ids and back."""

import json
import lzma
import re
from itertools import pairwise

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from caracal_min.config import PRESETS
from caracal_min.data import ByteTokenizer, GPT2Tokenizer, make_tokenizer


@pytest.mark.parametrize("text", ["", "plain", "naïve – ünïcode 日本語 🐈"])
def test_bytes_round_trip(text):
    tokenizer = ByteTokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode(text) == list(text.encode())


@pytest.mark.parametrize("text", ["\0", "a\0b", "\0\0é\0"])
def test_the_character_nul_is_no_end_of_a_document(text):
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    assert tokenizer.end_of_text not in ids and set(ids) <= set(range(256))
    assert tokenizer.decode(ids) == text


@given(st.text())
@settings(deadline=None)
def test_every_text_comes_back_and_none_holds_the_end_of_a_document(text):
    ids = ByteTokenizer().encode(text)
    assert ByteTokenizer.end_of_text not in ids and ByteTokenizer().decode(ids) == text


@pytest.mark.parametrize("name", ["byte", "gpt2"])
def test_a_batch_of_texts_is_its_texts_one_by_one(name, gpt2):
    tokenizer, texts = make_tokenizer(name), ["one", "", "<|endoftext|>", "Ünï 🐈", "x " * 999]
    for threads in (1, 3):
        assert tokenizer.encode_batch(texts, threads) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch([], 2) == []


def test_gpt2s_numbers_are_those_of_its_encoding_and_of_the_papers_sizes(gpt2):
    encoding = make_tokenizer("gpt2")._encoding
    assert (GPT2Tokenizer.vocab_size, GPT2Tokenizer.end_of_text) == (encoding.n_vocab, encoding.eot_token)
    assert {p.vocab_size for p in PRESETS.values()} == {GPT2Tokenizer.vocab_size, ByteTokenizer.vocab_size, 4096}


def slow_bpe(text, ranks, pattern):
    """Byte-pair encoding as it is defined: merge the first of the pairs of lowest rank, again and again."""
    ids = []
    for piece in regex.findall(pattern, text):
        parts = [bytes([byte]) for byte in piece.encode()]
        while pairs := [(ranks[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ranks]:
            _, i = min(pairs)
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        ids += [ranks[part] for part in parts]
    return ids


@pytest.fixture(scope="module")
def held_out_texts(shared_data):
    with lzma.open(shared_data / "corpus" / "fineweb-validation.jsonl.xz", "rt", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


@pytest.mark.parametrize("size", [257, 300, 2048, 50_257])
def test_a_prefix_of_gpt2_is_a_byte_pair_encoding_with_an_end_of_text(size, gpt2, held_out_texts):
    whole, tokenizer = make_tokenizer("gpt2"), make_tokenizer(f"gpt2:{size}")
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (size, size - 1)
    assert tokenizer.name == ("gpt2" if size == 50_257 else f"gpt2:{size}")
    encoding = whole._encoding
    ranks = {encoding.decode_single_token_bytes(i): i for i in range(size - 1)}
    for text in [*held_out_texts[:10], "<|endoftext|>", " \n\n  a\u00a0\u2003 1\u0663\u00bd\u2167'll don't 日本語🐈\0"]:
        ids = tokenizer.encode(text[:3000])
        assert ids == slow_bpe(text[:3000], ranks, encoding._pat_str)
        assert tokenizer.decode(ids) == text[:3000]
    for text in held_out_texts:
        ids = tokenizer.encode(text)
        assert max(ids) < size - 1 and tokenizer.decode(ids) == text


def test_every_id_of_a_prefix_is_the_encoding_of_its_own_text(gpt2):
    tokenizer = make_tokenizer("gpt2:2048")
    texts = [tokenizer.decode([i]) for i in range(2047)]
    assert [tokenizer.encode(text) for text in texts if "\N{REPLACEMENT CHARACTER}" not in text] == [
        [i] for i, text in enumerate(texts) if "\N{REPLACEMENT CHARACTER}" not in text]
    assert tokenizer.decode([2047]) == "<|endoftext|>" and tokenizer.encode("<|endoftext|>") != [2047]


@pytest.mark.parametrize("name, words", [
    ("bert", "unknown tokenizer 'bert'; accepted: byte, gpt2, gpt2:N"),
    ("gpt2:", "accepted: byte, gpt2, gpt2:N"),
    ("gpt2:2k", "accepted: byte, gpt2, gpt2:N"),
    ("gpt2:256", "N is the number of ids, from 257 "),
    ("gpt2:50258", "to 50257"),
])
def test_other_names_are_refused_in_one_line(name, words):
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        make_tokenizer(name)
    assert "\n" not in str(caught.value)


