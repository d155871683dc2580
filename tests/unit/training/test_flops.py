"""Operations per token against those that PyTorch counts, and the devices whose peak is known."""

import pytest
import torch

from caracal_min.training import flops_per_token, peak_flops
from caracal_min.zoo import make_model


def multiplications(model, tokens):
    """Count two operations for every weight of a matrix product, with torch's own counter."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.logits(tokens)
    return counter.get_total_flops()


@pytest.mark.parametrize("architecture", ["caracal", "llama"])
def test_flops_agree_with_those_that_torch_counts(architecture):
    """Torch counts no FFT, no attention on a CPU and no 3-tap convolution of ours: the matrix products remain."""
    model = make_model(architecture, "nano", vocab_size=1000)
    counted = 3 * multiplications(model, torch.zeros(1, 64, dtype=torch.int64)) / 64
    ours = flops_per_token(model, 64)
    assert 0.9 * ours < counted < 1.15 * ours


def test_flops_grow_as_the_mixers_do():
    with torch.device("meta"):
        models = [make_model(a, "tiny", v) for a, v in (("llama", "default"), ("caracal", "default"),
                                                        ("caracal", "no-swa"))]
    llama, ours, pure = ([flops_per_token(model, length) for length in (512, 8192)] for model in models)
    assert llama[1] - llama[0] == 3 * 12 * 4 * 512 * (8192 - 512) / 2
    assert ours[1] < 1.02 * ours[0] and pure[1] < 1.02 * pure[0]
    assert 6 * 62_494_208 < ours[0] < 1.05 * 6 * 62_494_208
    for scan in ("mamba", "mamba2", "jamba"):
        assert flops_per_token(make_model(scan, "nano"), 64) is None


def test_a_cut_gate_costs_no_more_per_token_however_long_the_text():
    with torch.device("meta"):
        whole, cut = (make_model(preset="tiny", gate_length=n) for n in (None, 512))
    assert flops_per_token(cut, 512) == flops_per_token(whole, 512)
    near, far = (flops_per_token(cut, 512 * n) for n in (256, 1024))
    assert far == pytest.approx(near, rel=1e-3) and far < 0.96 * flops_per_token(whole, 512 * 1024)


def test_peaks_are_known_for_gpus_only(monkeypatch):
    assert peak_flops(torch.device("cpu")) is None
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    assert peak_flops(torch.device("cuda")) == 989e12
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA L4")
    assert peak_flops(torch.device("cuda")) == 121e12
    for other in ("an unknown GPU", "NVIDIA H100 NVL", "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
                  "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3090 Ti"):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device, other=other: other)
        assert peak_flops(torch.device("cuda")) is None
