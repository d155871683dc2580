"""What other people's code may rely on: each layer is what its base class is, to adapters too."""

import warnings

import pytest
import torch
from torch import nn

from caracal_min import Caracal, CaracalConfig
from caracal_min.layers import HeadMix, ShortConv, TimeLastLinear

D, HELD = 16, 5


def model(**changes) -> Caracal:
    torch.manual_seed(0)
    config = dict(vocab_size=40, d_model=D, n_layers=3, n_heads=2, window_size=6, embedding_std=0.5, init_std=0.2)
    return Caracal(CaracalConfig(**config | changes)).double().eval()


def tokens(batch: int = 2, length: int = D // 2) -> torch.Tensor:
    """Ids `[batch, length]`; by default as many as the model has channels, so that no product of the two is refused."""
    return torch.randint(40, (batch, length), generator=torch.Generator().manual_seed(1))


def moved(call, ids: torch.Tensor) -> tuple[float, float]:
    """How far a change of token HELD moves the logits before it, and from it on."""
    changed = ids.clone()
    changed[:, HELD] = (ids[:, HELD] + 1) % 40
    with torch.no_grad():
        difference = (call(changed) - call(ids)).abs()
    return difference[:, :HELD].max().item(), difference[:, HELD:].max().item()


LAYERS = {
    "linear": (TimeLastLinear(6, 4), [(6,), (3, 6), (6, 6), (1, 6), (2, 5, 6), (2, 3, 5, 6), (2, 1, 6), (0, 5, 6)]),
    "linear, no bias": (TimeLastLinear(6, 4, bias=False), [(6,), (2, 5, 6)]),
    "taps": (ShortConv(6, 6, 3, groups=6, bias=False), [(2, 6, 9), (6, 9), (2, 6, 3), (6, 3), (1, 6, 6)]),
    "taps, in groups": (ShortConv(6, 4, 3, stride=2, padding=1, groups=2), [(2, 6, 9), (6, 9), (2, 6, 3), (6, 3)]),
    "taps, with a bias": (ShortConv(6, 6, 3, groups=6), [(2, 6, 9), (2, 6, 3)]),
    "heads": (HeadMix(6, 6, 1, groups=3), [(2, 6, 9), (6, 9), (1, 6, 1), (6, 1), (2, 6, 1), (1, 6, 6)]),
    "heads, no bias": (HeadMix(6, 6, 1, groups=3, bias=False), [(2, 6, 9), (1, 6, 1)]),
    "heads, three taps": (HeadMix(6, 6, 3, groups=3), [(2, 6, 9)]),
}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("name", LAYERS)
def test_a_subclass_returns_what_its_base_class_returns(name, order):
    layer, shapes = LAYERS[name]
    for shape in shapes:
        x = torch.randn(shape[::order]).permute(*range(len(shape))[::order]).requires_grad_()
        found, expected = layer(x), type(layer).__base__.forward(layer, x)
        assert found.shape == expected.shape
        assert torch.allclose(found, expected, atol=1e-6), shape
        of = [x, *layer.parameters()]
        for a, b in zip(*(torch.autograd.grad(y.square().sum(), of) for y in (found, expected)), strict=True):
            assert torch.allclose(a, b, atol=1e-5), shape


def test_these_are_all_the_subclasses_in_a_model():
    found = {type(module) for module in model(positional_encoding="learned").modules()
             if type(module).__module__.startswith("caracal_min") and type(module).__base__ is not nn.Module}
    assert found - {Caracal} == {TimeLastLinear, ShortConv, HeadMix}


@pytest.fixture
def adapted(report_missing):
    """A function that returns a model with LoRA adapters, which do something, on modules of some names."""
    try:
        import peft
    except ImportError:
        report_missing("peft is not installed: pip install -r requirements.txt")

    def build(target, **options) -> nn.Module:
        torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PEFT's own, that it cannot merge grouped convolutions
            config = peft.LoraConfig(r=4, target_modules=target, init_lora_weights=False, **options)
            return peft.get_peft_model(model(), config).double().eval()

    return build


@pytest.mark.parametrize("target", ["all-linear", ["to_gate"]], ids=str)
def test_an_adapter_sees_no_later_token_and_can_be_merged(target, adapted):
    ids, plain, whole = tokens(), model(), adapted(target)
    found = whole(ids)[0]
    assert (found - plain(ids)[0]).abs().max() > 1e-3  # it does something
    before, after = moved(lambda x: whole(x)[0], ids)
    assert before < 1e-12 and after > 1e-3
    drawn = whole.generate(ids, 12, temperature=0.0)
    assert torch.equal(whole(drawn[:, :-1])[0][:, ids.shape[1] - 1:].argmax(-1), drawn[:, ids.shape[1]:])
    merged = whole.merge_and_unload()
    assert torch.allclose(merged(ids)[0], found, atol=1e-11)
    assert torch.equal(merged.generate(ids, 12, temperature=0.0), drawn)
