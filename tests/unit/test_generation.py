"""Decoding: exact against the parallel pass, reproducible, and sampling as documented."""

from dataclasses import fields
from typing import get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caracal_min import Caracal, CaracalConfig, MultiHeadFourier, SlidingWindowAttention
from caracal_min.generation import Sampling, draw, filter_logits


def model(**changes) -> Caracal:
    torch.manual_seed(0)
    config = dict(vocab_size=40, d_model=16, n_layers=4, n_heads=2, window_size=6, embedding_std=0.05, init_std=0.1)
    return Caracal(CaracalConfig(**{**config, **changes})).eval()


VARIANTS = [{}, dict(fourier_per_attention=None), dict(positional_encoding="learned"), dict(pre_conv=False),
            dict(gate_length=1), dict(gate_length=9), dict(gate_length=33, fourier_per_attention=None)]
# The largest difference of a logit, whose own size is about 1.
TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-4}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("convolution", ["relaxed", "dot_product"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_teacher_forced_steps_equal_the_parallel_pass(dtype, convolution, data):
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
    assert m.seen(caches) == [n + new for n in prompts]
    expected = m.logits(tokens)
    for i, n in enumerate(prompts):
        found = torch.cat([first[i, :n], *(y[i] for y in steps)])
        assert torch.allclose(found, expected[i, :n + new], atol=TOLERANCE[dtype], rtol=0)


@pytest.mark.parametrize("gate_length", [None, 5, 10])
def test_prompts_of_different_lengths_are_continued_as_if_alone(gate_length):
    m = model(gate_length=gate_length).double()
    prompts = [[1, 2, 3], [4], list(range(30)), torch.tensor([7, 8])]
    together = m.generate(prompts, 12, temperature=0.0)
    for prompt, row in zip(prompts, together, strict=True):
        assert torch.equal(row[None], m.generate(torch.as_tensor(prompt)[None], 12, temperature=0.0))
    assert [r.tolist() for r in m.generate([[1], [2, 3]], 0)] == [[1], [2, 3]]


@pytest.mark.parametrize("gate_length", [None, 3, 9])
def test_greedy_equals_rerunning_the_whole_model(gate_length):
    m = model(gate_length=gate_length).double()
    prompt = torch.randint(40, (3, 4), generator=torch.Generator().manual_seed(3))
    slow = prompt
    for _ in range(20):
        slow = torch.cat([slow, m(slow)[0][:, -1].argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(m.generate(prompt, 20, temperature=0.0), slow)


def test_seed_makes_draws_reproducible():
    m, prompt = model(), torch.tensor([[1, 2, 3]])
    first = m.generate(prompt, 30, seed=5)
    assert first.shape == (1, 33) and torch.equal(first[:, :3], prompt)
    assert torch.equal(first, m.generate(prompt, 30, seed=5))
    assert not torch.equal(first, m.generate(prompt, 30, seed=6))


def test_stream_yields_what_generate_returns():
    m, prompt = model(), torch.tensor([[1, 2], [3, 4]])
    streamed = torch.stack(list(m.stream(prompt, 7, seed=1)), dim=1)
    assert torch.equal(torch.cat([prompt, streamed], dim=1), m.generate(prompt, 7, seed=1))


def test_draws_follow_the_distribution():
    m, prompt = model(), torch.tensor([[7]]).expand(4000, 1)
    expected = (m(prompt[:1])[0][0, -1] / 0.7).softmax(-1)
    drawn = m.generate(prompt, 1, temperature=0.7, seed=0)[:, -1]
    observed = torch.bincount(drawn, minlength=40) / 4000
    chi2 = 4000 * ((observed - expected).square() / expected).sum().item()
    assert chi2 < 80  # 39 degrees of freedom: beyond 80 one time in ten thousand


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
    everything = m.generate(prompt, 200, seed=2, stop=list(range(40)))
    assert everything.shape == (3, 2)


def test_filters():
    logits = torch.log(torch.tensor([[0.1, 0.4, 0.2, 0.3]]))
    kept = lambda **options: filter_logits(logits, **options).isfinite()[0].tolist()  # noqa: E731
    assert kept(top_k=2) == [False, True, False, True]
    assert kept(top_p=0.5) == [False, True, False, True]
    assert kept(top_p=0.39) == [False, True, False, False]
    assert kept(top_p=1.0) == kept(top_k=9) == [True] * 4
    assert kept(top_k=3, top_p=0.75) == [False, True, False, True]  # of 4/9, 3/9, 2/9 the first two hold 7/9
    assert torch.equal(filter_logits(logits, top_k=2)[0, 1], logits[0, 1])


@pytest.mark.parametrize("options, words", [
    (dict(temperature=-1.0), ["temperature=-1.0", "0.0 for greedy"]),
    (dict(top_k=0), ["top_k=0"]),
    (dict(top_p=0.0), ["top_p=0.0"]),
    (dict(top_p=1.5), ["top_p=1.5"]),
    (dict(max_new_tokens=-1), ["max_new_tokens=-1"]),
    (dict(prompt=torch.tensor([1, 2])), ["prompt", "(2,)"]),
    (dict(prompt=torch.tensor([[99]])), ["prompt", "id 99"]),
    (dict(prompt=[[1], []]), ["prompt", "(0,)", "at least one id"]),
    (dict(prompt=[]), ["prompt", "at least one sequence"]),
    (dict(prompt=[[1.5]]), ["prompt", "ids"]),
    (dict(prompt=[["a"]]), ["prompt", "other than whole numbers"]),
    (dict(prompt="text"), ["prompt", "other than whole numbers"]),
    (dict(prompt=[[2**70]]), ["prompt", "other than whole numbers"]),
    (dict(prompt=torch.zeros(0, 3, dtype=torch.int64)), ["prompt", "(0, 3)", "at least one sequence"]),
    (dict(prompt=torch.zeros(1, 3, dtype=torch.int64, device="meta")), ["prompt", "meta", "cpu"]),
    (dict(prompt=torch.tensor([[True]])), ["prompt", "torch.bool"]),
    (dict(temperature=1e-300), ["temperature=1e-300", "0.0 for greedy"]),
    (dict(temperature=float("nan")), ["temperature=nan"]),
    (dict(max_new_tokens=2.5), ["max_new_tokens=2.5", "whole number"]),
    (dict(top_k=2.5), ["top_k=2.5", "whole number"]),
    (dict(convolution="magic"), ["magic", "relaxed, dot_product"]),
    (dict(top_k=True), ["top_k=True", "whole number"]),
    (dict(seed=1.5), ["seed=1.5", "whole number"]),
    (dict(stop=2.5), ["stop=2.5", "sequence of ids"]),
    (dict(stop=[1, 2.5]), ["stop=[1, 2.5]", "sequence of ids"]),
    (dict(stop="ab"), ["stop=ab", "sequence of ids"]),
    (dict(stop=99), ["stop holds id 99", "0 to 39"]),
    (dict(stop=[3, -1]), ["stop holds id -1", "0 to 39"]),
    (dict(max_new_tokens=np.float64(2)), ["max_new_tokens=2.0", "whole number"]),
])
def test_bad_options_get_one_clear_line(options, words):
    with pytest.raises(ValueError) as caught:
        model().generate(**{**dict(prompt=torch.tensor([[1]]), max_new_tokens=2), **options})
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("sampling", [dict(temperature=0.0), dict(seed=0), dict(seed=0, top_k=3), dict(top_p=0.5)])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["embedding.weight", "norm.weight", "blocks.3.mlp.to_out.weight"])
def test_weights_that_are_not_finite_choose_no_token(sampling, bad, where):
    m = model()
    with torch.no_grad():
        m.get_parameter(where)[0] = bad
    with pytest.raises(ValueError, match="largest logit of row 0 is .*; the weights hold NaN or infinity") as caught:
        m.generate([[0, 1], [2]], 3, **sampling)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("row, largest", [([1.0, float("nan"), 2.0], "nan"), ([0.0, float("inf"), 1.0], "inf"),
                                          ([-float("inf")] * 3, "-inf")])
def test_a_draw_needs_a_largest_logit_and_allows_excluded_tokens(row, largest):
    good = [-float("inf"), 0.5, -float("inf")]
    for temperature in (0.0, 1.0):
        assert draw(torch.tensor([good, good]), temperature).tolist() == [1, 1]
        with pytest.raises(ValueError, match=f"logit of row 1 is {largest}, "):
            draw(torch.tensor([good, row]), temperature)


def test_the_most_likely_token_stays_at_any_p():
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    for p in (1e-300, 1e-45, 1e-8):
        assert filter_logits(logits, top_p=p).isfinite()[0].tolist() == [False, True, False]


def test_a_misspelt_option_is_refused_by_the_name_of_what_was_called():
    model = Caracal.from_preset("nano", n_layers=1)
    for name in ("generate", "stream"):
        with pytest.raises(TypeError, match=rf"Caracal\.{name}\(\) got an unexpected keyword argument 'temprature'; "
                                            "accepted: caches, temperature, top_k"):
            getattr(model, name)([[1]], 3, temprature=0.5)


def test_the_options_for_type_checkers_are_those_of_sampling():
    assert get_type_hints(SamplingOptions) == {f.name: get_type_hints(Sampling)[f.name] for f in fields(Sampling)}


def test_bad_options_are_refused_by_the_call_and_not_by_the_first_step():
    with pytest.raises(ValueError, match="top_k=0"):
        model().stream([[1]], 3, top_k=0)


@pytest.mark.parametrize("options", [dict(seed=1), dict(temperature=0.0), dict(seed=1, stop=3)])
@pytest.mark.parametrize("cached", [False, True])
def test_what_is_drawn_is_an_ordinary_tensor_and_so_are_the_caches(options, cached):
    m, prompt = model(), torch.tensor([[1, 2, 3]])
    caches = m.new_caches(1, 60) if cached else None
    for ids in m.stream(prompt, 40, caches=caches, **options):
        assert not ids.is_inference()
        m(ids[:, None], ids[:, None].clone())[1].backward()  # refused for an inference tensor
    whole = m.generate(prompt, 3, **options)
    assert not whole.is_inference()
    if cached:
        m.logits(whole[:, -1:], caches)  # writes into them outside of inference mode


@pytest.mark.parametrize("convolution", ["relaxed", "dot_product"])
@pytest.mark.parametrize("changes", VARIANTS)
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
    assert read == [30] + [1] * 24 and m.seen(caches) == [len(row) - 1 for row in rows]
    more = [torch.cat([row, torch.tensor([5, 6])]) for row in rows]  # text of the caller's comes between
    for a, b in zip(m.generate(more, 2, temperature=0.0, caches=caches), m.generate(more, 2, temperature=0.0),
                    strict=True):
        assert torch.equal(a, b)


def test_what_caches_cannot_go_on_from_is_refused_before_any_work():
    m = model()
    caches = m.new_caches(2, 10)
    m.logits(torch.tensor([[1, 2, 3], [4, 5, 6]]), caches)
    for prompt, new, words in [
        ([[1, 2, 3, 4], [4, 5, 6]], 2, r"hold \[3, 3\] tokens and the prompt has \[4, 3\]; give the whole text"),
        ([[1, 2, 3, 4]], 2, r"hold \[3, 3\] tokens and the prompt has \[4\]"),
        ([[1, 2, 3, 4], [4, 5, 6, 7]], 8, r"11 tokens do not fit caches for 10; make them with new_caches\(2, 11\)"),
    ]:
        with pytest.raises(ValueError, match=words):
            m.generate(prompt, new, caches=caches)
        assert m.seen(caches) == [3, 3]
    assert [len(row) for row in m.generate([[1, 2, 3, 4], [4, 5, 6, 7]], 7, caches=caches)] == [11, 11]
    endless = model(gate_length=4).new_caches(1, 20)
    assert len(model(gate_length=4).generate([[1]], 50, caches=endless)[0]) == 51


def test_learned_positions_are_refused_before_a_token_is_drawn():
    m, drawn = model(positional_encoding="learned", max_positions=8), []
    with pytest.raises(ValueError, match="a prompt of 3 tokens and 7 more need 9 positions, and .* covers 8; ask for"):
        drawn += m.stream([[1], [1, 2, 3]], 7)
    assert drawn == []
    assert m.generate([[1, 2, 3]], 6)[0].shape == (9,)  # the last one is not read


def test_numbers_of_numpy_are_whole_numbers():
    m = model()
    found = m.generate([[1, 2]], np.int64(5), top_k=np.int32(3), seed=np.int64(1), stop=np.int64(39),
                       temperature=np.float64(1.0), top_p=np.float32(0.9))
    expected = m.generate([[1, 2]], 5, top_k=3, seed=1, stop=39, top_p=float(np.float32(0.9)))
    assert torch.equal(found[0], expected[0])
    assert m.generate(np.array([[1, 2]]), 2, stop=np.array([3, 4]))[0].shape == (4,)
    layer = MultiHeadFourier(np.int64(8), np.int64(2), gate_length=np.int64(4))
    assert layer(torch.randn(1, 5, 8), layer.new_cache(np.int64(1), np.int64(9))).shape == (1, 5, 8)
    layer = SlidingWindowAttention(np.int64(8), np.int64(2), np.int64(3))
    assert layer(torch.randn(1, 5, 8), layer.new_cache(np.int64(1), np.int64(9))).shape == (1, 5, 8)


class Waits(torch.overrides.TorchFunctionMode):
    """Counts the calls that would wait for a GPU."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        names = ("tolist", "item", "cpu", "numpy", "nonzero", "__bool__", "__int__", "__float__", "__index__")
        self.count += getattr(function, "__name__", "") in names
        return function(*args, **kwargs or {})


@pytest.mark.parametrize("options", [dict(seed=1), dict(temperature=0.0), dict(seed=1, stop=[39, 38]),
                                     dict(seed=1, top_k=5, top_p=0.9)])
def test_a_token_waits_for_the_device_once(options):
    m, prompt = model(), torch.tensor([[1, 2], [3, 4]])
    steps = m.stream(prompt, 30, **options)
    next(steps)
    for _ in range(5):
        with Waits() as waits:
            next(steps)
        assert waits.count == 1


@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 3e-2), (torch.float16, 5e-3)])
@pytest.mark.parametrize("changes", VARIANTS)
def test_decoding_under_autocast(changes, dtype, bound):
    m, ids = model(**changes), torch.randint(40, (1, 30), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), torch.autocast("cpu", dtype):
        caches, expected = m.new_caches(1, 30), m.logits(ids)
        found = torch.cat([m.logits(part, caches) for part in ids.split([3, 1, 1, 9, *[1] * 16], dim=1)], dim=1)
        assert m.generate(ids, 3).shape == (1, 33)
    assert found.dtype == expected.dtype == dtype
    assert (found.float() - expected.float()).norm() < bound * expected.float().norm()


def test_draws_are_those_of_multinomial():
    logits = torch.randn(50, 300, generator=torch.Generator().manual_seed(0))
    found = draw(logits, 0.7, generator=torch.Generator().manual_seed(1))
    expected = torch.multinomial((logits / 0.7).softmax(-1), 1, generator=torch.Generator().manual_seed(1))
    assert torch.equal(found, expected[:, 0])
