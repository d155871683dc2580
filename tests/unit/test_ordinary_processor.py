"""A processor without units for bfloat16: nothing computes a product in 16 bits there unless it is told to."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from caracal_min import Caracal
from caracal_min.data import Corpus
from caracal_min.precision import has_bfloat16, resolve_precision
from caracal_min.training import TrainConfig, Trainer
from caracal_min.training.optimizer import orthogonalize

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "convolution", "_scaled_dot_product", "linear")
HALF = (torch.bfloat16, torch.float16)


class Products(TorchDispatchMode):
    """Count matrix products, and those of 16-bit numbers."""

    def __init__(self):
        super().__init__()
        self.all = self.half = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.__name__.startswith(PRODUCTS):
            self.all += 1
            self.half += any(isinstance(x, torch.Tensor) and x.dtype in HALF for x in args)
        return function(*args, **(kwargs or {}))


@pytest.fixture
def ordinary(monkeypatch):
    """PyTorch reports a processor with AVX2 alone, as it does under ATEN_CPU_CAPABILITY=avx2."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")


@pytest.mark.parametrize("units, capability, has", [
    ({"amx_bf16": True}, "AVX512", True), ({"amx_bf16": False, "avx512_bf16": True}, "AVX512", True),
    ({"amx_bf16": True}, "AVX2", False), ({"avx512_f": True}, "AVX512", False)])
def test_a_processor_has_bfloat16_if_it_has_units_and_pytorch_uses_them(units, capability, has, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: units, raising=False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert has_bfloat16("cpu") is has
    assert resolve_precision("auto", "cpu") == (torch.bfloat16 if has else torch.float32)
    with Products() as products:
        orthogonalize(torch.randn(8, 4))
    assert products.half == (products.all if has else 0) and products.all


def test_training_and_writing_have_no_product_in_16_bits(ordinary):
    micro = Caracal.from_pretrained("micro", device="cpu")
    config = TrainConfig.for_preset("nano", optimizer="muon", tokens=4 * 64, context=32, batch_size=2,
                                    micro_batch_size=2, eval_windows=2, precision="auto", device="cpu", progress=False)
    corpus = Corpus.from_texts([f"document {i}, and some words" for i in range(100)])
    with Products() as products:
        micro.generate_text("The history of", 4, temperature=0.0)
        Trainer(config, corpus).run()
    assert products.all > 1000 and products.half == 0
