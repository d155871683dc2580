"""The cost model: its weights are the model's, its products those that PyTorch counts."""

from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from caracal_book.numbers.cost import (
    DEVICES,
    PARTS,
    Cost,
    Device,
    Pass,
    forward,
    mixers,
    total,
    training,
)
from caracal_book.rivals import baseline_of, make_model
from caracal_min import Caracal, CaracalConfig, loss, spectral
from caracal_min.config import PRESETS
from caracal_min.spectral import fast_length
from caracal_min.training import flops_per_token

TINY = PRESETS["tiny"]
PURE = replace(TINY, fourier_per_attention=None)
SMALL = CaracalConfig(300, 64, 7, 4, window_size=16)
VARIANTS = {"2:1": SMALL, "pure": replace(SMALL, fourier_per_attention=None), "no taps": replace(SMALL, pre_conv=False),
            "one stage": replace(SMALL, gate="single_stage"), "1:1": replace(SMALL, fourier_per_attention=1)}


def weights(size, architecture="caracal"):
    """The weights that a pass reads: the bytes that vanish when many tokens share them."""
    one, many = (total(forward(size, 64, architecture, Pass(tokens=n, bytes_each=1))).bytes for n in (1, 2))
    return 2 * (one - many)


@pytest.mark.parametrize("size", [*VARIANTS.values(), TINY], ids=[*VARIANTS, "tiny"])
def test_every_weight_is_in_one_part(size):
    with torch.device("meta"):
        assert weights(size) == Caracal(size).num_parameters()
    parts = forward(size, 64)
    mixing = ("convolution", "attention")
    assert sum(parts[p].operations for p in PARTS if p not in mixing) == 2 * weights(size)


@pytest.mark.parametrize("size", [*VARIANTS.values(), replace(SMALL, gate_length=20), TINY],
                         ids=[*VARIANTS, "cut", "tiny"])
def test_operations_are_those_that_the_training_counts(size):
    with torch.device("meta"):
        model = Caracal(size)
    for length in (1, 48, 5000):
        assert flops_per_token(model, length) == pytest.approx(3 * total(forward(size, length)).operations, rel=1e-12)


def test_llama_has_the_weights_of_the_baseline():
    pytest.importorskip("transformers")
    for preset in ("nano", "tiny", "large"):
        with torch.device("meta"):
            llama = make_model("llama", preset)
        assert weights(PRESETS[preset], "llama") == llama.num_parameters()


@pytest.mark.parametrize("size", VARIANTS.values(), ids=VARIANTS)
def test_products_are_those_that_torch_counts(size):
    tokens, parts = torch.zeros(2, 48, dtype=torch.long), forward(size, 48)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        Caracal(size).logits(tokens)
    counted = {str(op).removeprefix("aten."): n for op, n in counter.get_flop_counts()["Global"].items()}
    taps = counted.pop("convolution", 0)
    products = sum(parts[p].operations for p in ("output", "mlp", "projections", "gate mix"))
    scores = sum(n for op, n in counted.items() if "attention" in op)
    assert sum(counted.values()) - scores == 96 * products
    assert taps == 96 * 6 * size.d_model * mixers(size)["fourier"] * size.pre_conv


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("length", [512, 1000])
def test_bytes_of_a_convolution_are_those_that_its_operator_moves(length, dtype):
    dr, v, g = torch.randn(3, 4, length).to(dtype)
    how, channels = Pass(tokens=2**60, bytes_each=dtype.itemsize, cuda=False), 12 * 512
    ahead, step = (run(PURE, length, how=how)["convolution"].bytes for run in (forward, training))
    for steps, streams, counted in ((spectral.convolve, (v, g), ahead),
                                    (spectral.convolve_backward, (dr, v, g), step - ahead)):
        with Traffic() as seen:
            steps(*streams)  # inside the operator, where a mode around it does not look
        assert sum(seen.bytes.values()) / v.numel() == pytest.approx(counted / channels, rel=0.005)


class Traffic(TorchDispatchMode):
    """Bytes that operators read and write beside the weights, by the part that they belong to."""

    def __init__(self, *weights):
        super().__init__()
        self.weights = {p.untyped_storage().data_ptr() for p in weights}
        self.bytes = dict.fromkeys(("products", "attention", "convolution", "small operators"), 0)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made, name = function(*args, **(kwargs or {})), str(function)
        free = ("view", "empty", "alias", "detach", "prim", "zeros", "ones")
        few = ("index", "gather")  # of a tensor they meet little
        if not function.is_view and not any(word in name for word in free + few):
            part = next((part for part, word in (("attention", "attention"), ("convolution", "causal_conv"),
                                                 ("products", "mm.default")) if word in name), "small operators")
            met = {id(x): x for x in torch.utils._pytree.tree_leaves((args, kwargs, made))
                   if isinstance(x, torch.Tensor)}
            self.bytes[part] += sum(x.nbytes for x in met.values()
                                    if not self.weights or x.untyped_storage().data_ptr() not in self.weights)
            if any(word in name for word in ("mul_", "add_", "sub_")):  # in place: its first argument is also written
                self.bytes[part] += args[0].nbytes
            if kwargs and "out" in kwargs and kwargs["out"] is args[0]:
                self.bytes[part] += args[0].nbytes
        return made


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["pure", "hybrid", "no taps", "one stage", "llama", "llama, one norm"])
def test_bytes_one_by_one_are_those_of_operators_that_run(name, dtype):
    fused_norms, name = name.endswith("one norm"), name.split(",")[0]
    size = replace({"hybrid": SMALL, "llama": SMALL}.get(name) or VARIANTS[name], d_model=128, window_size=64)
    if name == "llama":
        pytest.importorskip("transformers")
    model = (baseline_of("llama", size) if name == "llama" else Caracal(size)).to(dtype).eval()
    if fused_norms:
        norms = [path for path, module in model.named_modules() if type(module).__name__ == "LlamaRMSNorm"]
        assert len(norms) == 2 * size.n_layers + 1
        for path in norms:  # PyTorch takes its RMSNorm apart on a CPU; a layer norm moves as much
            model.set_submodule(path, torch.nn.LayerNorm(128, bias=False, dtype=dtype))
    with torch.no_grad(), Traffic(*model.parameters()) as seen:
        model.logits(torch.zeros(4, 64, dtype=torch.long))  # one window: attention is one operator
    how = Pass(tokens=2**60, bytes_each=dtype.itemsize, fused=True, fused_norms=fused_norms)
    parts = forward(size, 64, "llama" if name == "llama" else "caracal", how)
    counted = {part: parts[part].bytes for part in ("attention", "convolution", "small operators")}
    counted["products"] = sum(parts[part].bytes for part in ("output", "mlp", "projections", "gate mix"))
    # Statistics of norms, ids and, beside attention, sums of exponentials.
    assert {part: n / 256 for part, n in seen.bytes.items()} == pytest.approx(counted, rel=0.035)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["pure", "hybrid", "no taps", "one stage", "llama"])
def test_bytes_of_a_training_step_under_autocast_are_those_of_operators_that_run(name, dtype, monkeypatch):
    """Of tensors without memory, 4,096 tokens in windows: residuals, casts, softmax and what is computed again."""
    monkeypatch.setattr(loss, "_require_targets", lambda *given: None)
    monkeypatch.setattr(loss, "_CACHED", 1 << 40)
    monkeypatch.setattr(Caracal, "require_tokens", lambda self, ids, *name: ids)
    monkeypatch.setattr(Caracal, "_warn_if_unshifted", lambda *given, **named: None)
    size = replace(VARIANTS.get(name, SMALL), vocab_size=5000, d_model=128, window_size=64)
    if name == "llama":
        pytest.importorskip("transformers")
    with FakeTensorMode(), Traffic() as seen, torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        model = baseline_of("llama", size) if name == "llama" else Caracal(size)
        seen.bytes = dict.fromkeys(seen.bytes, 0)
        model.loss(*torch.zeros(2, 64, 64, dtype=torch.long)).backward()
    how = Pass(tokens=4096, bytes_each=dtype.itemsize, fused=True, autocast=True)
    kind = "llama" if name == "llama" else "caracal"
    step, ahead = training(size, 64, kind, how), forward(size, 64, kind, how)
    counted = {part: step[part].bytes for part in ("attention", "convolution")}
    counted["products"] = sum(3 * ahead[part].bytes for part in ("output", "mlp", "projections", "gate mix"))
    counted["small operators"] = (total(step).bytes - sum(counted.values())  # of these, AdamW is not run
                                  - 28 * model.num_parameters() / 4096)
    found = {part: n / 4096 for part, n in seen.bytes.items()}
    assert found == pytest.approx(counted, rel=0.1 if name == "llama" else 0.025)


def test_on_a_gpu_an_inverse_copies_its_spectrum_and_scales_its_result():
    # A spectrum is as large as N numbers in float32: read and written; then N results, read and written.
    inverse = 12 * 512 * 4 * 4 * fast_length(1023) / 512
    for run, inverses in ((forward, 1), (training, 3)):
        gpu, least = (run(PURE, 512, how=Pass(cuda=cuda))["convolution"].bytes for cuda in (True, False))
        assert gpu - least == pytest.approx(inverses * inverse)


def test_a_device_is_bound_by_the_slower_of_two_counts():
    device = Device(products=100.0, vector=10.0, bandwidth=5.0)
    assert device.seconds("mlp", Cost(200, 5)) == 2 and device.bound("mlp", Cost(200, 5)) == "compute"
    assert device.seconds("mlp", Cost(200, 50)) == 10 and device.bound("mlp", Cost(200, 50)) == "bandwidth"
    assert device.seconds("convolution", Cost(200, 5)) == 20
    assert Cost(200, 5).intensity == 40
    assert all(d.products > d.vector > d.bandwidth > 0 for d in DEVICES.values())
