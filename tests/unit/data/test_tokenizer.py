"""Text to ids and back, here, through files and in `transformers`."""

import json
import lzma
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Encoder
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

import caracal_min
from caracal_min.tokenizer import ByteTokenizer, load_tokenizer, make_tokenizer, save_tokenizer, tokenizer_sha256

MICRO = Path(caracal_min.__file__).parent / "pretrained" / "micro"
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # of GPT-2's code
ODD = ["", " ", "<|endoftext|> a\0b\0\0 Ā ÀĢ", " . , don't we'LL  \n\n\t x\u00a0\u2003\u3000y ",
       "1\u0663½Ⅷ²೬ 日本語🐈e\u0301 ªºʰ", "\x1c\x1d\x85\u2028|\u200b\ufeff_",
       "\U0001f9ff\U00016fe4\U0001e100 \ud7ff\ue000\U0010ffff"]


@pytest.fixture(scope="module")
def web_pages(shared_data):
    with lzma.open(shared_data / "corpus" / "fineweb-validation.jsonl.xz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@given(st.text())
@settings(deadline=None)
def test_bytes_give_every_text_back_and_none_holds_the_end_of_a_document(text):
    ids = ByteTokenizer().encode(text)
    assert ByteTokenizer.end_of_text not in ids and ByteTokenizer().decode(ids) == text
    assert "\0" in text or ids == list(text.encode())


def slow_bpe(text, ranks):
    """Byte-pair encoding as it is defined: merge the first of the pairs of lowest rank, again and again."""
    ids = []
    for piece in regex.findall(PATTERN, text):
        parts = [bytes([byte]) for byte in piece.encode()]
        while pairs := [(ranks[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ranks]:
            _, i = min(pairs)
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        ids += [ranks[part] for part in parts]
    return ids


@pytest.mark.parametrize("size", [257, 300, 2048, 50_257])
def test_the_first_ids_of_gpt2_are_a_byte_pair_encoding_with_an_end_of_text(size, gpt2, web_pages, shared_data):
    tokenizer = make_tokenizer(f"gpt2:{size}")
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (size, size - 1)
    assert tokenizer.name == ("gpt2" if size == 50_257 else f"gpt2:{size}")
    merges = (shared_data / "gpt2_bpe" / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    order = printable + sorted({*range(256)} - {*printable})
    byte_of = dict(zip(map(chr, [*printable, *range(256, 324)]), order, strict=True))
    words = [*(bytes([byte]) for byte in order),
             *(bytes(byte_of[c] for c in pair.replace(" ", "")) for pair in merges)][:size - 1]
    ranks = {word: i for i, word in enumerate(words)}
    for text in [page["text"][:3000] for page in web_pages[:10]] + ODD:
        ids = tokenizer.encode(text)
        assert ids == slow_bpe(text, ranks) and tokenizer.decode(ids) == text
    assert tokenizer.decode([65, size - 1]) == tokenizer.decode([65]) + "<|endoftext|>"


def test_the_tokenizer_of_micro_is_a_first_part_of_gpt2(gpt2, web_pages):
    shipped, made = load_tokenizer(MICRO), make_tokenizer("gpt2:4096")
    texts = [page["text"] for page in web_pages[:50]] + ODD
    assert shipped.encode_batch(texts) == made.encode_batch(texts)
    record = json.loads((MICRO / "record.json").read_text())["data"]
    assert tokenizer_sha256(shipped) == tokenizer_sha256(made) == record["tokenizer_sha256"]
    assert (shipped.name, shipped.end_of_text) == (made.name, made.end_of_text) == ("gpt2:4096", 4095)


@pytest.mark.parametrize("name", ["byte", "gpt2:257", "gpt2:2048"])
def test_a_saved_tokenizer_gives_equal_ids_however_it_is_read(name, gpt2, web_pages, tmp_path):
    tokenizer, folder = make_tokenizer(name), tmp_path / "saved"
    texts = [page["text"] for page in web_pages[:50]] + ODD
    expected = tokenizer.encode_batch(texts)
    save_tokenizer(tokenizer, folder)
    theirs = AutoTokenizer.from_pretrained(folder)
    theirs.pad_token = theirs.eos_token  # what it has cut and padded last is in the file that it writes
    theirs(["abc", "a"], truncation=True, max_length=2, padding="max_length")
    theirs.save_pretrained(tmp_path / "theirs")
    found = [load_tokenizer(folder), make_tokenizer(folder), make_tokenizer(folder / "tokenizer.json"),
             load_tokenizer(tmp_path / "theirs")]
    for one in found:
        assert one.encode_batch(texts) == [one.encode(text) for text in texts] == expected
        assert [one.decode(ids) for ids in expected] == texts
        assert (one.vocab_size, one.end_of_text) == (tokenizer.vocab_size, tokenizer.end_of_text)
        assert tokenizer_sha256(one) == tokenizer_sha256(tokenizer)
    assert {one.name for one in found[:3]} == {name} and type(found[0]) is type(tokenizer)


@pytest.mark.parametrize("name", ["micro", "byte", "gpt2:300"])
def test_transformers_gives_equal_ids_and_an_end_of_text_where_it_is_written(name, gpt2, tmp_path):
    """As chat templates and trainers write it; a document that quotes it does not end there."""
    folder = MICRO if name == "micro" else tmp_path
    if name != "micro":
        save_tokenizer(make_tokenizer(name), folder)
    tokenizer, theirs = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder, model_type="gpt2")
    for text in ("The “island”, in 1850 \N{CAT}", "a\0b \n", *ODD[3:]):
        ids = tokenizer.encode(text)
        assert theirs(text)["input_ids"] == ids and theirs.decode(ids) == text
        assert theirs(text + theirs.eos_token)["input_ids"] == [*ids, tokenizer.end_of_text]
    assert theirs.eos_token_id == tokenizer.end_of_text and len(theirs) == tokenizer.vocab_size
    assert tokenizer.end_of_text not in tokenizer.encode("one" + theirs.eos_token)
    assert tokenizer.end_of_text not in tokenizer.encode_batch(["one" + theirs.eos_token])[0]


def word_pieces(path):
    """A tokenizer of another kind, which cuts and frames texts, with the files that older `transformers` wrote."""
    encoder = Encoder(models.WordPiece(unk_token="[UNK]"))
    encoder.normalizer, encoder.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]", "[CLS]", "[SEP]"])
    encoder.train_from_iterator(["the cat sat on the mat", "the dog ran after the cat"] * 9, trainer)
    encoder.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    encoder.enable_truncation(5)
    encoder.save(str(path / "tokenizer.json"))
    config = {"eos_token": {"content": "[SEP]"}, "name_or_path": "some/words"}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return encoder


def test_a_file_of_other_people_is_read_without_its_frame(tmp_path):
    encoder, tokenizer = word_pieces(tmp_path), make_tokenizer(tmp_path)
    assert tokenizer.name == "some/words" and tokenizer.vocab_size == encoder.get_vocab_size()
    assert tokenizer.end_of_text == encoder.token_to_id("[SEP]") == 2
    encoder.no_truncation()
    text = "the cat sat on the mat after the dog"
    ids = tokenizer.encode(text)
    assert ids == encoder.encode(text, add_special_tokens=False).ids and len(ids) > 5
    assert 2 not in tokenizer.encode("the cat [SEP] sat")
    save_tokenizer(tokenizer, tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").encode(text) == ids
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match="has no token '<.endoftext.>' .*; name another as eos_token"):
        make_tokenizer(tmp_path)


@pytest.mark.parametrize("name, words", [
    ("bert", "unknown tokenizer 'bert'; accepted: byte, gpt2, gpt2:N, or the path of a tokenizer.json"),
    ("gpt2:2k", "accepted: byte, gpt2, gpt2:N"),
    ("gpt2:256", "give from 257 ids"),
    ("gpt2:50258", "to 50257"),
])
def test_other_names_are_refused_in_one_line(name, words):
    with pytest.raises(ValueError, match=words) as caught:
        make_tokenizer(name)
    assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match="nowhere.json"):
        make_tokenizer("nowhere.json")
