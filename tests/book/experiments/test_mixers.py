"""The rivals: each against its recurrence or another implementation, causal, and drop-in."""

import math

import pytest
import torch
import torch.nn.functional as F

from caracal_book.experiments.mixers import (
    MIXERS,
    StaticConvolution,
    gated_delta_rule,
    linear_attention,
    make_mixer,
    rotated,
)
from caracal_min.layers import Block, MultiHeadFourier


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def streams(length=9, heads=2, channels=4):
    q, k, v = drawn(3, 2, heads, length, channels).unbind(0)
    beta, log_decay = drawn(2, heads, length, seed=1).sigmoid(), F.logsigmoid(drawn(2, heads, length, seed=2))
    return F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, beta, log_decay


def recurrence(q, k, v, log_decay, beta=None):
    """The states one after the other; without beta nothing is taken back before a write."""
    state, outputs = v.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1]), []
    for t in range(q.shape[2]):
        state = state * log_decay[:, :, t].exp()[..., None, None]
        held = 0 if beta is None else torch.einsum("bhk,bhkv->bhv", k[:, :, t], state)
        rate = 1 if beta is None else beta[:, :, t, None]
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, :, t], rate * (v[:, :, t] - held))
        outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, :, t], state) / math.sqrt(q.shape[-1]))
    return torch.stack(outputs, dim=2)


@pytest.mark.parametrize("length", [1, 2, 9, 70])
def test_parallel_forms_are_their_recurrences(length):
    q, k, v, beta, log_decay = streams(length)
    assert torch.allclose(linear_attention(q, k, v, log_decay), recurrence(q, k, v, log_decay), atol=1e-12)
    assert torch.allclose(gated_delta_rule(q, k, v, beta, log_decay), recurrence(q, k, v, log_decay, beta), atol=1e-12)


@pytest.mark.parametrize("name", ["torch_recurrent_gated_delta_rule", "torch_chunk_gated_delta_rule"])
def test_the_delta_rule_is_that_of_transformers(name):
    library = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    q, k, v, beta, log_decay = (x.float() for x in streams(70))
    theirs, _ = getattr(library, name)(*(x.transpose(1, 2) for x in (q, k, v, log_decay, beta)))
    assert torch.allclose(gated_delta_rule(q, k, v, beta, log_decay), theirs.transpose(1, 2), atol=1e-5)


def test_static_convolution_is_the_fourier_layer_with_a_kernel_for_a_gate():
    torch.manual_seed(0)
    fourier, static = MultiHeadFourier(8, 2).double(), StaticConvolution(8, 2, length=12).double()
    shared = {name: value for name, value in fourier.state_dict().items() if not name.startswith(("to_gate", "gate"))}
    static.load_state_dict(shared | {"kernel": static.kernel})
    with torch.no_grad():  # a gate that is no function of the text: only biases are left
        fourier.to_gate.weight.zero_(), fourier.to_gate.bias.zero_()
        static.kernel.copy_(fourier.gate_mix.bias[:, None].expand(8, 12))
    x = drawn(2, 12, 8)
    assert torch.allclose(static(x), fourier(x), atol=1e-12)


def test_rotation_leaves_scores_that_depend_on_the_distance_alone():
    q, k = drawn(2, 1, 1, 1, 6).expand(2, 1, 1, 8, 6).unbind(0)
    scores = (rotated(q) @ rotated(k).mT)[0, 0]
    for lag in range(8):
        assert torch.allclose(scores.diagonal(-lag), scores[lag, 0], atol=1e-6)
    assert (scores[:, 0] - scores[0, 0]).abs()[1:].min() > 1e-3


@pytest.mark.parametrize("name", MIXERS)
def test_every_mixer_is_causal_learns_and_drops_into_a_block(name):
    torch.manual_seed(0)
    block = Block(make_mixer(name, 16, 4, length=20, window=5), 32).double()
    x = drawn(2, 20, 16).requires_grad_()
    y = block(x)
    assert y.shape == x.shape
    y[:, 7].sum().backward()
    assert x.grad[:, 8:].abs().max() < 1e-12 and x.grad[:, 3:8].abs().amax((0, 2)).min() > 1e-9
    assert all(p.grad is not None for p in block.parameters())
