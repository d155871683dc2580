"""The loss over a large vocabulary: equal to the plain one in value and gradients, and small."""

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from caracal_min import Caracal
from caracal_min import loss as module
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


def gradients(loss, inputs, scale=1):
    return torch.autograd.grad(scale * loss, inputs)


@pytest.mark.parametrize("rows", [1, 17, None])
@pytest.mark.parametrize("cached", [1000, 1 << 21])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_value_and_gradients_are_those_of_the_plain_loss(rows, cached, dtype, tolerance, monkeypatch):
    """In chunks of any size, and in tiles of a few rows."""
    monkeypatch.setattr(module, "_CACHED", cached)
    hidden, weight, targets = sample(dtype)
    ours, expected = linear_cross_entropy(hidden, weight, targets, rows), plain(hidden, weight, targets)
    assert ours.item() == pytest.approx(expected.item(), rel=tolerance)
    both = [gradients(loss, (hidden, weight), 3) for loss in (ours, expected)]
    for a, b in zip(*both, strict=True):
        assert a.dtype == b.dtype and torch.allclose(a, b, atol=tolerance)


def test_gradcheck():
    hidden, weight, targets = sample()
    hidden, weight, targets = hidden[1:, :7, :5], weight[:11, :5], targets[1:, :7] % 11
    f = lambda h, w: linear_cross_entropy(h, w, targets, 4)  # noqa: E731
    assert torch.autograd.gradcheck(f, (hidden, weight))


def test_only_what_is_asked_for_is_differentiated():
    hidden, weight, targets = sample()
    (alone,) = gradients(linear_cross_entropy(hidden.detach(), weight, targets), weight)
    assert torch.allclose(alone, gradients(plain(hidden, weight, targets), weight)[0])
    linear_cross_entropy(hidden, weight.detach(), targets).backward()
    assert torch.allclose(hidden.grad, gradients(plain(hidden, weight, targets), hidden)[0])


def test_a_second_derivative_is_refused():
    """It would lack all that comes by way of the output layer."""
    hidden, weight, targets = sample()
    with pytest.raises(RuntimeError, match="the fused loss has no second derivative; differentiate"):
        torch.autograd.grad(linear_cross_entropy(hidden, weight, targets), hidden, create_graph=True)
    torch.autograd.grad(plain(hidden, weight, targets), hidden, create_graph=True)
    for reentrant in (True, False):  # a backward pass within a backward pass is no second derivative
        loss = checkpoint(linear_cross_entropy, hidden, weight, targets, use_reentrant=reentrant)
        loss.backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_it_rounds_as_the_plain_one(dtype):
    hidden, weight, targets = sample(torch.float32)
    exact = gradients(plain(hidden, weight, targets), (hidden, weight))
    with torch.autocast("cpu", dtype):
        ours, expected = (f(hidden, weight, targets) for f in (linear_cross_entropy, plain))
    assert ours.item() == pytest.approx(expected.item(), rel=1e-5)
    for loss in (ours, expected):
        for a, b in zip(gradients(loss, (hidden, weight)), exact, strict=True):
            assert a.dtype == b.dtype and (a - b).norm() < 1e-2 * b.norm()


@pytest.mark.compile
def test_compiles_in_one_graph(compiler):
    hidden, weight, targets = sample(torch.float32)
    compiled = torch.compile(lambda *x: linear_cross_entropy(*x, 80), fullgraph=True)
    both = [gradients(f(hidden, weight, targets), (hidden, weight)) for f in (compiled, plain)]
    for a, b in zip(*both, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


class Largest(TorchDispatchMode):
    """The largest result of an operator, in bytes, and operands and results of matrix products."""

    def __init__(self):
        super().__init__()
        self.bytes, self.products = 0, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.is_floating_point():
            self.bytes = max(self.bytes, made.nbytes)
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.bmm):
            self.products.append((*args, made))
        elif function.overloadpacket in (torch.ops.aten.addmm, torch.ops.aten.baddbmm):
            self.products.append((*args[1:], made))
        return made


def test_the_logits_are_never_held():
    hidden = torch.randn(2048, 16, requires_grad=True)
    weight = torch.randn(20_000, 16, requires_grad=True)
    targets = torch.randint(20_000, (2048,))
    whole = 2048 * 20_000 * 4
    with Largest() as fused:
        linear_cross_entropy(hidden, weight, targets, rows=64).backward()
    with Largest() as held:
        plain(hidden, weight, targets).backward()
    assert fused.bytes < whole / 20 < held.bytes == whole


def test_a_loss_beyond_the_range_of_float16():
    """The target's probability is 0 in float16 from 17.3 nats on; loss and gradient are not."""
    hidden = torch.tensor([[100.0, 0.0]], requires_grad=True)
    weight, targets = torch.eye(2)[[0, 1, 1]].requires_grad_(), torch.tensor([1])
    with torch.autocast("cpu", torch.float16):
        loss = linear_cross_entropy(hidden, weight, targets)
    assert loss.item() == 100
    assert gradients(loss, hidden)[0].tolist() == [[1, -1]]


def aligned(x):
    """Whether every row of a matrix, or of a batch of them, starts at a multiple of 16 bytes."""
    strides = [x.storage_offset(), *(s for s in x.stride() if s != 1)]
    return min(x.stride()[-2:]) == 1 and not any(n * x.itemsize % 16 for n in strides)


@pytest.mark.parametrize("preset", ["nano", "tiny"])
def test_every_matrix_product_of_a_training_step_is_aligned(preset, monkeypatch):
    """Tensor cores need it.  13 sequences are several chunks of logits, the last of them cut."""
    monkeypatch.setattr(module, "_require_targets", lambda *given: None)  # tensors without numbers
    monkeypatch.setattr(Caracal, "require_tokens", lambda self, ids, *name: ids)
    monkeypatch.setattr(Caracal, "_warn_if_unshifted", lambda *given, **named: None)
    monkeypatch.setattr(module, "_CACHED", 1 << 40)
    with FakeTensorMode(), Largest() as seen, torch.autocast("cpu", torch.bfloat16):
        model = Caracal.from_preset(preset)
        model.loss(*torch.zeros(2, 13, 512, dtype=torch.long)).backward()
    chunks = -(-13 * 512 // rows_at_once(PRESETS[preset].vocab_size))
    assert len(seen.products) > 18 * PRESETS[preset].n_layers + 3 * chunks
    assert {x.dtype for p in seen.products for x in p} == {torch.bfloat16}
    assert [[x.shape for x in p] for p in seen.products if not all(map(aligned, p))] == []


def test_a_gpu_with_memory_holds_more_rows(monkeypatch):
    class Card:
        total_memory = 80 << 30

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Card)
    assert rows_at_once(50_257) < 2**13 < 32_768 // 2 <= rows_at_once(50_257, "cuda") < 2**15
    Card.total_memory = 16 << 30
    assert rows_at_once(50_257, "cuda") == rows_at_once(50_257)


def test_loss_of_a_model_is_what_forward_returns():
    model = Caracal.from_preset("nano")
    tokens = torch.randint(256, (2, 33))
    x, y = tokens[:, :-1], tokens[:, 1:].clone()
    y[0, :4] = -100
    expected = gradients(model(x, y)[1], model.embedding.weight)[0]
    found = gradients(model.loss(x, y), model.embedding.weight)[0]
    assert torch.allclose(found, expected, atol=1e-6)


def test_no_valid_targets_loss_nan_and_gradient_zero():
    hidden, weight = torch.randn(3, 5, requires_grad=True), torch.randn(7, 5, requires_grad=True)
    for loss in (linear_cross_entropy, plain):
        value = loss(hidden, weight, torch.full((3,), -100))
        assert value.isnan()
        assert all(g.eq(0).all() for g in gradients(value, (hidden, weight)))


@pytest.mark.parametrize("targets, words", [
    ([1, -100, -1], "targets hold id -1; accepted: 0 to 6, and -100"),
    ([1, -100, 7], "targets hold id 7; accepted: 0 to 6"),
    ([1, 2], r"targets have shape \(2,\), hidden \(3, 5\); give one id for each position"),
])
def test_a_wrong_target_is_told_in_one_line(targets, words):
    with pytest.raises(ValueError, match=f"^{words}.*$"):
        linear_cross_entropy(torch.randn(3, 5), torch.randn(7, 5), torch.tensor(targets))
