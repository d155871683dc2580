"""Caches: what they hold in numbers, and that they advance together or not at all."""

import copy
import functools
import itertools

import pytest
import torch

from caracal_min import Caracal, CaracalConfig, modules, online
from caracal_min.caches import advance_together
from caracal_min.modules import MultiHeadFourier, SlidingWindowAttention
from caracal_min.partitioned import PartitionedConvolution
from caracal_min.relaxed import RelaxedConvolution

CAPACITY = 60


def model(gate_length: int | None = None) -> Caracal:
    torch.manual_seed(0)
    config = CaracalConfig(40, 16, 3, 2, window_size=6, gate_length=gate_length, embedding_std=0.5, init_std=0.2)
    return Caracal(config).double().eval()


def tokens(rows: int = 3) -> torch.Tensor:
    return torch.randint(40, (rows, CAPACITY), generator=torch.Generator().manual_seed(1))


class Broken(Exception):
    pass


PLACES = ["mixer_norm", "mixer", "mixer.to_out", "mlp_norm", "mlp"]


def break_at(m: Caracal, layer: int, place: str, error: type[BaseException], patch: pytest.MonkeyPatch) -> None:
    """Let one module raise after its work is done."""
    module = m.norm if place == "after the last block" else m.blocks[layer].get_submodule(place)
    forward = module.forward

    def broken(*given):
        forward(*given)
        raise error

    patch.setattr(module, "forward", broken, raising=False)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 4 tokens, so that a few steps cross several borders."""
    kinds = RelaxedConvolution, PartitionedConvolution
    monkeypatch.setitem(modules._CONVOLUTIONS, "relaxed", tuple(functools.partial(kind, base=4) for kind in kinds))


# Tokens held by the caches, and tokens read by the call that is broken off: before and after the window of 6 has
# filled; in a block of 4, on its last token, on its first; over one border and over several.
STEPS = [(0, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (15, 1)]
PROMPTS = [(0, 10), (2, 9), (3, 2), (4, 4), (7, 17), (8, 3)]


# With a gate of 7 tokens: before it is whole, at its last token, in the second period, at its end.
CUT = [(0, 1), (5, 1), (6, 1), (7, 1), (10, 1), (13, 1), (14, 1), (0, 10), (2, 3), (6, 2), (9, 17)]


@pytest.mark.parametrize("convolution, held, read, gate_length", [
    *(("relaxed", *call, None) for call in STEPS + PROMPTS), ("dot_product", 6, 1, None), ("dot_product", 7, 17, None),
    *(("relaxed", *call, 7) for call in CUT), *(("dot_product", *call, 7) for call in CUT[2:10:3])])
@torch.no_grad()
def test_a_call_that_breaks_off_can_be_made_again_or_another_in_its_place(convolution, held, read, gate_length,
                                                                          small_blocks, monkeypatch):
    m, ids = model(gate_length), tokens()
    error = Broken if read > 1 else KeyboardInterrupt
    begun = m.new_caches(3, CAPACITY, convolution)
    for t in range(held):
        m.logits(ids[:, t:t + 1], begun)
    then = [[ids[:, held:held + read], *ids[:, 30:36].split(1, dim=1)],  # the same again
            [*ids[:, 40:47].split(1, dim=1), ids[:, 50:55]]]  # others, and steps where a prompt broke off

    def go_on(caches, parts):
        return torch.cat([m.logits(part, caches) for part in parts], dim=1)

    expected = [go_on(copy.deepcopy(begun), parts) for parts in then]
    for n, (layer, place) in enumerate([*itertools.product(range(3), PLACES), (2, "after the last block")]):
        caches = copy.deepcopy(begun)
        with monkeypatch.context() as patch, pytest.raises(error):
            break_at(m, layer, place, error, patch)
            m.logits(ids[:, held:held + read] if n % 2 else ids[:, 50:50 + read], caches)
        assert [c.lengths for c in caches] == [[held] * 3] * 3
        assert torch.equal(go_on(caches, then[n % 2]), expected[n % 2]), (layer, place)


@pytest.mark.parametrize("gate_length", [None, 7])
@torch.no_grad()
def test_a_copy_goes_on_by_itself(gate_length, small_blocks):
    m, ids = model(gate_length), tokens()
    one = m.new_caches(3, CAPACITY)
    m.logits(ids[:, :9], one)
    two = [copy.copy(cache) for cache in one]
    pairs = [[m.logits(text[:, t:t + 1], caches) for text, caches in ((ids, one), (ids.flip(0), two))]
             for t in range(9, 20)]
    for row, text in zip(zip(*pairs, strict=True), (ids, torch.cat([ids[:, :9], ids.flip(0)[:, 9:]], 1)), strict=True):
        torch.testing.assert_close(torch.cat(row, 1), m.logits(text[:, :20])[:, 9:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("gate_length", [None, 7])
@pytest.mark.parametrize("lengths", [[1, 9, 8], [6, 7, 3]])
@torch.no_grad()
def test_rows_of_different_lengths_break_off_together(lengths, gate_length, small_blocks, monkeypatch):
    m, ids = model(gate_length), tokens()
    for steps in (None, 0, 1, 2, 3, 4):
        results = []
        for broken in (False, True):
            caches = m.new_caches(3, CAPACITY)
            if steps is not None:
                m.logits(ids[:, :max(lengths)], caches, lengths)
                for t in range(20, 20 + steps):
                    m.logits(ids[:, t:t + 1], caches)
            if broken:
                with monkeypatch.context() as patch, pytest.raises(Broken):
                    break_at(m, 2, "mlp", Broken, patch)
                    if steps is None:
                        m.logits(ids[:, :max(lengths)], caches, lengths)
                    m.logits(ids[:, 50:51], caches)
            results.append(torch.cat([m.logits(ids[:, t:t + 1], caches) for t in range(30, 44)], dim=1))
        assert torch.equal(*results), steps


@pytest.mark.parametrize("mixer", [MultiHeadFourier(16, 4), MultiHeadFourier(16, 4, gate_length=20),
                                   SlidingWindowAttention(16, 4, 5)])
@pytest.mark.parametrize("read", [1, 7])
def test_a_layer_alone_is_as_safe_in_the_context(mixer, read, monkeypatch):
    x, caches = torch.randn(2, 60, 16), [mixer.new_cache(2, 60) for _ in range(2)]
    for cache in caches:
        mixer(x[:, :31], cache)
    monkeypatch.setattr(mixer.to_out, "forward", lambda y: 1 / 0, raising=False)
    with pytest.raises(ZeroDivisionError), advance_together(caches[:1]):
        mixer(-x[:, :read], caches[0])
    monkeypatch.undo()
    assert torch.equal(*(mixer(x[:, 31:31 + read], cache) for cache in caches))


def test_logits_that_do_not_fit_leave_the_caches_as_they_were(monkeypatch):
    m, ids = model(), tokens()
    caches, twin = (m.new_caches(3, CAPACITY) for _ in range(2))
    for c in (caches, twin):
        m.logits(ids[:, :9], c)
    monkeypatch.setattr(m, "unembed", lambda hidden: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        m.logits(ids[:, 20:30], caches)
    monkeypatch.undo()
    assert torch.equal(m.logits(ids[:, 9:14], caches), m.logits(ids[:, 9:14], twin))


def numbers(cache) -> int:
    """Numbers in all tensors that hang on an object, whatever they are called; a view counts as what it keeps."""
    held, todo, seen = {}, [cache], set()
    while todo:
        thing = todo.pop()
        if isinstance(thing, torch.Tensor):
            held[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes() // thing.itemsize
        elif id(thing) not in seen:
            seen.add(id(thing))
            if isinstance(thing, tuple | list):
                todo += thing
            elif isinstance(thing, dict):
                todo += thing.values()
            elif type(thing).__module__.startswith("caracal_min"):
                todo += vars(thing).values()
    return sum(held.values())


@pytest.mark.parametrize("convolution, per_token", [("relaxed", 3), ("dot_product", 2)])
def test_numbers_held_per_token_and_channel(convolution, per_token):
    """As the docstrings say; the base block and the inputs of pre_conv do not grow with the capacity."""
    layer, held = MultiHeadFourier(8, 2), {}
    for capacity in (512, 1024):
        cache = layer.new_cache(1, capacity, convolution)
        with torch.no_grad():
            for tokens in (capacity - 40, 1, 39):
                layer(torch.randn(1, tokens, 8), cache)
                held[capacity] = numbers(cache)
                assert cache.nbytes / 4 <= held[capacity] <= cache.nbytes / 4 + 8  # a step leaves one input more
    assert held[1024] - held[512] == per_token * 8 * 512


@pytest.mark.parametrize("capacity", [1, 4, 6, 7, 100])
def test_a_window_cache_is_no_larger_than_its_capacity(capacity):
    layer = SlidingWindowAttention(8, 2, 6).double()
    cache = layer.new_cache(3, capacity)
    assert numbers(cache) == cache.nbytes / 8 == 2 * 3 * min(6, capacity) * 8
    x = torch.randn(3, capacity, 8, dtype=torch.float64)
    first = max(1, capacity // 2)
    found = [layer(x[:, :first], cache), *(layer(x[:, t:t + 1], cache) for t in range(first, capacity))]
    assert torch.allclose(torch.cat(found, dim=1), layer(x), atol=1e-12)
    whole = layer.new_cache(3, capacity)
    assert torch.allclose(layer(x, whole), layer(x), atol=1e-12)


@pytest.mark.parametrize("read", [1, 3])
def test_a_cut_window_refuses_what_it_cannot_hold_and_a_whole_one_goes_on(read):
    layer, x = SlidingWindowAttention(8, 2, 6), torch.randn(1, 20, 8)
    cut, whole = layer.new_cache(1, 4), layer.new_cache(1, 6)
    layer(x[:, :4], cut)
    with pytest.raises(ValueError, match=f"{4 + read} tokens do not fit a cache for 4; make the cache longer"):
        layer(x[:, 4:4 + read], cut)
    assert cut.lengths == [4]
    found = torch.cat([layer(part, whole) for part in x[:, :18].split(read, dim=1)], dim=1)
    assert torch.allclose(found, layer(x)[:, :18], atol=1e-6)


def test_a_huge_window_costs_nothing_where_the_capacity_is_small():
    model = Caracal(CaracalConfig(9, 8, 3, 2, window_size=10**12))
    assert sum(numbers(cache) for cache in model.new_caches(1, 5)) < 10_000
    assert model.generate(torch.zeros(1, 3, dtype=torch.int64), 2).shape == (1, 5)


def test_impossible_sizes_are_refused():
    for build in (SlidingWindowAttention(8, 2, 6), MultiHeadFourier(8, 2)):
        for batch, capacity in ((0, 5), (1, 0)):
            with pytest.raises(ValueError, match="give whole numbers >= 1"):
                build.new_cache(batch, capacity)


def test_a_refused_prompt_in_a_later_group_of_rows_leaves_the_earlier_ones(monkeypatch):
    """The convolution alone: the third group of rows fails, after two have been appended."""
    draw = torch.Generator().manual_seed(0)
    v, g = torch.randn(2, 3, 2, 90, generator=draw, dtype=torch.float64)
    held, twin = (RelaxedConvolution(3, 2, 200, torch.float64, base=8) for _ in range(2))
    for c in (held, twin):
        c.prefill(v[..., :30], g[..., :30], [29, 30, 12])
    calls, conv = [], online.causal_conv_fft

    def third_fails(*streams):
        calls.append(1)
        if len(calls) == 3:
            raise Broken
        return conv(*streams)

    monkeypatch.setattr(online, "causal_conv_fft", third_fails)
    with pytest.raises(Broken):
        held.prefill(-v[..., :40], g[..., :40])
    monkeypatch.undo()
    for t in range(40):
        assert torch.equal(*(c.step(v[..., t], g[..., t]) for c in (held, twin)))


@pytest.mark.parametrize("convolution", ["relaxed", "dot_product"])
@pytest.mark.parametrize("gate_length", [None, 7])
@pytest.mark.parametrize("rows", [[2, 0, 1], [1, 1, 1], [2], [0, 2, 1, 0, 2], torch.tensor([1, 0, 2])])
@torch.no_grad()
def test_rows_can_be_reordered_at_any_time(rows, gate_length, convolution, small_blocks):
    """Each row goes on as what it now is, whatever its length; and it shares nothing with its twin."""
    m, ids = model(gate_length), tokens()
    for lengths, steps in [([1, 9, 8], n) for n in range(6)] + [([6, 6, 6], 1), ([3, 4, 15], 9), (None, 0)]:
        caches = m.new_caches(3, CAPACITY, convolution)
        texts = [[] for _ in range(3)]
        if lengths is not None:
            m.logits(ids[:, :max(lengths)], caches, lengths)
            texts = [row[:n].tolist() for row, n in zip(ids, lengths, strict=True)]
        for t in range(20, 20 + steps):
            m.logits(ids[:, t:t + 1], caches)
            texts = [[*text, row[t].item()] for text, row in zip(texts, ids, strict=True)]
        for cache in caches:
            cache.reorder(rows)
        texts = [list(texts[i]) for i in rows]
        assert m.seen(caches) == [len(text) for text in texts]
        new = torch.randint(40, (len(texts), 20), generator=torch.Generator().manual_seed(2))
        chunks = [1] * 6 + [3, 1, 7, 1, 1, 1]
        found = torch.cat([m.logits(part, caches) for part in new.split(chunks, dim=1)], dim=1)
        for text, row, logits in zip(texts, new, found, strict=True):
            whole = torch.tensor([[*text, *row.tolist()]])
            assert torch.allclose(logits, m.logits(whole)[0, len(text):], atol=1e-11), (lengths, steps)


@torch.no_grad()
def test_beams_are_what_a_search_without_caches_finds():
    m, beams = model(), 4
    texts, scores = torch.tensor([[1, 2, 3]]), torch.zeros(1)
    slow, slow_scores = texts, scores
    caches = m.new_caches(1, 20)
    logits = m.logits(texts, caches)[:, -1]
    for _ in range(10):
        for_all = (scores[:, None] + logits.log_softmax(-1)).flatten().topk(beams)
        rows, ids, scores = for_all.indices // 40, for_all.indices % 40, for_all.values
        texts = torch.cat([texts[rows], ids[:, None]], dim=1)
        for cache in caches:
            cache.reorder(rows)
        logits = m.logits(ids[:, None], caches)[:, -1]
        best = (slow_scores[:, None] + m.logits(slow)[:, -1].log_softmax(-1)).flatten().topk(beams)
        slow, slow_scores = torch.cat([slow[best.indices // 40], best.indices[:, None] % 40], dim=1), best.values
        assert torch.equal(texts, slow) and torch.allclose(scores, slow_scores)
    assert len({tuple(text[:4]) for text in texts.tolist()}) > 1 or len(set(map(tuple, texts.tolist()))) == beams


@pytest.mark.parametrize("rows", [[], [3], [-1], [0.0], [[0]], torch.tensor([True, False])])
def test_rows_that_are_not_there_are_refused(rows):
    m = model()
    for cache in m.new_caches(3, 9):
        with pytest.raises(ValueError, match=r"rows=.*; give at least one whole number from 0 to 2"):
            cache.reorder(rows)
