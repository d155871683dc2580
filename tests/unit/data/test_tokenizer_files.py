"""Tokenizers in files: what is saved is read back here, by `tokenizers` and by `transformers`, with equal ids."""

import json
import lzma
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shard_texts import one_line
from tokenizers import Tokenizer as Encoder
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

from caracal_min.data import load_tokenizer, make_tokenizer, save_tokenizer, tokenizer_sha256
from caracal_min.data.byte_pairs import BytePairs, merges_of, split_words
from caracal_min.data.file_tokenizer import FileTokenizer
from caracal_min.data.tokenizers import TOKENIZER, TOKENIZER_CONFIG, ByteTokenizer

NAMES = ["byte", "gpt2:257", "gpt2:2048", "gpt2"]
ODD = ["", " ", "<|endoftext|> a\0b\0\0 Ā ÀĢ", " . , don't we'LL  \n\n\t x\u00a0\u2003\u3000y ",
       "1\u0663½Ⅷ²೬ 日本語🐈e\u0301 ªºʰ", "\x1c\x1d\x85\u2028|\u200b\ufeff_",
       "\U0001f9ff\U00016fe4\U0001e100 \ud7ff\ue000\U0010ffff"]


@pytest.fixture(scope="module")
def texts(shared_data):
    with lzma.open(shared_data / "corpus" / "fineweb-validation.jsonl.xz", "rt", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file] + ODD


@pytest.fixture(params=NAMES)
def saved(request, gpt2, tmp_path):
    """A tokenizer, and a folder that it was saved into."""
    tokenizer = make_tokenizer(request.param)
    save_tokenizer(tokenizer, tmp_path / "saved")
    return tokenizer, tmp_path / "saved"


def test_a_saved_tokenizer_gives_equal_ids_however_it_is_read(saved, texts):
    tokenizer, folder = saved
    expected = tokenizer.encode_batch(texts)
    loaded, from_file = load_tokenizer(folder), make_tokenizer(folder / TOKENIZER)
    assert type(loaded) in (ByteTokenizer, BytePairs) and type(from_file) in (ByteTokenizer, FileTokenizer)
    for found in (loaded, from_file):
        assert (found.name, found.vocab_size, found.end_of_text) == (
            tokenizer.name, tokenizer.vocab_size, tokenizer.end_of_text)
        assert tokenizer_sha256(found) == tokenizer_sha256(tokenizer)
        assert found.encode_batch(texts, 2) == expected == [found.encode(text) for text in texts]
        assert [found.decode(ids) for ids in expected] == texts
        assert found.decode(expected[0][:1] + [tokenizer.end_of_text]) == tokenizer.decode(
            expected[0][:1] + [tokenizer.end_of_text])


def test_transformers_reads_it_and_what_it_writes_is_read(saved, texts, tmp_path):
    tokenizer, folder = saved
    theirs = AutoTokenizer.from_pretrained(folder)
    expected = tokenizer.encode_batch(texts)
    assert theirs(texts)["input_ids"] == expected and len(theirs) == tokenizer.vocab_size
    assert [theirs.decode(ids) for ids in expected] == texts
    assert theirs.eos_token_id == tokenizer.end_of_text
    assert theirs.decode([*expected[0], tokenizer.end_of_text], skip_special_tokens=True) == texts[0]
    theirs.save_pretrained(tmp_path / "theirs")
    again = load_tokenizer(tmp_path / "theirs")
    assert type(again) in (ByteTokenizer, BytePairs) and tokenizer_sha256(again) == tokenizer_sha256(tokenizer)
    assert again.encode_batch(texts) == expected


@pytest.fixture
def small(gpt2, tmp_path):
    """The tokenizer gpt2:2048 through tiktoken, and in plain Python."""
    save_tokenizer(make_tokenizer("gpt2:2048"), tmp_path)
    return make_tokenizer("gpt2:2048"), load_tokenizer(tmp_path)


@given(text=st.text(st.characters(codec="utf-8")), ids=st.lists(st.integers(0, 2047)))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
def test_plain_python_agrees_with_tiktoken_on_any_text_and_any_ids(small, text, ids):
    fast, plain = small
    assert "".join(split_words(text)) == text
    assert plain.encode(text) == fast.encode(text) and plain.decode(plain.encode(text)) == text
    assert plain.decode(ids) == fast.decode(ids)


def test_a_long_word_takes_no_quadratic_time(small):
    fast, plain = small
    for word in ("a" * 100_000, "abcdefg" * 20_000):
        assert plain.encode(word) == fast.encode(word)


PLAIN = """
import sys
for name in ("tiktoken", "tokenizers", "transformers", "regex", "tqdm", "datasets", "jsonschema"):
    sys.modules[name] = None  # as if it were not installed
from caracal_min.data import load_tokenizer
tokenizer = load_tokenizer(sys.argv[1])
ids = tokenizer.encode("The history of naïve 日本語 🐈\\0")
assert tokenizer.decode(ids) == "The history of naïve 日本語 🐈\\0"
print(tokenizer.name, *ids)
"""


@pytest.mark.parametrize("name", ["byte", "gpt2:2048"])
def test_no_other_package_is_needed_for_a_saved_tokenizer(name, gpt2, tmp_path):
    save_tokenizer(make_tokenizer(name), tmp_path / "saved")
    done = subprocess.run([sys.executable, "-c", PLAIN, tmp_path / "saved"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = make_tokenizer(name).encode("The history of naïve 日本語 🐈\0")
    assert done.stdout.split() == [name, *map(str, expected)]


def trained(kind):
    """A tokenizer of another kind, trained on some words, as other people have them."""
    words = ["the cat sat on the mat", "the dog ran after the cat", "naïve cats, 12 dogs"] * 9
    if kind == "wordpiece":
        encoder = Encoder(models.WordPiece(unk_token="[UNK]"))
        encoder.normalizer, encoder.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        encoder.decoder = decoders.WordPiece()
        special = ["[UNK]", "[CLS]", "[SEP]"]
        encoder.train_from_iterator(words, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special))
        encoder.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
        encoder.enable_truncation(5)
        return encoder, "[SEP]"
    encoder = Encoder(models.BPE())
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=kind == "prefix")
    encoder.decoder = decoders.ByteLevel()
    special = {"own": "<|endoftext|>", "prefix": "<|endoftext|>", "first": "</s>"}[kind]
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=[special] if kind == "first" else [],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    encoder.train_from_iterator(words, trainer)
    encoder.add_special_tokens([special])
    return encoder, special


@pytest.mark.parametrize("kind, plain", [("own", True), ("prefix", False), ("first", False), ("wordpiece", False)])
def test_tokenizers_of_other_people(tmp_path, kind, plain):
    encoder, special = trained(kind)
    encoder.save(str(tmp_path / TOKENIZER))
    (tmp_path / TOKENIZER_CONFIG).write_text(json.dumps({"eos_token": special, "name_or_path": f"some/{kind}"}))
    tokenizer = make_tokenizer(str(tmp_path / TOKENIZER))
    assert tokenizer.name == f"some/{kind}" and tokenizer.vocab_size == encoder.get_vocab_size()
    assert tokenizer.end_of_text == encoder.token_to_id(special)
    encoder.no_truncation()
    encoder.encode_special_tokens = True
    texts = ["the cat sat on the mat after the dogs ran", f"12 cats{special}", "the naïve"]
    expected = [encoder.encode(text, add_special_tokens=False).ids for text in texts]
    save_tokenizer(tokenizer, tmp_path / "saved")
    loaded = load_tokenizer(tmp_path / "saved")
    assert isinstance(loaded, BytePairs) == plain and tokenizer_sha256(loaded) == tokenizer_sha256(tokenizer)
    for found in (tokenizer, loaded):
        assert found.encode_batch(texts, 2) == expected == [found.encode(text) for text in texts]
        assert tokenizer.end_of_text not in sum(expected, []) and found.end_of_text == tokenizer.end_of_text
        assert [found.decode(ids) for ids in expected] == [encoder.decode(ids, False) for ids in expected]


def test_a_tokenizer_that_transformers_has_used_and_saved_is_the_same(tmp_path):
    encoder, special = trained("first")
    encoder.save(str(tmp_path / TOKENIZER))
    (tmp_path / TOKENIZER_CONFIG).write_text(json.dumps({"eos_token": special}))
    tokenizer = make_tokenizer(tmp_path / TOKENIZER)
    save_tokenizer(tokenizer, tmp_path / "saved")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "saved")
    theirs.pad_token = theirs.eos_token
    assert len(theirs(["the cat sat", "a"], truncation=True, max_length=2, padding="max_length")["input_ids"][1]) == 2
    theirs.save_pretrained(tmp_path / "theirs")
    stored = json.loads((tmp_path / "theirs" / TOKENIZER).read_text())
    assert stored["truncation"] and stored["padding"]
    for path in (tmp_path / "saved", tmp_path / "theirs"):
        assert isinstance(load_tokenizer(path), FileTokenizer)
        assert tokenizer_sha256(load_tokenizer(path)) == tokenizer_sha256(tokenizer)


def test_the_files_of_gpt2_itself_are_read_in_plain_python(gpt2, tmp_path):
    """As the hub has them: merges as one text, the end of text in the vocabulary, an eos_token that is an object."""
    whole = make_tokenizer("gpt2")
    stored = json.loads(whole.to_json())
    stored["model"]["merges"] = [" ".join(pair) for pair in stored["model"]["merges"]]
    stored["post_processor"] = stored["pre_tokenizer"]
    del stored["model"]["ignore_merges"], stored["pre_tokenizer"]["use_regex"]
    (tmp_path / TOKENIZER).write_text(json.dumps(stored))
    (tmp_path / TOKENIZER_CONFIG).write_text(json.dumps({"eos_token": {"content": "<|endoftext|>"}}))
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, BytePairs) and loaded.name == TOKENIZER
    assert tokenizer_sha256(loaded) == tokenizer_sha256(whole)


def test_the_parents_of_a_token_are_those_of_its_merge():
    tokens = [*(bytes([i]) for i in range(256)), b"ab", b"bc", b"abc", b"abab"]
    assert merges_of(tokens) == [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"ab", b"ab")]
    with pytest.raises(ValueError, match="token b'xyz' is not a merge of two tokens"):
        merges_of([*tokens, b"xyz"])
    with pytest.raises(ValueError, match="the vocabulary of half has no token b'.x00'"):
        BytePairs("half", [b"b"], [])


def test_bad_files_get_one_line(tmp_path, gpt2):
    with pytest.raises(FileNotFoundError, match=r"no file .*tokenizer.json; save_tokenizer\(") as caught:
        load_tokenizer(tmp_path)
    one_line(caught)
    encoder, _ = trained("first")
    encoder.save(str(tmp_path / "whole.json"))
    no_merge = json.loads(make_tokenizer("gpt2:300").to_json())
    del no_merge["model"]["vocab"]["Ġt"]
    for content, words in [("{", "no readable tokenizer .JSONDecodeError"), ("[1]", "no readable tokenizer .TypeError"),
                           ("{}", "no readable tokenizer .KeyError"),
                           (json.dumps(no_merge), "no tokenizer that the tokenizers package reads|no token"),
                           ((tmp_path / "whole.json").read_text(), "has no token '<.endoftext.>' to end a document")]:
        (tmp_path / TOKENIZER).write_text(content)
        for call in (lambda: load_tokenizer(tmp_path), lambda: make_tokenizer(tmp_path / TOKENIZER)):
            with pytest.raises(ValueError, match=words) as caught:
                call()
            one_line(caught)
