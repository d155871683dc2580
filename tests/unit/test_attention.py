"""Sliding-window attention against the masked softmax written out."""

import types
import warnings

import pytest
import torch

from caracal_min import attention
from caracal_min.attention import sliding_window_attention


def masked_softmax(q, k, v, window):
    """The defining formula with an explicit L x L mask."""
    length = q.shape[2]
    distance = torch.arange(length)[:, None] - torch.arange(length)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    scores = scores.masked_fill((distance < 0) | (distance >= window), float("-inf"))
    return scores.softmax(-1) @ v


def qkv(length, dtype=torch.float64, channels=8):
    draw = torch.Generator().manual_seed(0)
    return torch.randn(3, 2, 3, length, channels, generator=draw, dtype=dtype).unbind(0)


def flash_attn_func(q, k, v, causal=False, window_size=(-1, -1)):
    """What flash-attn documents, in its layout (B, L, H, d): query i sees keys i - left to i + right."""
    lag = torch.arange(q.shape[1])[:, None] - torch.arange(q.shape[1])
    left, right = window_size
    hidden = (lag > left) | (-lag > right) | (lag < 0 if causal else lag != lag)
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.einsum("bhij,bjhd->bihd", weights, v)


@pytest.fixture(params=["blocked", "flex", "flash"])
def backend(request, monkeypatch):
    """Each backend by name.  On a CPU flex runs uncompiled, and flash meets a stand-in."""
    monkeypatch.setattr(attention, "flash_attn_func", flash_attn_func)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*flex_attention called without torch.compile")
        yield request.param


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("window", [1, 2, 7, 16, 200])
@pytest.mark.parametrize("length", [1, 2, 16, 17, 50, 128])
def test_backends_equal_the_formula(backend, length, window, dtype, tolerance):
    q, k, v = qkv(length, dtype)
    found = sliding_window_attention(q, k, v, window, backend)
    assert torch.allclose(found, masked_softmax(q, k, v, window), atol=tolerance)


def test_gradients_equal_the_formula(backend):
    if backend == "flex":
        pytest.skip("FlexAttention has no backward pass on a CPU")
    inputs = [x.clone().requires_grad_() for x in qkv(150)]
    both = [f(*inputs, 9).square().sum() for f in (
        lambda *x: sliding_window_attention(*x, backend), masked_softmax)]
    for a, b in zip(*(torch.autograd.grad(y, inputs) for y in both), strict=True):
        assert torch.allclose(a, b, atol=1e-11)


@pytest.mark.parametrize("window", [1, 2, 128, 129, 130, 1000])
@pytest.mark.parametrize("length", [1, 128, 129, 640])
def test_flex_visits_the_tiles_that_the_window_touches_and_no_other(length, window):
    """On a CPU flex looks at the formula alone; the tiles decide on a GPU."""
    from torch.nn.attention.flex_attention import create_block_mask

    def seen(b, h, i, j):
        return (i >= j) & (i - j < window)

    expected = create_block_mask(seen, None, None, length, length, "cpu")
    found = attention._window_tiles(length, window, torch.device("cpu"))
    assert torch.equal(found.to_dense().bool(), expected.to_dense().bool())


def test_automatic_choice(monkeypatch):
    """Flash where it runs, flex only compiled and from Ampere on, blocked for everything else."""
    def chosen(major=8, dtype=torch.bfloat16, channels=64):
        properties = types.SimpleNamespace(major=major)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        shape = (2, 4, 130, channels)
        return attention._choose(
            types.SimpleNamespace(dtype=dtype, shape=shape, is_cuda=True, device="cuda"))

    monkeypatch.setattr(attention, "flash_attn_func", None)
    assert attention._choose(torch.ones(1)) == chosen() == "blocked"
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert attention._choose(torch.ones(1)) == chosen(major=7) == chosen(channels=8) == "blocked"
    assert chosen() == "flex"
    monkeypatch.setattr(attention, "flash_attn_func", flash_attn_func)
    assert chosen() == chosen(dtype=torch.float16) == "flash"
    assert chosen(dtype=torch.float32) == "flex" and chosen(major=7) == "blocked"
    monkeypatch.setattr(attention, "_exporting", lambda: True)
    assert chosen() == "blocked"


def test_window_counts_the_token_itself(backend):
    """With window 256, token 300 sees tokens 45 to 300 and no other: the rest changes nothing."""
    q, k, v = qkv(400)
    before = sliding_window_attention(q, k, v, 256, backend)[:, :, 300]
    for j in (0, 44, 45, 300, 301, 399):
        changed = v.clone()
        changed[:, :, j] += 1.0
        after = sliding_window_attention(q, k, changed, 256, backend)[:, :, 300]
        assert torch.equal(after, before) != (45 <= j <= 300)


def test_memory_does_not_grow_with_the_square_of_the_length():
    """At 32,768 tokens an L x L mask would have 2^30 entries; the largest tensor stays linear in L."""
    sizes = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            sizes.extend(x.numel() for x in torch.utils._pytree.tree_leaves(out)
                         if isinstance(x, torch.Tensor))
            return out

    length, window = 32_768, 64
    x = torch.randn(1, 1, length, 4)
    with Watch(), torch.inference_mode():
        sliding_window_attention(x, x, x, window)
    assert length <= max(sizes) <= 2 * length * 2 * window


@pytest.mark.parametrize("change, words", [
    (dict(backend="magic"), "unknown backend 'magic'; accepted: auto, blocked, flex, flash"),
    (dict(k=torch.randn(2, 3, 6, 8)), r"\(2, 3, 6, 8\)"),
    (dict(q=torch.randn(3, 5, 8)), r"\(3, 5, 8\).*\[batch, heads, length, channels\]"),
])
def test_a_wrong_argument_is_told_in_one_line(change, words):
    x = torch.randn(2, 3, 5, 8)
    with pytest.raises(ValueError, match=f"^.*{words}.*$"):
        sliding_window_attention(**dict(q=x, k=x, v=x, window=4) | change)


def test_compiled_it_leaves_cudnn_out():
    """Its backward pass, planned by an earlier eager call, would misread the gradient."""
    class Watch(torch.fx.Interpreter):
        def call_function(self, target, args, kwargs):
            if target is torch.nn.functional.scaled_dot_product_attention:
                allowed.append(torch.backends.cuda.cudnn_sdp_enabled())
            return super().call_function(target, args, kwargs)

    allowed, (q, k, v) = [], qkv(11)
    torch.compiler.reset()
    compiled = torch.compile(sliding_window_attention, fullgraph=True, dynamic=False,
                             backend=lambda graph, inputs: Watch(graph).run)
    found = compiled(q, k, v, 4, "blocked")
    assert torch.allclose(found, masked_softmax(q, k, v, 4))
    assert allowed == [False, False] and torch.backends.cuda.cudnn_sdp_enabled()
