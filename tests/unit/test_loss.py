"""The loss over a large vocabulary: equal to the plain one in value, gradients and under autocast, and small."""

import pytest
import torch
import torch.nn.functional as F

from caracal_min import Caracal
from caracal_min.benchmark.measure import peak_memory
from caracal_min.loss import linear_cross_entropy, token_loss

V, D = 301, 32


def sample(dtype=torch.float64, left_out=7):
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 50, D, dtype=dtype, generator=draw).requires_grad_()
    weight = torch.randn(V, D, dtype=dtype, generator=draw).requires_grad_()
    targets = torch.randint(V, (3, 50), generator=draw)
    targets[0, :left_out] = -100
    return hidden, weight, targets


def plain(hidden, weight, targets):
    return token_loss(F.linear(hidden, weight), targets)


@pytest.mark.parametrize("rows", [1, 17, 1 << 20, None])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_value_and_gradients_are_those_of_the_plain_loss(rows, dtype, tolerance):
    hidden, weight, targets = sample(dtype)
    ours, expected = linear_cross_entropy(hidden, weight, targets, rows), plain(hidden, weight, targets)
    assert ours.item() == pytest.approx(expected.item(), rel=tolerance)
    for a, b in zip(*(torch.autograd.grad(3 * loss, (hidden, weight)) for loss in (ours, expected)), strict=True):
        assert a.dtype == b.dtype and torch.allclose(a, b, atol=tolerance)


def test_gradcheck():
    hidden, weight, targets = sample()
    hidden, weight, targets = hidden[1:, :7, :5], weight[:11, :5], targets[1:, :7] % 11
    assert torch.autograd.gradcheck(lambda h, w: linear_cross_entropy(h, w, targets, 4), (hidden, weight))


def test_only_what_is_asked_for_is_differentiated():
    hidden, weight, targets = sample()
    (alone,) = torch.autograd.grad(linear_cross_entropy(hidden.detach(), weight, targets), weight)
    assert torch.allclose(alone, torch.autograd.grad(plain(hidden, weight, targets), weight)[0])
    with torch.no_grad():
        assert linear_cross_entropy(hidden, weight, targets).grad_fn is None


def test_a_second_derivative_is_refused_and_not_wrong():
    hidden, weight, targets = sample()
    (slope,) = torch.autograd.grad(linear_cross_entropy(hidden, weight, targets), hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        slope.sum().backward()


def test_under_autocast_it_rounds_as_the_plain_one():
    hidden, weight, targets = sample(torch.float32)
    exact = torch.autograd.grad(plain(hidden, weight, targets), (hidden, weight))
    with torch.autocast("cpu", torch.bfloat16):
        ours, expected = linear_cross_entropy(hidden, weight, targets, 17), plain(hidden, weight, targets)
    assert ours.item() == pytest.approx(expected.item(), rel=1e-5)
    for loss in (ours, expected):
        for a, b in zip(torch.autograd.grad(loss, (hidden, weight)), exact, strict=True):
            assert a.dtype == b.dtype and (a - b).norm() < 1e-2 * b.norm()


def test_compiles_in_one_graph(compiler):
    hidden, weight, targets = sample(torch.float32)
    compiled = torch.compile(lambda *x: linear_cross_entropy(*x, 40), fullgraph=True)
    for a, b in zip(*(torch.autograd.grad(f(hidden, weight, targets), (hidden, weight)) for f in (compiled, plain)),
                    strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_the_logits_are_never_held():
    hidden, weight = torch.randn(2048, 16, requires_grad=True), torch.randn(20_000, 16, requires_grad=True)
    targets = torch.randint(20_000, (2048,))
    whole = 2048 * 20_000 * 4 / 2**20
    lean = peak_memory(lambda: linear_cross_entropy(hidden, weight, targets, rows=64).backward())
    assert lean < whole / 5 < 2 * whole < peak_memory(lambda: plain(hidden, weight, targets).backward())


def test_loss_of_a_model_is_what_forward_returns():
    model = Caracal.from_preset("nano")
    tokens = torch.randint(256, (2, 33))
    x, y = tokens[:, :-1], tokens[:, 1:].clone()
    y[0, :4] = -100
    expected = torch.autograd.grad(model(x, y)[1], model.embedding.weight)[0]
    assert torch.allclose(torch.autograd.grad(model.loss(x, y), model.embedding.weight)[0], expected, atol=1e-6)
    with pytest.raises(ValueError, match="targets have shape"):
        model.loss(x, y[:, :5])
