"""The six public routes against a float64 oracle: values, derivatives, causality, dtypes, wrong arguments."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caracal_min.convolution import (
    causal_conv_direct,
    causal_conv_fft,
    causal_conv_right_angle,
    circular_conv,
    linear_conv,
    toeplitz,
)

FAST = [causal_conv_fft, causal_conv_right_angle]
ALL = [causal_conv_direct, *FAST]
# One rounding of the result costs about eps / 4 in this measure; float32 also rounds inside the FFT.
TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}


def oracle(v: torch.Tensor, g: torch.Tensor) -> np.ndarray:
    """The defining sum, in numpy and float64, one coefficient at a time."""
    v, g = np.broadcast_arrays(v.double().numpy(), g.double().numpy())
    r = np.zeros(v.shape)
    for t in range(v.shape[-1]):
        for j in range(t + 1):
            r[..., t] += v[..., j] * g[..., t - j]
    return r


def pair(length, lead_v=(2, 3), lead_g=(2, 3), dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return (torch.randn(*lead_v, length, generator=draw, dtype=torch.float64).to(dtype),
            torch.randn(*lead_g, length, generator=draw, dtype=torch.float64).to(dtype))


def relative_error(found, expected):
    return float(np.sqrt(((found.double().numpy() - expected) ** 2).mean() / (expected**2).mean()))


@pytest.mark.parametrize("conv", ALL)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_every_dtype_is_the_sum_rounded_once(conv, dtype):
    for length in (1, 2, 31, 200):
        v, g = pair(length, dtype=dtype)
        r = conv(v, g)
        assert r.dtype == dtype and relative_error(r, oracle(v, g)) < TOLERANCE[dtype]


def test_mixed_dtypes_promote():
    v, g = pair(8)
    assert causal_conv_fft(v.half(), g.float()).dtype == torch.float32
    assert causal_conv_fft(v.half(), g.bfloat16()).dtype == torch.float32


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 80), st.integers(1, 80), st.integers(0, 99),
       st.sampled_from([((), ()), ((3,), ()), ((2, 1), (4,)), ((1, 3), (2, 1))]))
def test_routes_agree_for_any_length_gate_and_broadcast(length, taps, seed, leads):
    v, g = pair(length, *leads, seed=seed)
    for conv in ALL:
        np.testing.assert_allclose(conv(v, g).numpy(), oracle(v, g), rtol=1e-11, atol=1e-11)
    short = g[..., :taps]
    padded = torch.nn.functional.pad(short, (0, length - short.shape[-1]))
    for conv in (causal_conv_direct, causal_conv_fft):
        np.testing.assert_allclose(conv(v, short).numpy(), oracle(v, padded), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("conv", ALL)
@pytest.mark.parametrize("length", [1, 4, 7])
def test_first_and_second_derivatives(conv, length):
    v, g = (x.requires_grad_() for x in pair(length, (2,), (2,)))
    assert torch.autograd.gradcheck(conv, (v, g))
    assert torch.autograd.gradgradcheck(conv, (v, g))


def test_the_future_has_zero_gradients_in_the_direct_sum_and_rounding_in_a_transform():
    """And more than that without padding: the measure would see a leak."""
    v, g = pair(97, (), ())
    for jacobian in torch.autograd.functional.jacobian(causal_conv_direct, (v, g)):
        assert not jacobian.triu(1).any() and jacobian.diagonal().abs().min() > 0
    for conv in FAST:
        for jacobian in torch.autograd.functional.jacobian(conv, (v, g)):
            assert 0 < jacobian.triu(1).abs().max() < 1e-13 and jacobian.tril().abs().max() > 1
    assert torch.autograd.functional.jacobian(lambda v: circular_conv(v, g), v).triu(1).abs().max() > 1


def test_toeplitz_entries():
    g = torch.arange(1.0, 5.0)
    for t in range(4):
        for j in range(4):
            assert toeplitz(g)[t, j] == (g[t - j] if j <= t else 0)


@pytest.mark.parametrize("m, k", [(1, 1), (3, 5), (8, 8), (13, 2)])
def test_linear_and_circular_conv_are_polynomial_products(m, k):
    v, g = torch.randn(m, dtype=torch.float64), torch.randn(k, dtype=torch.float64)
    full = np.polynomial.polynomial.polymul(v.numpy(), g.numpy())
    np.testing.assert_allclose(linear_conv(v, g).numpy(), full, atol=1e-12)
    if k <= m:
        for n in range(m, m + k + 1):
            folded = np.bincount(np.arange(len(full)) % n, full, n)
            np.testing.assert_allclose(circular_conv(v, g, n).numpy(), folded, atol=1e-12)


def test_two_l_minus_one_points_are_needed():
    v, g = pair(16, (), ())
    expected = causal_conv_direct(v, g)
    assert torch.allclose(circular_conv(v, g, 31)[:16], expected, atol=1e-12)
    assert not torch.allclose(circular_conv(v, g, 30)[:16], expected, atol=1e-3)


@pytest.mark.parametrize("conv, v, g, error, message", [
    (causal_conv_fft, torch.ones(4), torch.ones(5), ValueError, "length 4 and g has length 5; give a gate no longer"),
    (causal_conv_direct, torch.ones(4), torch.ones(5), ValueError, "linear_conv"),
    (causal_conv_right_angle, torch.ones(4), torch.ones(3), ValueError, "give equal lengths"),
    (circular_conv, torch.ones(4), torch.ones(5), ValueError, "no longer than the content"),
    (lambda v, g: circular_conv(v, g, 3), torch.ones(4), torch.ones(4), ValueError, "n=3 points cannot hold 4"),
    (causal_conv_fft, torch.arange(4), torch.arange(4), TypeError, "torch.int64 .* give floating-point tensors"),
    (causal_conv_fft, torch.ones(4) * 1j, torch.ones(4), TypeError, "complex64"),
])
def test_a_wrong_argument_gets_one_clear_line(conv, v, g, error, message):
    with pytest.raises(error, match=message) as caught:
        conv(v, g)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype, least, most", [(torch.float32, 1, 1e3), (torch.float64, 1e-9, 1e-5)])
def test_one_large_number_at_the_end_drowns_what_is_small_before_it(dtype, least, most):
    """As the head of the module says; and NaN reaches every output."""
    v, g = pair(500, (), (), dtype=dtype)
    v *= 1e-15
    v[-1] = 1e8
    assert causal_conv_direct(v, g)[:-1].abs().max() < 1e-12
    for conv in FAST:
        assert least < conv(v, g)[:-1].abs().max() < most
    v[12] = float("nan")
    assert all(conv(v, g).isnan().all() for conv in ALL)
