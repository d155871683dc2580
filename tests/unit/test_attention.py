"""Sliding-window attention against the masked softmax written out."""

import pytest
import torch

from caracal_min.attention import sliding_window_attention


def masked_softmax(q, k, v, window):
    """The defining formula with an explicit L x L mask."""
    length = q.shape[2]
    distance = torch.arange(length)[:, None] - torch.arange(length)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    scores = scores.masked_fill((distance < 0) | (distance >= window), float("-inf"))
    return scores.softmax(-1) @ v


def qkv(length, dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(3, 2, 3, length, 8, generator=draw, dtype=dtype).unbind(0)


@pytest.mark.parametrize("window", [1, 2, 7, 16, 64])
@pytest.mark.parametrize("length", [1, 2, 7, 8, 15, 16, 17, 33, 50])
def test_blocked_equals_the_formula(length, window):
    q, k, v = qkv(length)
    found = sliding_window_attention(q, k, v, window, "blocked")
    assert torch.allclose(found, masked_softmax(q, k, v, window), atol=1e-12)


def test_blocked_gradients_equal_the_formula():
    inputs = [x.clone().requires_grad_() for x in qkv(37)]
    found = torch.autograd.grad(sliding_window_attention(*inputs, 9).square().sum(), inputs)
    expected = torch.autograd.grad(masked_softmax(*inputs, 9).square().sum(), inputs)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-11)


def test_window_counts_the_token_itself():
    """With window 256, token 300 sees tokens 45 to 300 and no other: gradients are exactly zero elsewhere."""
    q, k, v = qkv(400)
    v.requires_grad_()
    (grad,) = torch.autograd.grad(sliding_window_attention(q, k, v, 256)[:, :, 300].sum(), v)
    seen = (grad.abs().sum((0, 1, 3)) > 0).nonzero().flatten()
    assert seen.tolist() == list(range(45, 301))


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
        (dict(backend="magic"), ["magic", "auto", "blocked"]),
        (dict(k=torch.randn(2, 3, 6, 8)), ["(2, 3, 6, 8)", "equal"]),
        (dict(v=torch.randn(2, 3, 5, 8).half()), ["float16", "one floating-point dtype"]),
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
