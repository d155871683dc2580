"""The loss over a large vocabulary: equal to the plain one in value, gradients and under autocast, and small."""

import pytest
import torch
import torch.nn.functional as F

from caracal_min import Caracal
from caracal_min import loss as module
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


NOTHING = {"no position": (0, []), "all left out": (3, [-100] * 3)}


@pytest.mark.parametrize("name", NOTHING)
def test_the_mean_of_nothing_is_nan_and_its_slope_zero(name):
    count, targets = NOTHING[name]
    hidden, weight = torch.randn(count, 5, requires_grad=True), torch.randn(7, 5, requires_grad=True)
    for loss in (linear_cross_entropy, plain):
        value = loss(hidden, weight, torch.tensor(targets, dtype=torch.int64))
        assert value.isnan()
        for x, slope in zip((hidden, weight), torch.autograd.grad(value, (hidden, weight)), strict=True):
            assert torch.equal(slope, torch.zeros_like(x))


def with_id(wrong):
    targets = torch.tensor([1, -100, 4])
    targets[2] = wrong
    return dict(targets=targets)


@pytest.mark.parametrize("changes, words", [
    (with_id(-1), ["id -1", "0 to 6", "-100"]), (with_id(-99), ["id -99"]), (with_id(-101), ["id -101"]),
    (with_id(7), ["id 7"]), (with_id(2**40), [f"id {2**40}"]),
    (dict(targets=torch.tensor([1.0, 2.0, 3.0])), ["torch.float32", "integer ids"]),
    (dict(targets=torch.tensor([True, False, True])), ["torch.bool"]),
    (dict(targets=torch.tensor([1, 2])), ["(2,)", "(3,) positions"]),
    (dict(targets=torch.tensor([1, 2, 3, 4])), ["(4,)", "(3,) positions"]),
    (dict(targets=torch.tensor([1, 2, 3], device="meta")), ["meta", "on cpu"]),
    (dict(hidden=torch.ones(3, 5, dtype=torch.int64)), ["torch.int64", "floating-point"]),
])
def test_bad_input_gets_one_clear_line(changes, words):
    given = {**dict(hidden=torch.randn(3, 5), weight=torch.randn(7, 5), targets=torch.tensor([1, 2, 3])), **changes}

    def of_logits(hidden, weight, targets):
        return token_loss((hidden.float() @ weight.T).to(hidden.dtype), targets)

    for loss in (linear_cross_entropy, of_logits):
        with pytest.raises(ValueError) as caught:
            loss(**given)
        assert "\n" not in str(caught.value) and all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("changes, words", [
    (dict(weight=torch.randn(7, 4)), ["(3, 5)", "(7, 4)"]), (dict(rows=0), ["rows=0"]), (dict(rows=-1), ["rows=-1"])])
def test_parts_that_do_not_fit_get_one_clear_line(changes, words):
    given = dict(hidden=torch.randn(3, 5), weight=torch.randn(7, 5), targets=torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError) as caught:
        linear_cross_entropy(**{**given, **changes})
    assert "\n" not in str(caught.value) and all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("wrong", [-1, 7])
def test_where_ids_are_not_looked_at_a_wrong_one_makes_all_nan(wrong, monkeypatch):
    """On a GPU looking would make it wait: as there, without the check."""
    monkeypatch.setattr(module, "_require_targets", lambda *given: None)
    hidden, weight = torch.randn(3, 5, requires_grad=True), torch.randn(7, 5, requires_grad=True)
    value = linear_cross_entropy(hidden, weight, rows=2, **with_id(wrong))
    slopes = torch.autograd.grad(value, (hidden, weight))
    assert value.isnan() and slopes[0][[0, 2]].isnan().all() and slopes[1].isnan().any()


def test_under_the_transforms_of_torch_func_it_is_the_plain_loss():
    hidden, weight, targets = sample()
    hidden, weight = hidden.detach(), weight.detach()
    for transform in (lambda f: torch.func.grad(f, (0, 1))(hidden, weight),
                      lambda f: torch.func.jvp(f, (hidden, weight), (hidden.sin(), weight.cos())),
                      lambda f: torch.func.vmap(lambda h: f(h[None].expand(3, 50, D), weight))(hidden)):
        found = transform(lambda h, w: linear_cross_entropy(h, w, targets))
        for a, b in zip(found, transform(lambda h, w: plain(h, w, targets)), strict=True):
            assert torch.allclose(a, b, atol=1e-12)
