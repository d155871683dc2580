"""The layers: the four steps written out, causality, caches, variants, errors."""

import weakref

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from caracal_min.modules import Block, MultiHeadFourier, SlidingWindowAttention, SwiGLU
from caracal_min.relaxed import RelaxedConvolution


def fourier(seed=0, **options) -> MultiHeadFourier:
    torch.manual_seed(seed)
    return MultiHeadFourier(16, 4, **options).double()


@pytest.mark.parametrize("gate_length", [None, 1, 4, 8, 9, 20])
def test_fourier_is_its_four_steps(gate_length):
    """Section 3.2, token by token, channel by channel, with loops; and with the gate cut."""
    layer, batch, length = fourier(gate_length=gate_length), 2, 9
    x = torch.randn(batch, length, 16, dtype=torch.float64)
    taps = layer.pre_conv.weight[:, 0]  # (D, 3): the last tap meets the token itself
    past = torch.cat([x.new_zeros(batch, 2, 16), x], dim=1)
    mixed = torch.stack([sum(past[:, t + k] * taps[:, k] for k in range(3)) for t in range(length)], dim=1)
    normed = F.layer_norm(mixed, (16,), layer.norm.weight, layer.norm.bias)
    v = normed @ layer.to_value.weight.T + layer.to_value.bias
    hidden = F.silu(normed @ layer.to_gate.weight.T + layer.to_gate.bias)
    g = torch.empty_like(hidden)
    for head in range(4):
        own = slice(4 * head, 4 * head + 4)
        g[..., own] = hidden[..., own] @ layer.gate_mix.weight[own, :, 0].T + layer.gate_mix.bias[own]
    g[:, length if gate_length is None else gate_length:] = 0
    r = torch.stack([sum(v[:, j] * g[:, t - j] for j in range(t + 1)) for t in range(length)], dim=1)
    assert torch.allclose(layer(x), r @ layer.to_out.weight.T + layer.to_out.bias, atol=1e-12)


@pytest.mark.parametrize("layer", [
    fourier(), fourier(pre_conv=False), fourier(gate="single_stage"), fourier(gate_length=6),
    SlidingWindowAttention(16, 4, 5).double(),
    Block(fourier(), 32).double(), Block(SlidingWindowAttention(16, 4, 5), 32).double(),
])
def test_outputs_never_depend_on_later_tokens(layer):
    x = torch.randn(1, 20, 16, dtype=torch.float64)
    before = layer(x)
    for t in (0, 7, 19):
        changed = x.clone()
        changed[:, t] += torch.randn(16, dtype=torch.float64)  # a constant would vanish in the norm
        moved = (layer(changed) - before).abs().amax((0, 2))
        assert moved[:t].numel() == 0 or moved[:t].max() < 1e-13
        assert moved[t] > 1e-6


def test_attention_forgets_beyond_its_window_and_fourier_does_not():
    x = torch.randn(1, 40, 16, dtype=torch.float64)
    changed = x.clone()
    changed[:, 3] += 1.0
    attention = SlidingWindowAttention(16, 4, 5).double()
    moved = (attention(changed) - attention(x)).abs().amax((0, 2))
    assert moved[7] > 1e-6 and torch.equal(moved[8:], torch.zeros(32, dtype=torch.float64))
    layer = fourier()
    assert (layer(changed) - layer(x)).abs().amax((0, 2))[3:].min() > 1e-9


def test_gates_that_are_cut_are_not_computed():
    layer, read = fourier(gate_length=7), []
    layer.to_gate.register_forward_hook(lambda module, given, result: read.append(given[0].shape[:2].numel()))
    x = torch.randn(2, 20, 16, dtype=torch.float64)
    cache = layer.new_cache(2, 20)
    layer(x)
    for part in x.split([4, 1, 5, 1, 9], dim=1):
        layer(part, cache)
    assert read == [2 * 7, 2 * 4, 2 * 1, 2 * 2]


def test_parameters_do_not_depend_on_the_gate_length():
    shapes = [{name: p.shape for name, p in fourier(gate_length=n).named_parameters()} for n in (None, 5)]
    assert shapes[0] == shapes[1]


def test_qkv_are_stacked_in_that_order():
    layer = SlidingWindowAttention(8, 2, 4)
    x = torch.randn(1, 3, 8)
    q, k, v = (x @ w.T for w in layer.to_qkv.weight.split(8))
    q, k, v = (s.unflatten(-1, (2, 4)).transpose(1, 2) for s in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    assert torch.allclose(layer(x), y @ layer.to_out.weight.T, atol=1e-6)


def test_swiglu_formula():
    layer, x = SwiGLU(8, 24), torch.randn(2, 3, 8)
    gate = x @ layer.to_gate.weight.T
    expected = ((x @ layer.to_value.weight.T) * gate * torch.sigmoid(gate)) @ layer.to_out.weight.T
    assert torch.allclose(layer(x), expected, atol=1e-6)


@pytest.mark.parametrize("layer", [
    fourier(), fourier(pre_conv=False), fourier(gate="single_stage"), SlidingWindowAttention(16, 4, 6).double(),
    SlidingWindowAttention(16, 4, 1).double(), fourier(gate_length=1), fourier(gate_length=11), fourier(gate_length=29),
    fourier(gate_length=7, gate="single_stage", pre_conv=False),
])
@pytest.mark.parametrize("cuts", [[30], [1] * 30, [11] + [1] * 19, [4, 9, 1, 1, 15], [1, 29]])
def test_cached_chunks_equal_the_parallel_pass(layer, cuts):
    x = torch.randn(2, 30, 16, dtype=torch.float64)
    cache = layer.new_cache(2, 30)
    parts = [layer(part, cache) for part in x.split(cuts, dim=1)]
    assert torch.allclose(torch.cat(parts, dim=1), layer(x), atol=1e-12)


def test_window_cache_stays_small_and_fourier_cache_refuses_overflow():
    attention = SlidingWindowAttention(16, 4, 6).double()
    cache = attention.new_cache(1, 100)
    for _ in range(20):
        attention(torch.randn(1, 3, 16, dtype=torch.float64), cache)
    assert cache.k.shape == cache.v.shape == (1, 4, 6, 4) and cache.lengths == [60]
    layer = fourier()
    with pytest.raises(ValueError, match="5 tokens do not fit a cache for 4"):
        layer(torch.randn(1, 5, 16, dtype=torch.float64), layer.new_cache(1, 4))
    assert isinstance(layer.new_cache(1, 4).convolution, RelaxedConvolution)
    with pytest.raises(ValueError, match="unknown convolution 'magic'; accepted: relaxed, dot_product"):
        layer.new_cache(1, 4, "magic")


@pytest.mark.parametrize("layer", [fourier(), fourier(pre_conv=False), fourier(gate_length=4), fourier(gate_length=7),
                                   SlidingWindowAttention(16, 4, 6).double()])
def test_rows_of_different_lengths_do_not_meet(layer):
    """Three rows of 1, 9 and 4 tokens, then steps: each row is what it would be alone; NaN beyond a row is harmless."""
    x = torch.randn(3, 20, 16, dtype=torch.float64)
    lengths = [1, 9, 4]
    padded = x[:, :9].clone()
    for row, n in zip(padded, lengths, strict=True):
        row[n:] = float("nan")
    cache = layer.new_cache(3, 20)
    first = layer(padded, cache, lengths)
    steps = [layer(torch.stack([x[i, n + s] for i, n in enumerate(lengths)])[:, None], cache) for s in range(11)]
    alone = layer(x)
    for i, n in enumerate(lengths):
        found = torch.cat([first[i, :n], *(y[i] for y in steps)])
        assert torch.allclose(found, alone[i, :n + 11], atol=1e-12)


def test_bfloat16_stays_bfloat16_with_the_convolution_in_float32():
    layer, reference = fourier().bfloat16(), fourier().bfloat16().double()
    x = torch.randn(1, 64, 16).bfloat16()
    y, exact = layer(x), reference(x.double())
    assert y.dtype == torch.bfloat16
    assert ((y.double() - exact).square().mean() / exact.square().mean()).sqrt() < 0.02


@pytest.mark.parametrize("build, words", [
    (lambda: MultiHeadFourier(10, 4), ["d_model=10", "n_heads=4"]),
    (lambda: SlidingWindowAttention(10, 4, 8), ["d_model=10", "n_heads=4"]),
    (lambda: SlidingWindowAttention(8, 4, 0), ["window_size=0"]),
    (lambda: MultiHeadFourier(8, 4, gate="three"), ["three", "two_stage", "single_stage"]),
    (lambda: MultiHeadFourier(8, 4)(torch.randn(3, 8)), ["(3, 8)", "[batch, length, 8]"]),
    (lambda: SlidingWindowAttention(8, 4, 8)(torch.randn(1, 3, 9)), ["(1, 3, 9)", "[batch, length, 8]"]),
    *((lambda layer=layer, x=x: layer(x), words)
      for layer in (MultiHeadFourier(8, 4), SlidingWindowAttention(8, 4, 8), Block(MultiHeadFourier(8, 4), 16).mixer)
      for x, words in [(torch.randn(2, 0, 8), ["(2, 0, 8)", "length >= 1"]),
                       (torch.ones(2, 3, 8, dtype=torch.int64), ["torch.int64", "floating-point"])]),
    *((lambda layer=layer, lengths=lengths: layer(torch.randn(2, 1, 8), layer.new_cache(2, 9), lengths), words)
      for layer in (SlidingWindowAttention(8, 4, 8), MultiHeadFourier(8, 4), MultiHeadFourier(8, 4, gate_length=3))
      for lengths, words in [([1, 0], ["lengths=[1, 0]", "1 to 1"]), ([1], ["lengths=[1]", "2 rows"])]),
    *((lambda x=x, lengths=lengths: SlidingWindowAttention(8, 4, 8).forward(
        x, SlidingWindowAttention(8, 4, 8).new_cache(2, 9), lengths), words)
      for x, lengths, words in [(torch.randn(1, 1, 8), None, ["(1, 4, 1, 2)", "[2, 4, tokens, 2]"]),
                                (torch.randn(3, 4, 8), None, ["(3, 4, 4, 2)"]),
                                (torch.randn(2, 4, 8), [0, 4], ["lengths=[0, 4]", "1 to 4"]),
                                (torch.randn(2, 4, 8), [5, 1], ["lengths=[5, 1]", "1 to 4"]),
                                (torch.randn(2, 4, 8), [2], ["lengths=[2]", "2 rows"])]),
])
def test_bad_input_gets_one_clear_line(build, words):
    with pytest.raises(ValueError) as caught:
        build()
    for word in [*words]:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("layer", [MultiHeadFourier(8, 4), SlidingWindowAttention(8, 4, 3)])
def test_an_empty_batch_has_an_empty_result(layer):
    x = torch.zeros(0, 5, 8, requires_grad=True)
    y = layer(x)
    assert y.shape == x.shape and torch.autograd.grad(y.sum(), x)[0].shape == x.shape


def test_gradients_are_those_of_the_weights_that_were_called():
    """In the backward pass of `functional_call` the layer has its own weights again."""
    layer, others = fourier(), fourier(seed=1)
    x = torch.randn(2, 7, 16, dtype=torch.float64, requires_grad=True)
    weights = {name: weight.detach().clone().requires_grad_() for name, weight in others.named_parameters()}
    found = torch.func.functional_call(layer, weights, (x,)).square().sum()
    expected = others(x).square().sum()
    for a, b in zip(torch.autograd.grad(found, [x, *weights.values()]),
                    torch.autograd.grad(expected, [x, *others.parameters()]), strict=True):
        assert torch.allclose(a, b, atol=1e-11)


@pytest.mark.parametrize("name", ["pre_conv", "norm", "gate_mix"])
def test_a_weight_that_changed_before_the_backward_pass_is_told_of(name):
    layer, x = fourier(), torch.randn(2, 7, 16, dtype=torch.float64)
    y = layer(x)
    with torch.no_grad():
        getattr(layer, name).weight.mul_(2)
    with pytest.raises(RuntimeError, match="was changed in place before the backward pass"):
        y.sum().backward()


def test_inside_a_checkpoint_nothing_is_kept():
    """Nor do inputs that changed in place pass for those of before: `checkpoint` keeps them, and looks at them."""
    layer, kept = fourier(), []
    given = torch.randn(2, 7, 16, dtype=torch.float64, requires_grad=True)

    def mixed(x):
        x = 2 * x
        kept.append(weakref.ref(x))
        return layer(x)

    y = checkpoint(mixed, given, use_reentrant=False)
    assert kept[0]() is None
    y.sum().backward()
    x = 2 * given
    y = layer(x)
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("name", ["pre_conv", "norm", "gate_mix"])
def test_a_hook_runs_once_in_a_step_and_an_adapter_drops_out_the_same_numbers(name):
    layer, calls = fourier(), []
    hook = getattr(layer, name).register_forward_hook(lambda *_: calls.append(1))
    layer(torch.randn(2, 7, 16, dtype=torch.float64)).sum().backward()
    assert len(calls) == 1
    hook.remove()
    one = torch.randn(1, 3, 16, dtype=torch.float64, requires_grad=True)
    expected = torch.autograd.grad(layer(one).square().sum(), one)[0]
    everywhere, here = torch.nn.modules.module.register_module_forward_hook, getattr(layer, name).register_forward_hook
    for register in (everywhere, here):
        y = layer(one)  # the hook comes after it
        hook = register(lambda _, given, result: result.square())
        assert torch.allclose(torch.autograd.grad(y.square().sum(), one)[0], expected, atol=1e-12)
        changed = layer(one)
        hook.remove()
        assert not torch.allclose(y, changed, atol=1e-3)
    setattr(layer, name, torch.nn.Sequential(getattr(layer, name), torch.nn.Dropout(0.5)))
    x, direction = torch.randn(2, 2, 7, 16, dtype=torch.float64)

    def loss(x):
        torch.manual_seed(0)
        return layer(x).square().sum()

    (slope,) = torch.autograd.grad(loss(x.requires_grad_()), x)
    h = 1e-6
    along = (loss(x + h * direction) - loss(x - h * direction)) / (2 * h)
    assert along.item() == pytest.approx((slope * direction).sum().item(), rel=1e-6)


def test_derivatives_of_a_layer_under_torch_func():
    """Gradients by sample, as with autograd one at a time, and a derivative along a direction, as by differences."""
    layer = fourier()
    x = torch.randn(3, 7, 16, dtype=torch.float64)
    weights = dict(layer.named_parameters())

    def loss(weights, x):
        return torch.func.functional_call(layer, weights, (x[None],)).square().sum()

    found = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, x)
    for i in range(3):
        expected = torch.autograd.grad(layer(x[i:i + 1]).square().sum(), list(weights.values()))
        for a, b in zip(found.values(), expected, strict=True):
            assert torch.allclose(a[i], b, atol=1e-10)
    direction = torch.randn_like(x)
    _, along = torch.func.jvp(layer, (x,), (direction,))
    h = 1e-6
    assert torch.allclose(along, (layer(x + h * direction) - layer(x - h * direction)) / (2 * h), atol=1e-7)
    assert along.abs().max() > 0.1
