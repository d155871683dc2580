"""Text to ids and back."""

import json
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caracal_min.config import PRESETS
from caracal_min.data import ByteTokenizer, GPT2Tokenizer, make_tokenizer, tokenizer_for


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
    assert {PRESETS[name].vocab_size for name in PRESETS} == {GPT2Tokenizer.vocab_size, ByteTokenizer.vocab_size}


def test_records_name_the_tokenizers_there_are():
    schema = json.loads((resources.files("caracal_book.runs") / "schema.json").read_text())
    _, *kinds = schema["properties"]["data"]["anyOf"]
    for data in kinds:
        names = sorted(data["properties"]["tokenizer"]["enum"])
        with pytest.raises(ValueError, match=f"accepted: {', '.join(names)}$"):
            make_tokenizer("none")


def test_tokenizer_for():
    assert tokenizer_for(256).name == "byte"
    with pytest.raises(ValueError, match=r"no tokenizer with 100 ids; known are 256 \(byte\), 50257 \(gpt2\)"):
        tokenizer_for(100)
