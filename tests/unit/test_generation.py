"""Decoding: exact against the parallel pass, reproducible, sampling as documented, text in and text out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caracal_min import Caracal, CaracalConfig, generation
from caracal_min.data import ByteTokenizer
from caracal_min.generation import draw, filter_logits, stream_text


def model(**changes) -> Caracal:
    torch.manual_seed(0)
    config = dict(vocab_size=40, d_model=16, n_layers=4, n_heads=2, window_size=6, embedding_std=0.05, init_std=0.1)
    return Caracal(CaracalConfig(**{**config, **changes})).eval()


VARIANTS = [{}, dict(fourier_per_attention=None), dict(positional_encoding="learned"), dict(pre_conv=False),
            dict(gate_length=1), dict(gate_length=9), dict(gate_length=33, fourier_per_attention=None)]


# The largest difference of a logit, whose own size is about 1.
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-11), (torch.float32, 1e-4)])
@pytest.mark.parametrize("convolution", ["relaxed", "dot_product"])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_teacher_forced_steps_equal_the_parallel_pass(dtype, tolerance, convolution, data):
    """Prompts of any lengths in one batch, then steps: before and after the window of 6 and the base of 32 fill."""
    m = model(**data.draw(st.sampled_from(VARIANTS))).to(dtype)
    prompts = data.draw(st.lists(st.integers(1, 45), min_size=1, max_size=3))
    new = data.draw(st.integers(1, 40))
    tokens = torch.randint(40, (len(prompts), max(prompts) + new),
                           generator=torch.Generator().manual_seed(data.draw(st.integers(0, 50))))
    caches = m.new_caches(len(prompts), max(prompts) + new, convolution)
    first = m.logits(tokens[:, :max(prompts)], caches, prompts)
    steps = [m.logits(torch.stack([tokens[i, n + s] for i, n in enumerate(prompts)])[:, None], caches)
             for s in range(new)]
    assert caches[0].held == [n + new for n in prompts]
    expected = m.logits(tokens)
    for i, n in enumerate(prompts):
        found = torch.cat([first[i, :n], *(y[i] for y in steps)])
        assert torch.allclose(found, expected[i, :n + new], atol=tolerance, rtol=0)


@pytest.mark.parametrize("gate_length", [None, 5, 10])
def test_prompts_of_different_lengths_are_continued_as_by_the_whole_model_alone(gate_length):
    m = model(gate_length=gate_length).double()
    prompts = [[1, 2, 3], [4], list(range(30)), torch.tensor([7, 8])]
    for prompt, row in zip(prompts, m.generate(prompts, 12, temperature=0.0), strict=True):
        slow = torch.as_tensor(prompt)[None]
        for _ in range(12):
            slow = torch.cat([slow, m(slow)[0][:, -1].argmax(-1, keepdim=True)], dim=1)
        assert torch.equal(row[None], slow)
    assert [row.tolist() for row in m.generate([[1], [2, 3]], 0)] == [[1], [2, 3]]


@pytest.mark.parametrize("convolution", ["relaxed", "dot_product"])
@pytest.mark.parametrize("changes", VARIANTS[::2])
def test_generation_goes_on_from_caches(changes, convolution):
    m = model(**changes).double()
    prompts = [[1, 2, 3], [4], list(range(30))]
    expected = m.generate(prompts, 25, temperature=0.0)
    caches, rows, read = m.new_caches(3, 60, convolution), prompts, []
    hook = m.register_forward_pre_hook(lambda module, given: read.append(given[0].shape[1]))
    for new in (3, 1, 0, 21):
        rows = m.generate(rows, new, temperature=0.0, caches=caches)
    hook.remove()
    assert all(torch.equal(a, b) for a, b in zip(rows, expected, strict=True))
    assert read == [30] + [1] * 24 and caches[0].held == [len(row) - 1 for row in rows]
    m.logits(torch.stack([row[-1:] for row in rows]), caches)  # they are ordinary tensors
    with pytest.raises(ValueError, match="the caches hold .* give the whole text"):
        m.generate(rows, 2, caches=caches)


def test_seeds_and_streams():
    m, prompt = model(), torch.tensor([[1, 2], [3, 4]])
    first = m.generate(prompt, 30, seed=5)
    assert first.shape == (2, 32) and torch.equal(first[:, :2], prompt) and not first.is_inference()
    assert torch.equal(first, m.generate(prompt, 30, seed=5))
    assert not torch.equal(first, m.generate(prompt, 30, seed=6))
    streamed = list(m.stream(prompt, 30, seed=5))
    assert torch.equal(torch.stack(streamed, dim=1), first[:, 2:])
    m(streamed[0][:, None], streamed[1][:, None])[1].backward()  # refused for tensors of inference mode


def test_stop_ends_each_sequence_and_then_all():
    m, prompt = model(), torch.tensor([[1], [2], [3]])
    free = m.generate(prompt, 200, seed=2)
    stop = free[0, 5].item()
    ended = m.generate(prompt, 200, seed=2, stop=stop)
    for row in ended:
        hits = (row[1:] == stop).nonzero()
        if hits.numel():
            assert (row[1 + hits[0, 0]:] == stop).all()
    first = (free[0, 1:] == stop).nonzero()[0, 0] + 1
    assert torch.equal(ended[0, :first + 1], free[0, :first + 1])
    assert m.generate(prompt, 200, seed=2, stop=list(range(40))).shape == (3, 2)


def test_draws_are_those_of_multinomial():
    """So texts that were recorded with a seed are drawn again."""
    logits = torch.randn(50, 300, generator=torch.Generator().manual_seed(0))
    found = draw(logits, 0.7, generator=torch.Generator().manual_seed(1))
    expected = torch.multinomial((logits / 0.7).softmax(-1), 1, generator=torch.Generator().manual_seed(1))
    assert torch.equal(found, expected[:, 0])


def test_filters():
    logits = torch.log(torch.tensor([[0.1, 0.4, 0.2, 0.3]]))
    kept = lambda **options: filter_logits(logits, **options).isfinite()[0].tolist()  # noqa: E731
    assert kept(top_k=2) == [False, True, False, True]
    assert kept(top_p=0.5) == [False, True, False, True]
    assert kept(top_p=0.39) == kept(top_p=1e-300) == [False, True, False, False]
    assert kept(top_p=1.0) == kept(top_k=9) == [True] * 4
    assert kept(top_k=3, top_p=0.75) == [False, True, False, True]  # of 4/9, 3/9, 2/9 the first two hold 7/9
    assert torch.equal(filter_logits(logits, top_k=2)[0, 1], logits[0, 1])


@pytest.mark.parametrize("options, words", [
    (dict(temperature=-1.0), ["temperature=-1.0", "temperature >= 0"]),
    (dict(top_k=0), ["top_k=0"]),
    (dict(top_p=1.5), ["top_p=1.5"]),
    (dict(temprature=0.5), ["unknown option 'temprature'", "temperature, top_k"]),
    (dict(convolution="magic"), ["magic"]),
    (dict(prompt=torch.tensor([1, 2])), ["prompt", "(2,)"]),
    (dict(prompt=[1, 2]), ["prompt is no batch", "[[5, 7]]"]),
    (dict(prompt=[[1], []]), ["prompt is no batch"]),
    (dict(prompt="text"), ["prompt is text", "generate_text"]),
    (dict(prompt=torch.tensor([[99]])), ["prompt", "id 99"]),
])
def test_likely_mistakes_get_one_clear_line_from_the_call(options, words):
    with pytest.raises(ValueError) as caught:
        model().stream(**{**dict(prompt=torch.tensor([[1]]), max_new_tokens=2), **options})
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_no_token_is_drawn_from_logits_that_are_not_finite(temperature, bad):
    m = model()
    with torch.no_grad():
        m.blocks[3].mlp.to_out.weight[0] = bad
    with pytest.raises(ValueError, match="the largest logit is NaN or infinite"):
        m.generate([[0, 1], [2]], 3, temperature=temperature)
    excluded = [-float("inf"), 0.5, -float("inf")]
    assert draw(torch.tensor([excluded]), temperature).tolist() == [1]


@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 3e-2), (torch.float16, 5e-3)])
@pytest.mark.parametrize("changes", VARIANTS[::2])
def test_decoding_under_autocast(changes, dtype, bound):
    m, ids = model(**changes), torch.randint(40, (1, 30), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), torch.autocast("cpu", dtype):
        caches, expected = m.new_caches(1, 30), m.logits(ids)
        found = torch.cat([m.logits(part, caches) for part in ids.split([3, 1, 1, 9, *[1] * 16], dim=1)], dim=1)
        assert m.generate(ids, 3).shape == (1, 33)
    assert found.dtype == expected.dtype == dtype
    assert (found.float() - expected.float()).norm() < bound * expected.float().norm()


class Words:
    """Decodes as SentencePiece does: the space before the first word is dropped."""

    name, vocab_size, end_of_text = "words", 5, 4

    def encode(self, text):
        return [0]

    def decode(self, ids):
        return "".join(["▁The", "▁cat", "s", "▁sat", "<end>"][i] for i in ids).replace("▁", " ").removeprefix(" ")


def test_a_text_ends_with_its_end_of_text_and_a_piece_with_a_whole_character(monkeypatch):
    def pieces(ids, tokenizer=None, **options):
        monkeypatch.setattr(generation, "stream", lambda *given, **rest: (torch.tensor([i]) for i in ids))
        return list(stream_text(None, tokenizer or ByteTokenizer(), "x", 9, **options))

    assert pieces([*b"ab", 0, *b"c"]) == ["a", "b"]
    assert pieces(b"abc", stop=(99, 98)) == ["a"] and pieces(b"abc", stop=97) == []
    euro = "a€b".encode()
    assert pieces(euro) == ["a", "€", "b"] and "".join(pieces(euro[:3])) == "a"
    assert "".join(pieces([0xFF, *b"z"])) == "\ufffdz"
    assert pieces([1, 2, 3, 4, 1], Words()) == [" cat", "s", " sat"]


def test_a_model_continues_text_with_its_tokenizer():
    m = model(vocab_size=256)
    with pytest.raises(ValueError, match="no tokenizer; give it one: model.tokenizer = make_tokenizer"):
        m.generate_text("x", 3)
    m.tokenizer = ByteTokenizer()
    prompt = list("The é".encode())
    drawn = m.generate([prompt], 30, temperature=0.9, seed=3, stop=0)[0].tolist()[len(prompt):]
    expected = ByteTokenizer().decode(i for i in drawn if i != 0).rstrip("\ufffd")
    assert m.generate_text("The é", 30, temperature=0.9, seed=3) == "The é" + expected
    with pytest.raises(ValueError, match=r"length >= 1|at least one id"):
        m.generate_text("", 3)
