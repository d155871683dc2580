"""The causal convolution against a float64 oracle, its derivatives, its causality and its errors."""

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
from caracal_min.relaxed import RelaxedConvolution

FAST = [causal_conv_fft, causal_conv_right_angle]
ALL = [causal_conv_direct, *FAST]
LENGTHS = [1, 2, 3, 5, 16, 31, 97, 100, 256]  # one, odd, prime, power of two, neither


def oracle(v: torch.Tensor, g: torch.Tensor) -> np.ndarray:
    """The defining sum, in numpy and float64, one coefficient at a time."""
    v, g = np.broadcast_arrays(v.double().numpy(), g.double().numpy())
    r = np.zeros(v.shape)
    for t in range(v.shape[-1]):
        for j in range(t + 1):
            r[..., t] += v[..., j] * g[..., t - j]
    return r


def pair(length: int, lead_v=(2, 3), lead_g=(2, 3), dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return (torch.randn(*lead_v, length, generator=draw, dtype=torch.float64).to(dtype),
            torch.randn(*lead_g, length, generator=draw, dtype=torch.float64).to(dtype))


def relative_error(found: torch.Tensor, expected: np.ndarray) -> float:
    """Root mean square of the error over the root mean square of the answer."""
    return float(np.sqrt(((found.double().numpy() - expected) ** 2).mean() / (expected**2).mean()))


@pytest.mark.parametrize("conv", ALL)
@pytest.mark.parametrize("length", LENGTHS)
def test_float64_equals_the_sum(conv, length):
    v, g = pair(length)
    assert relative_error(conv(v, g), oracle(v, g)) < 1e-14


# One rounding of the result to the dtype costs about eps / 4 in this measure; float32 also rounds inside the FFT.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}


@pytest.mark.parametrize("conv", ALL)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_low_precision_is_rounded_once(conv, dtype):
    v, g = pair(200, dtype=dtype)
    r = conv(v, g)
    assert r.dtype == dtype
    assert relative_error(r, oracle(v, g)) < TOLERANCE[dtype]


def test_mixed_dtypes_promote():
    v, g = pair(8)
    assert causal_conv_fft(v.half(), g.float()).dtype == torch.float32
    assert causal_conv_fft(v.half(), g.bfloat16()).dtype == torch.float32


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 80), st.sampled_from([((), ()), ((3,), ()), ((2, 1), (4,)), ((1, 3), (2, 1))]),
       st.integers(0, 99))
def test_routes_agree_for_any_length_and_broadcast(length, leads, seed):
    v, g = pair(length, *leads, seed=seed)
    expected = oracle(v, g)
    for conv in ALL:
        r = conv(v, g)
        assert r.shape == expected.shape
        np.testing.assert_allclose(r.numpy(), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("conv", ALL)
@pytest.mark.parametrize("length", [1, 4, 7])
def test_first_and_second_derivatives(conv, length):
    v, g = pair(length, (2,), (2,))
    v.requires_grad_()
    g.requires_grad_()
    assert torch.autograd.gradcheck(conv, (v, g))
    assert torch.autograd.gradgradcheck(conv, (v, g))


@pytest.mark.parametrize("length", LENGTHS)
def test_direct_sum_has_exactly_zero_future_gradients(length):
    v, g = pair(length, (), ())
    for jacobian in torch.autograd.functional.jacobian(causal_conv_direct, (v, g)):
        assert torch.equal(jacobian.triu(1), torch.zeros_like(jacobian))
        assert jacobian.diagonal().abs().min() > 0


@pytest.mark.parametrize("conv", FAST)
def test_fast_routes_have_future_gradients_of_rounding_size_only(conv):
    v, g = pair(97, (), ())
    for jacobian in torch.autograd.functional.jacobian(conv, (v, g)):
        assert jacobian.triu(1).abs().max() < 1e-15 * 97
        assert jacobian.tril().abs().max() > 1


def test_without_padding_the_future_leaks():
    v, g = pair(97, (), ())
    jacobian = torch.autograd.functional.jacobian(lambda v: circular_conv(v, g), v)
    assert jacobian.triu(1).abs().max() > 1


@pytest.mark.parametrize("conv", FAST)
def test_backward_is_a_causal_convolution_run_backwards(conv):
    v, g = pair(31)
    v.requires_grad_()
    dr = torch.randn_like(v)
    (dv,) = torch.autograd.grad(conv(v, g), v, dr)
    assert torch.allclose(dv, causal_conv_direct(dr.flip(-1), g).flip(-1), atol=1e-12)


@pytest.mark.parametrize("conv", ALL)
def test_bilinear(conv):
    v, g = pair(50)
    assert torch.allclose(conv(2 * v, 2 * g), 4 * conv(v, g), atol=1e-11)
    assert torch.allclose(conv(v, g), conv(g, v), atol=1e-11)


def test_toeplitz_entries():
    g = torch.arange(1.0, 5.0)
    a = toeplitz(g)
    for t in range(4):
        for j in range(4):
            assert a[t, j] == (g[t - j] if j <= t else 0)


@pytest.mark.parametrize("m, k", [(1, 1), (3, 5), (8, 8), (13, 2)])
def test_linear_conv_is_polynomial_multiplication(m, k):
    v, g = torch.randn(m, dtype=torch.float64), torch.randn(k, dtype=torch.float64)
    expected = np.polynomial.polynomial.polymul(v.numpy(), g.numpy())
    np.testing.assert_allclose(linear_conv(v, g).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 7, 12])
def test_circular_conv_folds_the_tail(length):
    v, g = pair(length, (), ())
    full = linear_conv(v, g)
    for n in range(length, 2 * length + 2):
        folded = torch.zeros(n, dtype=torch.float64)
        for degree, coefficient in enumerate(full):
            folded[degree % n] += coefficient
        assert torch.allclose(circular_conv(v, g, n), folded, atol=1e-12)


def test_two_l_minus_one_points_are_needed():
    """The padding bound: 2L - 1 points keep the past safe, one fewer does not."""
    v, g = pair(16, (), ())
    expected = causal_conv_direct(v, g)
    assert torch.allclose(circular_conv(v, g, 31)[:16], expected, atol=1e-12)
    assert not torch.allclose(circular_conv(v, g, 30)[:16], expected, atol=1e-3)


@pytest.mark.parametrize(
    "v, g, error, words",
    [
        (torch.ones(4), torch.ones(5), ValueError, ["4", "5", "linear_conv"]),
        (torch.ones(4, dtype=torch.int64), torch.ones(4), TypeError, ["int64", "float32", ".float()"]),
        (torch.ones(4), torch.ones(4, dtype=torch.complex64), TypeError, ["g", "complex64"]),
        ([1.0, 2.0], torch.ones(2), TypeError, ["list", "Tensor"]),
        (torch.ones(3, 0), torch.ones(3, 0), ValueError, ["(3, 0)", "length >= 1"]),
        (torch.tensor(1.0), torch.tensor(1.0), ValueError, ["()", "time"]),
        (torch.ones(2, 4), torch.ones(3, 4), ValueError, ["(2,)", "(3,)", "broadcast"]),
    ],
)
@pytest.mark.parametrize("conv", ALL)
def test_bad_input_gets_one_clear_line(conv, v, g, error, words):
    with pytest.raises(error) as caught:
        conv(v, g)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("leads", [((), ()), ((3,), ()), ((2, 1), (4,))])
@pytest.mark.parametrize("taps", [1, 5, 19, 20])
def test_what_a_shorter_gate_lacks_counts_as_zero(taps, leads):
    v, g = pair(20, *leads)
    cut = torch.cat([g[..., :taps], torch.zeros_like(g[..., taps:])], dim=-1)
    for conv in (causal_conv_direct, causal_conv_fft):
        np.testing.assert_allclose(conv(v, g[..., :taps]).numpy(), oracle(v, cut), atol=1e-12)
        with pytest.raises(ValueError, match="v has length 19 and g has length 20 .* no longer than the content"):
            conv(v[..., 1:], g)
    if taps < 20:
        with pytest.raises(ValueError, match="equal lengths"):
            causal_conv_right_angle(v, g[..., :taps])


def test_too_few_points_are_refused():
    with pytest.raises(ValueError, match="n=3 .* length 4"):
        circular_conv(torch.ones(4), torch.ones(4), 3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("stream", ["v", "g"])
def test_what_nan_and_infinity_reach(bad, stream):
    """As the head of the module says: everything by the fast routes, the past by the direct sum where it is in v."""
    streams = dict(zip("vg", pair(20, (), ()), strict=True))
    clean = causal_conv_direct(**streams)
    streams[stream][12] = bad
    for conv in FAST:
        assert conv(**streams).isnan().all()
    direct = causal_conv_direct(**streams)
    assert not direct[12:].isfinite().any()
    assert direct[:12].isnan().all() if stream == "v" else torch.equal(direct[:12], clean[:12])
    online = RelaxedConvolution(1, 1, 20, torch.float64, base=4)
    stepped = torch.cat([online.step(streams["v"][None, t:t + 1], streams["g"][None, t:t + 1])[0] for t in range(20)])
    assert torch.allclose(stepped[:12], clean[:12], atol=1e-13) and not stepped[12:].isfinite().any()


@pytest.mark.parametrize("conv", FAST)
@pytest.mark.parametrize("dtype, least, most", [(torch.float32, 1, 1e3), (torch.float64, 1e-9, 1e-5)])
def test_one_large_number_at_the_end_drowns_what_is_small_before_it(conv, dtype, least, most):
    v, g = pair(500, (), (), dtype=dtype)
    v *= 1e-15
    v[-1] = 1e8
    expected = causal_conv_direct(v, g)
    assert expected[:-1].abs().max() < 1e-12
    assert least < conv(v, g)[:-1].abs().max() < most
    online = RelaxedConvolution(1, 1, 500, dtype)
    stepped = torch.cat([online.step(v[None, t:t + 1], g[None, t:t + 1])[0] for t in range(500)])
    assert torch.allclose(stepped[:-1], expected[:-1], rtol=0, atol=1e-18)


@pytest.mark.parametrize("conv", FAST)
@pytest.mark.parametrize("dtype, least, most", [(torch.float32, 1e-9, 1e-5), (torch.float64, 1e-18, 1e-14)])
def test_future_gradients_are_rounding_and_not_zero(conv, dtype, least, most):
    v, g = pair(97, (), (), dtype=dtype)
    for jacobian in torch.autograd.functional.jacobian(conv, (v, g)):
        assert least < jacobian.triu(1).abs().max() < most


EMPTY = [((0, 3), (0, 3)), ((2, 0), (2, 0)), ((0, 1), (3,)), ((0,), ())]


@pytest.mark.parametrize("leads", EMPTY)
def test_an_empty_batch_has_an_empty_result(leads):
    v, g = (torch.zeros(*lead, 7, requires_grad=True) for lead in leads)
    lead = torch.broadcast_shapes(*leads)
    for conv, length in ((causal_conv_direct, 7), (causal_conv_fft, 7), (causal_conv_right_angle, 7),
                         (linear_conv, 13), (circular_conv, 7), (lambda v, g: circular_conv(v, g, 20), 20)):
        r = conv(v, g)
        assert r.shape == (*lead, length)
        for x, gradient in zip((v, g), torch.autograd.grad(r.sum(), (v, g)), strict=True):
            assert gradient.shape == x.shape and not gradient.any()
    assert torch.func.vmap(causal_conv_fft)(torch.zeros(4, 0, 7), torch.zeros(4, 0, 7)).shape == (4, 0, 7)
    assert toeplitz(v).shape == (*leads[0], 7, 7)


@pytest.mark.parametrize("conv", [*ALL, linear_conv, circular_conv])
def test_streams_on_two_devices_get_one_clear_line(conv):
    with pytest.raises(ValueError, match="^v is on cpu and g on meta; move them to one device$"):
        conv(torch.ones(4), torch.ones(4, device="meta"))
