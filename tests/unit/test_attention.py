"""Sliding-window attention against the masked softmax written out."""

import sys
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


def qkv(length, dtype=torch.float64, seed=0, channels=8):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(3, 2, 3, length, channels, generator=draw, dtype=dtype).unbind(0)


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1)):
    """What the flash-attn package documents, in its layout (B, L, H, d): query i sees keys i - left to i + right."""
    i, j = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])
    left, right = window_size
    hidden = (i - j > left) if left >= 0 else torch.zeros_like(i - j, dtype=torch.bool)
    hidden |= (j - i > right) if right >= 0 else torch.zeros_like(hidden)
    hidden |= (j > i) if causal else torch.zeros_like(hidden)
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * (softmax_scale or q.shape[-1] ** -0.5)
    return torch.einsum("bhij,bjhd->bihd", scores.masked_fill(hidden, float("-inf")).softmax(-1), v)


@pytest.fixture(params=["blocked", "flex", "flash"])
def backend(request, monkeypatch):
    """Each backend by name.  On a CPU flex runs uncompiled, and flash meets a stand-in for its package."""
    if request.param == "flash":
        monkeypatch.setattr(attention, "_flash_runs", lambda q: True)
        monkeypatch.setitem(sys.modules, "flash_attn", types.SimpleNamespace(flash_attn_func=flash_attn_func))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*flex_attention called without torch.compile")
        yield request.param


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("window", [1, 2, 7, 16, 64, 200])
@pytest.mark.parametrize("length", [1, 2, 7, 16, 17, 50, 128, 300])
def test_backends_equal_the_formula(backend, length, window, dtype, tolerance):
    q, k, v = qkv(length, dtype)
    found = sliding_window_attention(q, k, v, window, backend)
    assert torch.allclose(found, masked_softmax(q, k, v, window), atol=tolerance)


def test_gradients_equal_the_formula(backend):
    if backend == "flex":
        pytest.skip("FlexAttention has no backward pass on a CPU")
    inputs = [x.clone().requires_grad_() for x in qkv(150)]
    found = torch.autograd.grad(sliding_window_attention(*inputs, 9, backend).square().sum(), inputs)
    expected = torch.autograd.grad(masked_softmax(*inputs, 9).square().sum(), inputs)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-11)


@pytest.mark.parametrize("window", [1, 2, 127, 128, 129, 130, 256, 1000])
@pytest.mark.parametrize("length", [1, 128, 129, 500, 640])
def test_flex_visits_the_tiles_that_the_window_touches_and_no_other(length, window):
    """On a CPU flex looks at the formula alone; the tiles decide on a GPU."""
    from torch.nn.attention.flex_attention import create_block_mask

    expected = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < window), None, None, length, length, "cpu")
    found = attention._window_tiles(length, window, torch.device("cpu"))
    assert torch.equal(found.to_dense().bool(), expected.to_dense().bool())


def test_automatic_choice(monkeypatch):
    class Seen:
        dtype, is_cuda, device, shape = torch.bfloat16, True, torch.device("cuda"), (2, 4, 130, 16)

    def on(major):
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: types.SimpleNamespace(major=major))
        return attention._choose(q)

    q = Seen()
    monkeypatch.setattr(attention, "_HAS_FLASH", False)
    assert attention._choose(torch.ones(1)) == on(8) == "blocked"
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert attention._choose(torch.ones(1)) == "blocked"
    assert [on(major) for major in (7, 8, 9)] == ["blocked", "flex", "flex"]
    q.shape = (2, 4, 130, 8)
    assert on(9) == "blocked", "FlexAttention has no kernel for heads of fewer than 16 channels"
    q.shape = (2, 4, 130, 16)
    monkeypatch.setattr(attention, "_HAS_FLASH", True)
    for q.dtype in (torch.float16, torch.bfloat16):
        assert [on(major) for major in (7, 8, 9)] == ["blocked", "flash", "flash"], "FlashAttention-2 refuses a T4"
    q.dtype = torch.float32
    assert on(8) == "flex"


def test_flash_on_an_older_gpu_says_what_it_needs(monkeypatch):
    class OnT4:
        shape, ndim, dtype, is_cuda, device = (1, 1, 4, 8), 4, torch.float16, True, torch.device("cuda")

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: types.SimpleNamespace(major=7))
    monkeypatch.setattr(attention, "_HAS_FLASH", True)
    q = OnT4()
    with pytest.raises(RuntimeError, match="compute capability 8.0; got float16 on cuda"):
        sliding_window_attention(q, q, q, 2, "flash")


@pytest.mark.filterwarnings("ignore:.*flex_attention called without torch.compile")
def test_flex_builds_its_tiles_once_for_all_layers_of_a_length(monkeypatch):
    built = []
    monkeypatch.setattr(attention, "_window_tiles",
                        lambda *key, build=attention._window_tiles: built.append(key) or build(*key))
    attention._kept_tiles.cache_clear()
    for length, window in [(150, 9), (150, 9), (150, 8), (151, 9), (150, 9)]:
        q, k, v = qkv(length)
        found = sliding_window_attention(q, k, v, window, "flex")
        assert torch.allclose(found, masked_softmax(q, k, v, window), atol=1e-12)
    assert [key[:2] for key in built] == [(150, 9), (150, 8), (151, 9)]
    attention._kept_tiles.cache_clear()


def test_flash_says_what_it_needs():
    x = torch.randn(1, 1, 4, 8)
    with pytest.raises(RuntimeError, match="needs the flash-attn package, .* 8.0; got float32 on cpu"):
        sliding_window_attention(x, x, x, 2, "flash")


def test_window_counts_the_token_itself(backend):
    """With window 256, token 300 sees tokens 45 to 300 and no other: changes elsewhere change nothing at all."""
    q, k, v = qkv(400)
    before = sliding_window_attention(q, k, v, 256, backend)[:, :, 300]
    for j in (0, 43, 44, 45, 46, 299, 300, 301, 399):
        changed = v.clone()
        changed[:, :, j] += 1.0
        moved = not torch.equal(sliding_window_attention(q, k, changed, 256, backend)[:, :, 300], before)
        assert moved == (45 <= j <= 300)


def test_memory_does_not_grow_with_the_square_of_the_length():
    """At 32,768 tokens a mask of L x L would hold 2^30 entries; the largest tensor here stays linear in L."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            for x in out if isinstance(out, tuple | list) else [out]:
                if isinstance(x, torch.Tensor):
                    largest = max(largest, x.numel())
            return out

    length, window, channels = 32_768, 64, 4
    x = torch.randn(1, 1, length, channels)
    with Watch(), torch.inference_mode():
        sliding_window_attention(x, x, x, window)
    assert length <= largest <= 2 * length * 2 * window


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(window=0), ["window=0", ">= 1"]),
        (dict(backend="magic"), ["magic", "auto, blocked, flex, flash"]),
        (dict(k=torch.randn(2, 3, 6, 8)), ["(2, 3, 6, 8)", "equal"]),
        (dict(v=torch.randn(2, 3, 5, 8).half()), ["float16", "one floating-point dtype"]),
        (dict(v=torch.randn(2, 3, 5, 8, device="meta")), ["cpu, cpu, meta", "one device"]),
        (dict(q=torch.ones(2, 3, 5, 8, dtype=torch.int64)), ["int64", "one floating-point dtype"]),
        (dict(q=torch.randn(3, 5, 8)), ["(3, 5, 8)", "[batch, heads, length, channels]"]),
    ],
)
def test_bad_input_gets_one_clear_line(change, words):
    x = torch.randn(2, 3, 5, 8)
    with pytest.raises(ValueError) as caught:
        sliding_window_attention(**{**dict(q=x, k=x, v=x, window=4), **change})
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("length", [3, 11])
def test_an_empty_batch_has_an_empty_result(length):
    x = torch.zeros(0, 2, length, 4)
    assert sliding_window_attention(x, x, x, 4).shape == x.shape


def test_compiled_it_leaves_cudnn_out():
    """Whose backward pass, built before by a call that was not compiled, would misread the gradient."""
    class Watch(torch.fx.Interpreter):
        def call_function(self, target, args, kwargs):
            if target is torch.nn.functional.scaled_dot_product_attention:
                allowed.append(torch.backends.cuda.cudnn_sdp_enabled())
            return super().call_function(target, args, kwargs)

    allowed, (q, k, v) = [torch.backends.cuda.cudnn_sdp_enabled()], qkv(11)
    torch.compiler.reset()
    compiled = torch.compile(sliding_window_attention, fullgraph=True, dynamic=False,
                             backend=lambda graph, inputs: Watch(graph).run)
    assert torch.allclose(compiled(q, k, v, 4, "blocked"), masked_softmax(q, k, v, 4))
    assert [*allowed, torch.backends.cuda.cudnn_sdp_enabled()] == [True, False, False, True]
