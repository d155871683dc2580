"""What must hold on every device: each test runs on the CPU, and on a CUDA GPU where there is one.

References are computed in float64 on the CPU, from the very inputs.  Errors are root mean squares relative to the
reference: float32 lands under 1e-5, one rounding to bfloat16 near 2e-3, gradients under autocast from 2e-2 to 5e-2.
Bounds of float32 assume float32 arithmetic: TF32, near 3e-4, is beyond them.  PyTorch leaves it to the caller for
matrix products, and takes it for cuDNN's convolutions by default.
"""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from caracal_min import Caracal, CaracalConfig
from caracal_min.attention import sliding_window_attention
from caracal_min.convolution import causal_conv_direct, causal_conv_fft, causal_conv_right_angle
from caracal_min.data import ByteTokenizer
from caracal_min.layers import MultiHeadFourier, ShortConv
from caracal_min.model import BLOCK_OPTIONS
from caracal_min.precision import find_device
from caracal_min.training import TrainConfig, Trainer

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
on_every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])

LENGTHS = [1, 7, 1000]


def error(found, expected):
    found, expected = found.detach().double().cpu(), expected.detach().double().cpu()
    assert torch.isfinite(found).all()
    return ((found - expected).norm() / expected.norm()).item()


def streams(length, dtype=torch.float32):
    """Content, gate, and a gradient of the result, drawn on the CPU and rounded to the dtype."""
    draw = torch.Generator().manual_seed(length)
    return torch.randn(3, 2, 6, length, generator=draw, dtype=torch.float64).to(dtype).unbind(0)


@on_every_device
@pytest.mark.parametrize("dtype, bound", [(torch.float64, 1e-13), (torch.float32, 2e-6), (torch.bfloat16, 4e-3)])
@pytest.mark.parametrize("length", LENGTHS)
def test_convolution_and_gradients(device, length, dtype, bound):
    v, g, dr = streams(length, dtype)
    exact = [x.double().requires_grad_() for x in (v, g)]
    expected = causal_conv_direct(*exact)
    expected = (expected, *torch.autograd.grad(expected, exact, dr.double()))
    inputs = [x.to(device).requires_grad_() for x in (v, g)]
    for conv in (causal_conv_fft, causal_conv_right_angle):
        r = conv(*inputs)
        assert r.dtype == dtype and r.device.type == device
        for a, b in zip((r, *torch.autograd.grad(r, inputs, dr.to(device))), expected, strict=True):
            assert error(a, b) < bound


@on_every_device
@pytest.mark.parametrize("backend", ["blocked", "flex", "flash"])
def test_window_attention_in_bfloat16(device, backend):
    if backend != "blocked" and device == "cpu":
        pytest.skip("needs a CUDA GPU" if backend == "flash" else "FlexAttention has no backward pass on a CPU")
    if backend == "flash":
        pytest.importorskip("flash_attn", reason="needs the flash-attn package")
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(4, 2, 3, 1000, 64, generator=draw).bfloat16()
    *qkv, dy = inputs.unbind(0)
    exact = [x.double().requires_grad_() for x in qkv]
    distance = torch.arange(1000)[:, None] - torch.arange(1000)
    seen = (distance >= 0) & (distance < 256)
    expected = torch.nn.functional.scaled_dot_product_attention(*exact, attn_mask=seen)
    expected = (expected, *torch.autograd.grad(expected, exact, dy.double()))
    given = [x.to(device).requires_grad_() for x in qkv]
    found = sliding_window_attention(*given, 256, backend)
    for a, b in zip((found, *torch.autograd.grad(found, given, dy.to(device))), expected, strict=True):
        assert error(a, b) < 1e-2


@on_every_device
@pytest.mark.parametrize("autocast, bound", [(False, 1e-5), (True, 0.1)])
@pytest.mark.parametrize("changes", [{}, dict(pre_conv=False, gate="single_stage")])
def test_a_fourier_layer(device, changes, autocast, bound):
    torch.manual_seed(0)
    layer = MultiHeadFourier(64, 4, **changes)
    x, dy = torch.randn(2, 2, 300, 64)
    results = []
    for dtype, place in ((torch.float64, "cpu"), (torch.float32, device)):
        module, input_ = copy.deepcopy(layer).to(place, dtype), x.to(place, dtype).requires_grad_()
        with torch.autocast(place, torch.bfloat16, enabled=autocast and dtype == torch.float32):
            y = module(input_)
        results.append([y, *torch.autograd.grad(y, [input_, *module.parameters()], dy.to(y))])
    for expected, found in zip(*results, strict=True):
        assert error(found, expected) < bound


def test_on_a_gpu_the_taps_are_no_convolution_of_the_library():
    """Which would round to TF32; a tensor that says it is on a GPU is enough to see it."""
    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            called.append(str(function))
            return function(*args, **(kwargs or {}))

    class Elsewhere(torch.Tensor):
        is_cuda = True

    conv, x, called = ShortConv(6, 6, 3, groups=6, bias=False), torch.randn(2, 6, 9), []
    with Watch():
        found = conv(x.as_subclass(Elsewhere))
    assert "aten.addcmul.default" in called and not [name for name in called if "conv" in name]
    assert torch.allclose(found, torch.nn.functional.conv1d(x, conv.weight, groups=6), atol=1e-6)


@pytest.mark.compile
@on_every_device
@pytest.mark.parametrize("options_for", ["cpu", "cuda"])
def test_compiled_under_autocast_without_a_graph_break(device, options_for, compiler, monkeypatch):
    """By bfloat16's rounding the embedding's gradient differs by 1e-3, others, sums that nearly cancel, by some 3e-2.

    The window is shorter than the text, so that attention has its first block and the others.
    """
    monkeypatch.setitem(BLOCK_OPTIONS, device, BLOCK_OPTIONS.get(options_for))
    torch.compiler.reset()
    torch.manual_seed(0)
    plain = Caracal(CaracalConfig(300, 32, 3, 4, window_size=16)).to(device)
    tokens = torch.randint(300, (2, 130), device=device)
    results = []
    for kind in ("no", "blocks"):
        plain.compile_loss(kind)
        torch._dynamo.utils.counters.clear()
        with torch.autocast(device, torch.bfloat16):
            loss = plain.loss(tokens, tokens.roll(-1, 1))
        results.append([loss, *torch.autograd.grad(loss, list(plain.parameters()))])
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 3
    assert not torch._dynamo.utils.counters["graph_break"]
    names = ["loss", *dict(plain.named_parameters())]
    for name, a, b in zip(names, *results, strict=True):
        assert error(b, a) < (1e-2 if name in ("loss", "embedding.weight") else 5e-2), name


@on_every_device
@pytest.mark.parametrize("convolution", ["relaxed", "dot_product"])
@pytest.mark.parametrize("dtype, bound", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_decoding_equals_the_parallel_pass(device, convolution, dtype, bound):
    torch.manual_seed(0)
    model = Caracal(CaracalConfig(40, 16, 4, 2, window_size=6, embedding_std=0.05, init_std=0.1))
    model = model.to(device, dtype).eval()
    tokens = torch.randint(40, (3, 120), device=device)
    caches = model.new_caches(3, 120, convolution)
    with torch.inference_mode():
        found = torch.cat([model.logits(tokens[:, :37], caches),
                           *(model.logits(tokens[:, t:t + 1], caches) for t in range(37, 120))], dim=1)
        assert error(found, model.logits(tokens)) < bound
    drawn = model.generate(tokens[:, :5], 20, temperature=0.0)
    assert drawn.device.type == device and torch.equal(drawn, model.generate(tokens[:, :5], 20, temperature=0.0))
    assert torch.equal(model.generate(tokens[:, :5], 9, seed=3), model.generate(tokens[:, :5], 9, seed=3))


@on_every_device
def test_loaded_where_it_is_asked_for(device, tmp_path):
    """Ids in lists and text go to the model by themselves; a tensor that is elsewhere is told where to go."""
    torch.manual_seed(0)
    model = Caracal(CaracalConfig(256, 16, 3, 2, window_size=6, init_std=0.1, embedding_std=0.1))
    model.tokenizer = ByteTokenizer()
    model.save_pretrained(tmp_path)
    best = find_device("auto").type
    assert Caracal.from_pretrained(tmp_path).embedding.weight.device.type == best
    loaded = Caracal.from_pretrained(tmp_path, device=device, dtype=torch.float64)
    assert {(p.device.type, p.dtype) for p in loaded.parameters()} == {(device, torch.float64)}
    greedy = model.double().generate([[72, 105]], 20, temperature=0.0, stop=0)[0].tolist()
    assert loaded.generate([[72, 105]], 20, temperature=0.0, stop=0)[0].tolist() == greedy
    expected = ByteTokenizer().decode(i for i in greedy if i)
    assert loaded.generate_text("Hi", 20, temperature=0.0) == expected.rstrip("\ufffd")
    if device != "cpu":
        with pytest.raises(ValueError, match="give prompt.to"):
            loaded.generate(torch.tensor([[72, 105]]), 20)


@on_every_device
def test_a_run_learns_stops_and_goes_on(device, tmp_path):
    """On a GPU sums may be taken in another order each time: the curves agree to rounding, not to the bit."""
    options = dict(context=64, batch_size=8, micro_batch_size=4, tokens=12 * 8 * 64, corpus_tokens=800_000,
                   eval_every=6, eval_windows=4, progress=False, device=device, prompt="The ")
    whole = Trainer(TrainConfig.for_preset("nano", **options)).run()
    first = Trainer(TrainConfig.for_preset("nano", out=tmp_path / "run", **options))
    first.run(until=5)
    second = Trainer(TrainConfig.for_preset("nano", out=tmp_path / "run", **options))
    assert second.step == 5 and next(second.model.parameters()).device.type == device
    log = second.run()
    losses = torch.tensor([[e["loss"] for e in entries] for entries in (log, whole)])
    assert losses[0, -1] < losses[0, 0] - 0.5
    assert (losses[0] - losses[1]).abs().max() < (0.02 if device == "cuda" else 1e-6)
    assert isinstance(log[-1]["sample"], str) and log[-1]["validation_loss"] < losses[0, 0]
    assert Caracal.from_pretrained(tmp_path / "run" / "model", device="cpu").tokenizer.name == "byte"
