"""The checkers of chapter 6: the answers that they accept, and those that they reject with what they say."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from exercise_answers import Answers
from torch import nn

from caracal_book.exercises import multi_head_fourier as check


def shifted(x, weight):
    count = weight.shape[1]
    y = torch.zeros_like(x)
    for k in range(min(count, x.shape[1])):
        y[:, k:] += weight[:, count - 1 - k] * x[:, :x.shape[1] - k]
    return y


def unfolded(x, weight):
    windows = F.pad(x, (0, 0, weight.shape[1] - 1, 0)).unfold(1, weight.shape[1], 1)
    return (windows * weight).sum(-1)


def by_fft(x, weight):
    N = x.shape[1] + weight.shape[1]
    spectra = torch.fft.rfft(x, n=N, dim=1) * torch.fft.rfft(weight.flip(1).mT, n=N, dim=0)
    return torch.fft.irfft(spectra, n=N, dim=1)[:, :x.shape[1]]


def in_a_padded_text(x, weight, left):
    """The weights meet the text with `left` zeros before it; the others stand behind."""
    count = weight.shape[1]
    windows = F.pad(x, (0, 0, left, count - 1 - left)).unfold(1, count, 1)
    return (windows * weight).sum(-1)


def conv1d(x, weight):
    return F.conv1d(F.pad(x.mT, (weight.shape[1] - 1, 0)), weight[:, None], groups=len(weight)).mT


def conv2d(x, weight):
    rows = F.pad(x.mT, (weight.shape[1] - 1, 0))[..., None, :]
    return F.conv2d(rows, weight[:, None, None], groups=len(weight))[:, :, 0].mT


def conv_layer(x, weight):
    layer = nn.Conv1d(len(weight), len(weight), weight.shape[1], groups=len(weight), bias=False).requires_grad_(False)
    layer.weight = nn.Parameter(weight[:, None], requires_grad=False)
    return layer(F.pad(x.mT, (weight.shape[1] - 1, 0))).mT


def rolled(x, weight):
    return sum(torch.roll(x, k, 1) * weight[:, weight.shape[1] - 1 - k] for k in range(weight.shape[1]))


def across(x, weight):
    return shifted(x, weight).sum(-1, keepdim=True).expand(x.shape)


def einsum_mix(h, weight, bias, heads, form="bthc,hoc->btho"):
    blocks = weight[..., 0].unflatten(0, (heads, -1))
    return torch.einsum(form, h.unflatten(-1, (heads, -1)), blocks).flatten(-2) + bias


def matmul_mix(h, weight, bias, heads):
    batch, length, width = h.shape
    blocks = weight.view(heads, width // heads, width // heads)
    return (h.view(batch, length, heads, 1, -1) @ blocks.mT).reshape(h.shape) + bias


def interleaved(h, weight, bias, heads):
    blocks = weight[..., 0].unflatten(0, (heads, -1))
    mixed = torch.einsum("btch,hoc->btoh", h.unflatten(-1, (-1, heads)), blocks)
    return mixed.flatten(-2) + bias


def block_mix(h, weight, bias, heads):
    return F.linear(h, torch.block_diag(*weight[..., 0].unflatten(0, (heads, -1))), bias)


def blocks_of(W_2, heads):
    return torch.block_diag(*W_2[..., 0].unflatten(0, (heads, -1)))


def fold(W_1, b_1, W_2, b_2, heads):
    blocks = blocks_of(W_2, heads)
    return blocks @ W_1, blocks @ b_1 + b_2


def filled_mix(h, weight, bias, heads):
    size = len(bias) // heads
    matrix = torch.zeros(len(bias), len(bias), dtype=h.dtype)
    for first in range(0, len(bias), size):
        matrix[first:first + size, first:first + size] = weight[first:first + size, :, 0]
    return h @ matrix.T + bias


def fold_by_columns(W_1, b_1, W_2, b_2, heads):
    def gate(x):
        return F.conv1d((W_1 @ x + b_1)[:, None], W_2, b_2, groups=heads)[:, 0]

    b = gate(torch.zeros_like(b_1))
    return [torch.stack([gate(e) - b for e in torch.eye(len(b_1), dtype=b.dtype)], 1), b]


def rms(mean_v, std_v, mean_g, std_g, t):
    walk = mean_g**2 * std_v**2 + mean_v**2 * std_g**2 + std_v**2 * std_g**2
    return math.sqrt((t + 1) ** 2 * mean_v**2 * mean_g**2 + (t + 1) * walk)


def one_step(layer, x, state=None, keep=2, gates=None, past=True):
    if state is None:
        state = (x.new_zeros(len(x), min(keep, 2), x.shape[1]), [], [])
    inputs, vs, gs = state
    seen = torch.cat([inputs, x[:, None]], 1)
    weight = layer.pre_conv.weight[:, 0]
    window = seen[:, -3:] if past else F.pad(x[:, None], (0, 0, 2, 0))
    if window.shape[1] < 3:
        window = F.pad(window, (0, 0, 3 - window.shape[1], 0))
    x_hat = layer.norm((window * weight.T).sum(1))
    vs = [*vs, layer.to_value(x_hat)]
    gs = [*gs, layer.gate_mix(F.silu(layer.to_gate(x_hat))[..., None])[..., 0]]
    r = sum(v * g for v, g in zip(vs, gates(gs) if gates else gs[::-1], strict=True))
    return layer.to_out(r), (seen[:, -keep:] if keep else seen[:, :0], vs, gs)


def concatenated(layer, x, state=None):
    past, v, g = state or (x.new_zeros(len(x), x.shape[1], 2), None, None)
    rows = torch.cat([past, x[..., None]], -1)
    x_hat = layer.norm(layer.pre_conv(rows)[..., 0])
    new_v, new_g = layer.to_value(x_hat)[..., None], layer.gate_mix(F.silu(layer.to_gate(x_hat))[..., None])
    v, g = (new_v, new_g) if v is None else (torch.cat([v, new_v], -1), torch.cat([g, new_g], -1))
    return [layer.to_out((v * g.flip(-1)).sum(-1)), (rows[..., 1:], v, g)]


def whole_text(layer, x, state=None):
    seen = x[:, None] if state is None else torch.cat([state, x[:, None]], 1)
    return layer.whole(seen)[:, -1], seen


def on_the_layer(layer, x, state=None):
    y, layer.kept = one_step(layer, x, getattr(layer, "kept", None))
    return y, None


def short_memory(layer, x, state=None):
    y, (inputs, vs, gs) = one_step(layer, x, state)
    return y, (inputs, vs[-16:], gs[-16:])


def second_stage_again(layer, x, state=None):
    y, (inputs, vs, hs) = one_step(layer, x, state)
    layer.gate_mix(torch.stack(hs, -1))
    return y, (inputs, vs, hs)


def products_by_hand(layer, x, state=None, product=torch.matmul):
    """Keep all inputs, and apply every linear layer to all of them by its weights."""
    seen = x[:, None] if state is None else torch.cat([state, x[:, None]], 1)
    x_hat = layer.norm(shifted(seen, layer.pre_conv.weight[:, 0]))
    v = product(x_hat, layer.to_value.weight.mT) + layer.to_value.bias
    h = F.silu(product(x_hat, layer.to_gate.weight.mT) + layer.to_gate.bias)
    g = product(h, blocks_of(layer.gate_mix.weight, layer.n_heads).mT) + layer.gate_mix.bias
    return product((v * g.flip(1)).sum(1), layer.to_out.weight.mT) + layer.to_out.bias, seen


def pre_conv_again(layer, x, state=None):
    past, v, g = state or (x.new_zeros(*x.shape, 2), x.new_zeros(*x.shape, 0), x.new_zeros(*x.shape, 0))
    rows = torch.cat([past, x[..., None]], -1)
    x_hat = layer.norm(layer.pre_conv(rows).mT)[:, -1]
    v = torch.cat([v, layer.to_value(x_hat)[..., None]], -1)
    g = torch.cat([g, layer.gate_mix(F.silu(layer.to_gate(x_hat))[..., None])], -1)
    return layer.to_out((v * g.flip(-1)).sum(-1)), (rows, v, g)


def in_a_dictionary(layer, x, state=None):
    y, parts = one_step(layer, x, state and tuple(state.values()), keep=10**6)
    return y, dict(zip("xvg", parts, strict=True))


def in_an_object(layer, x, state=None):
    y, parts = one_step(layer, x, state and (state.x, state.v, state.g), keep=10**6)
    return y, SimpleNamespace(**dict(zip("xvg", parts, strict=True)))


def biasless(layer, x, state=None):
    y, state = one_step(layer, x, state)
    return y - layer.to_out.bias, state


RIGHT = {
    check.depthwise_conv: [shifted, unfolded, by_fft],
    check.head_mix: [einsum_mix, matmul_mix],
    check.fold_gate: [fold, fold_by_columns],
    check.size_of_mix: [rms, lambda *a: torch.tensor(rms(*a)), lambda *a: np.float64(rms(*a))],
    check.step: [one_step, concatenated],
}
WRONG = {
    check.depthwise_conv: {
        "centred, as padding=1 does": lambda x, weight: in_a_padded_text(x, weight, (weight.shape[1] - 1) // 2),
        "zeros behind the text": lambda x, weight: in_a_padded_text(x, weight, 0),
        "weights backwards": lambda x, weight: shifted(x, weight.flip(1)),
        "the end comes back at the start": rolled,
        "mixes channels": across,
        "Conv1d as a function": conv1d,
        "Conv1d as a layer": conv_layer,
        "Conv2d": conv2d,
        "sees one token too few": lambda x, weight: shifted(x, weight * (torch.arange(weight.shape[1]) > 0)),
        "three weights whatever is given": lambda x, weight: shifted(x, weight[:, -3:]),
        "channels first": lambda x, weight: shifted(x, weight).mT,
        "float32": lambda x, weight: shifted(x, weight).float(),
    },
    check.head_mix: {
        "blocks transposed": lambda *a: einsum_mix(*a, form="bthc,hco->btho"),
        "heads interleaved": interleaved,
        "no bias": lambda h, weight, bias, heads: einsum_mix(h, weight, 0 * bias, heads),
        "bias added twice": lambda h, weight, bias, heads: einsum_mix(h, weight, bias, heads) + bias,
        "heads not put together": lambda *a: einsum_mix(*a).unflatten(-1, (a[-1], -1)),
        "Conv1d": lambda h, weight, bias, heads: F.conv1d(h.mT, weight, bias, groups=heads).mT,
        "a matrix with zeros": block_mix,
        "a matrix with zeros, filled by hand": filled_mix,
        "with the SiLU": lambda h, *a: einsum_mix(F.silu(h), *a),
        "the input": lambda h, *a: h,
    },
    check.fold_gate: {
        "order exchanged": lambda W_1, b_1, W_2, b_2, heads: (W_1 @ blocks_of(W_2, heads),
                                                              fold(W_1, b_1, W_2, b_2, heads)[1]),
        "first bias forgotten": lambda W_1, b_1, *rest: fold(W_1, 0 * b_1, *rest),
        "first bias added as it is": lambda W_1, b_1, W_2, b_2, heads: (fold(W_1, b_1, W_2, b_2, heads)[0], b_1 + b_2),
        "second bias forgotten": lambda W_1, b_1, W_2, b_2, heads: fold(W_1, b_1, W_2, 0 * b_2, heads),
        "transposed": lambda *a: (fold(*a)[0].mT, fold(*a)[1]),
        "the matrix alone": lambda *a: fold(*a)[0],
        "bias first": lambda *a: fold(*a)[::-1],
    },
    check.size_of_mix: {
        "the random walk alone": lambda mv, sv, mg, sg, t: rms(0, sv, 0, sg, t),
        "the march alone": lambda mv, sv, mg, sg, t: (t + 1) * abs(mv * mg),
        "t products": lambda mv, sv, mg, sg, t: rms(mv, sv, mg, sg, max(t - 1, 0)),
        "number times the mean squares": lambda mv, sv, mg, sg, t: rms(0, math.hypot(mv, sv), 0, math.hypot(mg, sg), t),
        "no root": lambda *a: rms(*a) ** 2,
        "variances for deviations": lambda mv, sv, mg, sg, t: rms(mv, math.sqrt(sv), mg, math.sqrt(sg), t),
        "the root of the sum of both means": lambda mv, sv, mg, sg, t: rms(mv, sv, mg, sg, t) + abs(mv * mg),
        "nothing": lambda *a: None,
        "a list": lambda *a: [rms(*a)],
    },
    check.step: {
        "all inputs kept": lambda *a: one_step(*a, keep=10**6),
        "all inputs kept, in a dictionary": in_a_dictionary,
        "all inputs kept, in an object": in_an_object,
        "one input more than needed": lambda *a: one_step(*a, keep=3),
        "the pre-convolution of all inputs again": pre_conv_again,
        "no past in the pre-convolution": lambda *a: one_step(*a, past=False),
        "one input kept": lambda *a: one_step(*a, keep=1),
        "gates not reversed": lambda *a: one_step(*a, gates=lambda gs: gs),
        "the newest gate for all": lambda *a: one_step(*a, gates=lambda gs: [gs[-1]] * len(gs)),
        "the whole text again": whole_text,
        "all inputs kept, and products with them by hand": products_by_hand,
        "all inputs kept, and products with them by einsum": lambda *a: products_by_hand(
            *a, product=lambda s, w: torch.einsum("...i,io->...o", s, w)),
        "kept on the layer": on_the_layer,
        "the output alone": lambda *a: one_step(*a)[0],
        "forgets what is long ago": short_memory,
        "the second stage for all tokens again": second_stage_again,
        "no bias at the end": biasless,
    },
}
REASONS = [
    (check.depthwise_conv, "weights backwards", "and 2 weights a channel: entry"),
    (check.depthwise_conv, "channels first", "expected shape (1, 2, 1), given (1, 1, 2)"),
    (check.depthwise_conv, "Conv1d as a layer", "expected sums of shifted texts, given a call of conv1d"),
    (check.head_mix, "Conv1d", "expected a product head by head, given a call of conv1d"),
    (check.head_mix, "a matrix with zeros", "given a call of block_diag"),
    (check.head_mix, "a matrix with zeros, filled by hand", "given a matrix of 4 by 4"),
    (check.head_mix, "heads not put together", "expected shape"),
    (check.fold_gate, "first bias forgotten", "the bias: entry [0] should be"),
    (check.fold_gate, "the matrix alone", "expected a matrix and a bias, given a Tensor"),
    (check.size_of_mix, "t products", "std_g=1.0, t=99): expected 10, given 9.94987"),
    (check.size_of_mix, "nothing", "expected a number, given a NoneType"),
    (check.step, "the whole text again", "step at token 1 of one text, x of shape (1, 4): expected the linear"),
    (check.step, "all inputs kept", "at token 0 of one text, x of shape (1, 4): expected at most 4 vectors"),
    (check.step, "the pre-convolution of all inputs again", "expected at most 4 vectors to be kept, given 5"),
    (check.step, "all inputs kept, and products with them by hand", "to see the new token only, given 2 tokens"),
    (check.step, "kept on the layer", "step at token 0 of another text"),
    (check.step, "one input kept", "step at token 2 of one text"),
    (check.step, "forgets what is long ago", "step at token 17 of one text, x of shape (2, 4)"),
    (check.step, "the second stage for all tokens again", "to see the new token only, given 2 tokens"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
    complaint = "^{}.*(expected|should be)"


@pytest.mark.parametrize("streams", [(0.0, 1.0, 0.0, 1.0), (0.3, 1.0, 0.0, 0.5), (0.3, 1.0, -0.2, 0.5)])
def test_the_law_is_what_random_streams_follow(streams):
    mean_v, std_v, mean_g, std_g = streams
    source = torch.Generator().manual_seed(2)
    v, g = torch.randn(2, 20_000, 50, dtype=torch.float64, generator=source)
    r = ((mean_v + std_v * v) * (mean_g + std_g * g).flip(-1)).sum(-1)
    assert r.square().mean().sqrt().item() == pytest.approx(rms(*streams, 49), rel=0.02)
