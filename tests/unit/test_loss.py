"""The loss over a large vocabulary: equal to the plain one in value, gradients and under autocast, and small."""

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from caracal_min import Caracal
from caracal_min import loss as module
from caracal_min.benchmark.measure import peak_memory
from caracal_min.config import PRESETS
from caracal_min.loss import linear_cross_entropy, rows_at_once, token_loss

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


def test_a_second_derivative_is_refused():
    """It would lack all that comes by way of the output layer."""
    hidden, weight, targets = sample(torch.float64)
    with pytest.raises(RuntimeError, match="has no gradient of its own; for second derivatives take token_loss"):
        torch.autograd.grad(linear_cross_entropy(hidden, weight, targets, 17), (hidden, weight), create_graph=True)
    torch.autograd.grad(plain(hidden, weight, targets), hidden, create_graph=True)
    for reentrant in (True, False):  # a backward pass within a backward pass is none
        checkpoint(linear_cross_entropy, hidden, weight, targets, 17, use_reentrant=reentrant).backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_it_rounds_as_the_plain_one(dtype):
    hidden, weight, targets = sample(torch.float32)
    exact = torch.autograd.grad(plain(hidden, weight, targets), (hidden, weight))
    with torch.autocast("cpu", dtype):
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_logit_is_held_once(dtype, monkeypatch):
    """Where all rows are worked on together, as on a GPU: its slope takes its place, and no wider copy is made."""
    monkeypatch.setattr(module, "_CACHED", 1 << 40)
    hidden, weight = torch.randn(1024, 8, requires_grad=True), torch.randn(20_000, 8, requires_grad=True)
    targets = torch.randint(20_000, (1024,))
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        peak = peak_memory(lambda: linear_cross_entropy(hidden, weight, targets).backward())
    assert peak * 2**20 / (1024 * 20_000) < 1.15 * dtype.itemsize


def test_a_loss_beyond_the_range_of_float16():
    """The probability of the target is 0 in float16 from 17.3 nats on; the loss and its slope are as in float32."""
    hidden = torch.tensor([[100.0, 0.0]], requires_grad=True)
    weight, targets = torch.eye(2)[[0, 1, 1]].requires_grad_(), torch.tensor([1])
    with torch.autocast("cpu", torch.float16):
        loss = linear_cross_entropy(hidden, weight, targets)
    assert loss.item() == 100
    assert torch.autograd.grad(loss, hidden)[0].tolist() == [[1, -1]]


class Products(TorchDispatchMode):
    """Operands and result of every matrix product."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.bmm):
            self.seen.append((*args, made))
        elif function.overloadpacket in (torch.ops.aten.addmm, torch.ops.aten.baddbmm):
            self.seen.append((*args[1:], made))
        return made


def aligned(x):
    """Whether every row of a matrix, or of a batch of them, starts at a multiple of 16 bytes."""
    return min(x.stride()[-2:]) == 1 and not any(
        n * x.itemsize % 16 for n in (x.storage_offset(), *(s for s in x.stride() if s != 1)))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_matrix_product_of_a_training_step_is_aligned(preset, monkeypatch):
    """Tensor cores need it.  13 sequences are several chunks of logits, the last of them cut."""
    monkeypatch.setattr(module, "_require_targets", lambda *given: None)  # tensors without numbers
    monkeypatch.setattr(Caracal, "_require_pair", lambda *given: None)
    monkeypatch.setattr(module, "_CACHED", 1 << 40)
    with FakeTensorMode(), Products() as products, torch.autocast("cpu", torch.bfloat16):
        model = Caracal.from_preset(preset)
        model.loss(*torch.zeros(2, 13, 512, dtype=torch.long)).backward()
    chunks = -(-13 * 512 // rows_at_once(PRESETS[preset].vocab_size))
    assert len(products.seen) > 18 * PRESETS[preset].n_layers + 3 * chunks
    assert {x.dtype for p in products.seen for x in p} == {torch.bfloat16}
    assert [[(x.shape, x.stride()) for x in p] for p in products.seen if not all(map(aligned, p))] == []


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
