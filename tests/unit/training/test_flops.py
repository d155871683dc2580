"""Operations per token against those that PyTorch counts, and the devices whose peak is known."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from caracal_min import Caracal
from caracal_min.training import flops_per_token


def test_flops_agree_with_those_that_torch_counts():
    """Torch counts no FFT, no attention on a CPU and no 3-tap convolution: products remain."""
    model = Caracal.from_preset("nano")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.logits(torch.zeros(1, 64, dtype=torch.int64))
    ours = flops_per_token(model, 64)
    assert 0.9 * ours < 3 * counter.get_total_flops() / 64 < 1.15 * ours


def test_flops_grow_as_the_mixers_do_and_a_cut_gate_costs_no_more():
    with torch.device("meta"):
        whole, cut = (Caracal.from_preset("tiny", gate_length=n) for n in (None, 512))
    near, far = (flops_per_token(whole, length) for length in (512, 8192))
    assert 6 * 62_494_208 < near < 1.05 * 6 * 62_494_208 and near < far < 1.02 * near
    assert flops_per_token(cut, 512) == near
    near, far = (flops_per_token(cut, 512 * n) for n in (256, 1024))
    assert far == pytest.approx(near, rel=1e-3)
    assert far < 0.96 * flops_per_token(whole, 512 * 1024)
