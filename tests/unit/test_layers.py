"""The layers: the four steps written out, causality under LoRA and compile, caches, variants."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from caracal_min import Caracal, CaracalConfig, layers
from caracal_min.convolution import causal_conv_direct
from caracal_min.layers import (
    Block,
    HeadMix,
    MultiHeadFourier,
    ShortConv,
    SlidingWindowAttention,
    SwiGLU,
    TimeLastLinear,
)

CUTS = [[30], [1] * 30, [11] + [1] * 19, [4, 9, 1, 1, 15]]


def fourier(**options) -> MultiHeadFourier:
    torch.manual_seed(0)
    return MultiHeadFourier(16, 4, **options).double()


def attention(window) -> SlidingWindowAttention:
    torch.manual_seed(0)
    return SlidingWindowAttention(16, 4, window).double()


def text(batch=2, length=30):
    draw = torch.Generator().manual_seed(1)
    return torch.randn(batch, length, 16, dtype=torch.float64, generator=draw)


MIXERS = {
    "fourier": lambda: fourier(),
    "no taps": lambda: fourier(pre_conv=False),
    "one stage": lambda: fourier(gate="single_stage"),
    "a gate of 1": lambda: fourier(gate_length=1),
    "a gate of 11": lambda: fourier(gate_length=11),
    "window 1": lambda: attention(1),
    "window 6": lambda: attention(6),
}
every_mixer = pytest.mark.parametrize("name", MIXERS)


@pytest.mark.parametrize("gate_length", [None, 1, 4, 20])
def test_fourier_is_its_four_steps(gate_length):
    """Section 3.2, token by token, channel by channel, with loops; and with the gate cut."""
    layer, length = fourier(gate_length=gate_length), 9
    x = text(2, length)
    taps = layer.pre_conv.weight[:, 0]  # (D, 3): the last tap meets the token itself
    past = torch.cat([x.new_zeros(2, 2, 16), x], dim=1)
    mixed = [sum(past[:, t + k] * taps[:, k] for k in range(3)) for t in range(length)]
    normed = F.layer_norm(torch.stack(mixed, 1), (16,), layer.norm.weight, layer.norm.bias)
    v = normed @ layer.to_value.weight.T + layer.to_value.bias
    hidden = F.silu(normed @ layer.to_gate.weight.T + layer.to_gate.bias)
    g = torch.empty_like(hidden)
    for head in range(4):
        own = slice(4 * head, 4 * head + 4)
        weight = layer.gate_mix.weight[own, :, 0]
        g[..., own] = hidden[..., own] @ weight.T + layer.gate_mix.bias[own]
    g[:, length if gate_length is None else gate_length:] = 0
    r = [sum(v[:, j] * g[:, t - j] for j in range(t + 1)) for t in range(length)]
    expected = torch.stack(r, dim=1) @ layer.to_out.weight.T + layer.to_out.bias
    assert torch.allclose(layer(x), expected, atol=1e-12)


def test_swiglu_and_the_block_are_their_formulas():
    block, x = Block(attention(5), 32).double(), text()
    h = x + block.mixer(block.mixer_norm(x))
    n = block.mlp_norm(h)
    gate = n @ block.mlp.to_gate.weight.T
    value = n @ block.mlp.to_value.weight.T
    expected = h + (value * gate * torch.sigmoid(gate)) @ block.mlp.to_out.weight.T
    assert isinstance(block.mlp, SwiGLU) and torch.allclose(block(x), expected, atol=1e-12)


def future_gradients(f, x, t):
    """The largest gradient of the output at token t by inputs after t, and by those up to t."""
    x = x.clone().requires_grad_()
    y = f(x)[:, t]
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    return gradient[:, t + 1:].abs().max().item(), gradient[:, :t + 1].abs().max().item()


@every_mixer
def test_no_gradient_comes_from_the_future(name, monkeypatch):
    """Exactly none through the direct sum; through the FFT no more than rounding."""
    block = Block(MIXERS[name](), 32).double()
    for t in (0, 7, 28):
        future, past = future_gradients(block, text(), t)
        assert future < 1e-13 * max(past, 1) and past > 1e-3
    monkeypatch.setattr(layers, "causal_conv_fft", causal_conv_direct)
    for t in (0, 7, 28):
        future, past = future_gradients(block, text(), t)
        assert future == 0 and past > 1e-3


@pytest.mark.compile
def test_no_gradient_comes_from_the_future_compiled(compiler):
    torch.compiler.reset()
    layer = fourier()
    compiled = torch.compile(layer, fullgraph=True, dynamic=False)
    future, past = future_gradients(compiled, text(), 7)
    assert future < 1e-13 * past and past > 1e-3


def test_no_token_comes_from_the_future_under_lora(report_missing):
    """Adapters on all linear layers, the taps and the gate's second stage, before and after merging."""
    try:
        import peft
    except ImportError:
        report_missing("peft is not installed: pip install -r requirements.txt")
    torch.manual_seed(0)
    model = Caracal(CaracalConfig(40, 16, 3, 2, window_size=6, embedding_std=0.5, init_std=0.2))
    targets = r".*\.(to_\w+|gate_mix|pre_conv)"
    options = dict(r=16, target_modules=targets, init_lora_weights=False)
    ids = torch.randint(40, (2, 20))
    changed = ids.clone()
    changed[:, 9:] = (ids[:, 9:] + 1) % 40
    plain = model.double().logits(ids)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT's own, that it cannot merge grouped convolutions
        adapted = peft.get_peft_model(model, peft.LoraConfig(**options)).double().eval()
    moved = (adapted(ids)[0] - adapted(changed)[0]).abs()
    assert moved[:, :9].max() < 1e-12 and moved[:, 9:].max() > 1e-3
    assert (adapted(ids)[0] - plain).abs().max() > 1e-3  # the adapters do something


def test_attention_forgets_beyond_its_window_and_fourier_does_not():
    x = text(1, 40)
    changed = x.clone()
    changed[:, 3] += 1.0
    layer = attention(5)
    moved = (layer(changed) - layer(x)).abs().amax((0, 2))
    assert moved[7] > 1e-6 and moved[8:].max() == 0
    assert (fourier()(changed) - fourier()(x)).abs().amax((0, 2))[3:].min() > 1e-9


@every_mixer
@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_cached_chunks_equal_the_parallel_pass(name, cuts):
    layer, x = MIXERS[name](), text()
    cache = layer.new_cache(2, 30)
    parts = [layer(part, cache) for part in x.split(cuts, dim=1)]
    assert torch.allclose(torch.cat(parts, dim=1), layer(x), atol=1e-12)


@every_mixer
def test_rows_of_different_lengths_do_not_meet(name):
    """A prompt of 1, 9 and 4 tokens, then steps: each row is what it would be alone."""
    layer, x, lengths = MIXERS[name](), text(3, 20), [1, 9, 4]
    padded = x[:, :9].clone()
    for row, n in zip(padded, lengths, strict=True):
        row[n:] = float("nan")  # harmless beyond the row's length
    cache = layer.new_cache(3, 20)
    first = layer(padded, cache, lengths)
    tokens = [torch.stack([x[i, n + s] for i, n in enumerate(lengths)]) for s in range(11)]
    steps = [layer(token[:, None], cache) for token in tokens]
    for i, n in enumerate(lengths):
        found = torch.cat([first[i, :n], *(y[i] for y in steps)])
        assert torch.allclose(found, layer(x)[i, :n + 11], atol=1e-12)


def test_gates_that_are_cut_are_not_computed():
    layer, read = fourier(gate_length=7), []
    layer.to_gate.register_forward_hook(lambda module, given, y: read.append(y.shape[1]))
    cache = layer.new_cache(2, 20)
    layer(text(2, 20))
    for part in text(2, 20).split([4, 1, 5, 1, 9], dim=1):
        layer(part, cache)
    assert read == [7, 4, 1, 2]


@pytest.mark.parametrize("layer, shapes", [
    (TimeLastLinear(6, 4), [(6,), (6, 6), (2, 5, 6), (2, 1, 6), (0, 5, 6)]),
    (ShortConv(6, 6, 3, groups=6, bias=False), [(2, 6, 9), (2, 6, 3), (1, 6, 6), (0, 6, 5)]),
    (ShortConv(6, 4, 3, bias=False), [(2, 6, 9)]),
    (HeadMix(6, 6, 1, groups=3), [(2, 6, 9), (6, 9), (2, 6, 1), (0, 6, 5)]),
    (HeadMix(6, 4, 1, bias=False), [(2, 6, 9)]),
], ids=lambda x: type(x).__name__)
def test_a_subclass_returns_what_its_base_class_returns(layer, shapes):
    """Values and gradients: adapters are built from these classes, in the forms without a bias."""
    for shape in shapes:
        x = torch.randn(shape, requires_grad=True)
        found, expected = layer(x), type(layer).__base__.forward(layer, x)
        assert found.shape == expected.shape and torch.allclose(found, expected, atol=1e-6)
        both = [torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])
                for y in (found, expected)]
        for a, b in zip(*both, strict=True):
            assert torch.allclose(a, b, atol=1e-5)


def test_time_lies_last_in_memory_and_nothing_is_copied():
    v, g = fourier().streams(text())
    for stream in (v, g):
        assert stream.shape == (2, 16, 30) and stream.movedim(1, 0).is_contiguous()


def test_bfloat16_stays_bfloat16_with_the_convolution_in_float32():
    layer, reference = fourier().bfloat16(), fourier().bfloat16().double()
    x = text(1, 64).bfloat16()
    y, exact = layer(x), reference(x.double())
    assert y.dtype == torch.bfloat16
    assert (y.double() - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("build, words", [
    (lambda: MultiHeadFourier(10, 4), "d_model=10 is not divisible by n_heads=4"),
    (lambda: MultiHeadFourier(8, 4, gate="three"), "unknown gate 'three'; accepted: two_stage"),
    (lambda: MultiHeadFourier(8, 4, gate_length=0), "gate_length=0; give a whole number >= 1"),
    (lambda: MultiHeadFourier(8, 4)(torch.randn(3, 8)), r"shape \(3, 8\).*\[batch, length, 8\]"),
    (lambda: SlidingWindowAttention(8, 4, 8)(torch.randn(1, 3, 9)), r"\(1, 3, 9\)"),
    (lambda: fourier().new_cache(1, 4, "magic"), "unknown convolution 'magic'; accepted: relaxed"),
])
def test_a_wrong_argument_is_told_in_one_line(build, words):
    with pytest.raises(ValueError, match=f"^.*{words}.*$"):
        build()


def test_weights_have_the_names_of_the_paper_whatever_the_gate_length():
    shapes = {name: tuple(p.shape) for name, p in fourier(gate_length=5).named_parameters()}
    assert shapes == {name: tuple(p.shape) for name, p in fourier().named_parameters()}
    assert shapes["pre_conv.weight"] == (16, 1, 3) and shapes["gate_mix.weight"] == (16, 4, 1)
    assert isinstance(fourier().norm, nn.LayerNorm) and fourier(pre_conv=False).pre_conv is None


def test_under_autocast_the_short_convolution_has_the_type_of_the_library():
    """For one token as for many: a compiled step keeps half of the bytes."""
    conv, x = ShortConv(6, 6, 3, groups=6, bias=False), torch.randn(2, 6, 3)
    expected = torch.nn.functional.conv1d(x, conv.weight, groups=6)
    with torch.autocast("cpu", torch.bfloat16):
        found = conv(x)
    assert found.dtype == torch.bfloat16 and torch.allclose(found.float(), expected, atol=2e-2)
