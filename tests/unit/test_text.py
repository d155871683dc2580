"""Text in, text out, and the tokenizer that lies beside a model."""

import json

import pytest
import torch

from caracal_min import Caracal, CaracalConfig, generation as text
from caracal_min.data import ByteTokenizer, make_tokenizer
from caracal_min.text import stream_text
from caracal_min.zoo import load_model, make_model

SMALL = CaracalConfig(vocab_size=256, d_model=16, n_layers=3, n_heads=2, window_size=7, init_std=0.2, embedding_std=1.0)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = Caracal(SMALL).eval()
    model.tokenizer = make_tokenizer("byte")
    return model


@pytest.fixture
def scripted(monkeypatch):
    """Return a function: the pieces that some drawn ids give, whatever the prompt; and what `stream` was asked."""
    asked = {}

    def stream(model, prompt, max_new_tokens, **options):
        asked.update(options, prompt=prompt)
        yield from (torch.tensor([i]) for i in drawn[:max_new_tokens])

    def pieces(ids, tokenizer=None, prompt="x", **options):
        nonlocal drawn
        drawn = list(ids)
        return list(stream_text(Caracal(SMALL), tokenizer or ByteTokenizer(), prompt, 9, **options))

    drawn, pieces.asked = [], asked
    monkeypatch.setattr(text, "stream", stream)
    return pieces


class Words:
    """Decodes as SentencePiece does: the space before the first word is dropped."""

    name, vocab_size, end_of_text = "words", 5, 4

    def encode(self, text):
        return [0]

    def decode(self, ids):
        return "".join(["▁The", "▁cat", "s", "▁sat", "<end>"][i] for i in ids).replace("▁", " ").removeprefix(" ")


def test_a_text_is_the_prompt_and_what_the_drawn_ids_say(model):
    prompt = list("The é".encode())
    for seed in range(3):
        drawn = model.generate([prompt], 30, temperature=0.9, seed=seed, stop=0)[0].tolist()[len(prompt):]
        expected = ByteTokenizer().decode(i for i in drawn if i != 0)
        assert model.generate_text("The é", 30, temperature=0.9, seed=seed) == "The é" + expected.rstrip("\ufffd")
    assert model.generate_text("The é", 0) == "The é"


def test_options_reach_the_draw_and_the_end_of_text_ends_it(scripted):
    assert scripted([*b"ab", 0, *b"c"], top_k=3, seed=1) == ["a", "b"]
    assert scripted.asked == {"prompt": [[120]], "stop": [0], "top_k": 3, "seed": 1}
    assert scripted(b"abc", stop=(99, 98)) == ["a"]
    assert scripted(b"abc", stop=97) == []


def test_a_piece_is_never_half_a_character(scripted):
    euro = "a€b".encode()
    assert scripted(euro) == ["a", "€", "b"]
    assert "".join(scripted(euro[:3])) == "a"
    assert scripted([0xC0, 0x80, *b"z"]) == ["\0", "z"]
    assert "".join(scripted([0xFF, *b"z"])) == "\ufffdz"


def test_an_id_that_the_tokenizer_does_not_know_gets_one_line(scripted):
    with pytest.raises(ValueError, match="^the model draws id 300, and the tokenizer byte has 256 ids; give the tok"):
        scripted([65, 300])


def test_the_space_between_prompt_and_continuation_is_kept(scripted):
    assert scripted([1, 2, 3, 4, 1], Words(), "The") == [" cat", "s", " sat"]


@pytest.mark.parametrize("prompt, words", [
    ("", "give a text of at least one character"), (b"x", "give a text of at least one character"),
    ("ab\udcff", "character 3 of the prompt is half of a surrogate pair")])
def test_a_prompt_that_is_no_text_is_refused(model, prompt, words):
    with pytest.raises(ValueError, match=words) as caught:
        model.generate_text(prompt, 3)
    assert "\n" not in str(caught.value)
    with pytest.raises(TypeError, match="temprature"):
        model.generate_text("x", 3, temprature=1)


def test_a_model_without_a_tokenizer_says_how_to_give_one():
    with pytest.raises(ValueError, match=r"tokenizer \(none was given\); give one: model.tokenizer = make_token"):
        Caracal(SMALL).generate_text("x", 3)


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(tmp_path):
    """On a GPU nobody looks at ids, and on some devices one that is too large gives a wrong number."""
    one = Caracal(SMALL)
    one.tokenizer = ByteTokenizer()
    one.tokenizer.vocab_size = 300
    with pytest.raises(ValueError, match="^byte has 300 ids, the model 256; give the tokenizer that the model was"):
        one.generate_text("x", 3)
    with pytest.raises(ValueError, match="^byte has 300 ids"):
        one.save_pretrained(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_tokenizer_is_saved_and_loaded_with_its_model(model, tmp_path):
    model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors", "SHA256SUMS",
                                                          "tokenizer.json", "tokenizer_config.json"}
    loaded = Caracal.from_pretrained(tmp_path, device="cpu")
    assert loaded.tokenizer.name == "byte" and load_model(tmp_path).tokenizer.name == "byte"
    first, second = (m.generate_text("The ", 40, seed=1) for m in (model, loaded))
    assert first == second and first.startswith("The ") and len(first) > 4
    for name in ("tokenizer.json", "tokenizer_config.json"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole + b" ")
        with pytest.raises(ValueError, match=f"{name} is not what was saved"):
            Caracal.from_pretrained(tmp_path)
        (tmp_path / name).write_bytes(whole)


def test_a_tokenizer_that_cannot_be_read_is_missed_where_text_is_asked_for(model, tmp_path):
    """The model is of use without it, for instance where the package that reads it is not installed."""
    model.save_pretrained(tmp_path)
    (tmp_path / "SHA256SUMS").unlink()
    whole = (tmp_path / "tokenizer.json").read_text()
    big = json.loads(whole)
    big["model"]["vocab"] |= {f"word{i}": 256 + i for i in range(40)}
    for written, words in (("no json", "tokenizer.json is no readable tokenizer"), ("[" * 100_000, "recursion"),
                        (json.dumps(big), "has 296 ids, the model 256"), (None, "no file .*tokenizer.json")):
        if written is None:
            (tmp_path / "tokenizer.json").unlink()
        else:
            (tmp_path / "tokenizer.json").write_text(written)
        loaded = Caracal.from_pretrained(tmp_path, device="cpu")
        assert loaded.tokenizer is None
        with pytest.raises(ValueError, match=words) as caught:
            loaded.generate_text("x", 3)
        assert "\n" not in str(caught.value) and "give one: model.tokenizer" in str(caught.value)
        loaded.tokenizer = ByteTokenizer()
        assert loaded.generate_text("x", 0) == "x"


def test_a_tokenizer_of_another_tool_stays_where_it_is(tmp_path):
    (tmp_path / "tokenizer.json").write_text("somebody's")
    Caracal(SMALL).save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").read_text() == "somebody's"
    assert Caracal.from_pretrained(tmp_path, device="cpu").tokenizer is None


def test_a_baseline_keeps_its_tokenizer(tmp_path):
    pytest.importorskip("transformers")
    model = make_model("llama", "nano")
    model.tokenizer = make_tokenizer("byte")
    model.save_pretrained(tmp_path)
    assert load_model(tmp_path).require_tokenizer().name == "byte"
