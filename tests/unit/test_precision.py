"""Which device and precision are taken, and that training in each follows the same curve."""

import numpy as np
import pytest
import torch

from caracal_min import Caracal
from caracal_min.config import PRECISIONS
from caracal_min.data import load_corpus
from caracal_min.precision import autocast, find_device, resolve_precision


@pytest.mark.parametrize("cuda, mps, expected", [(True, True, "cuda"), (False, True, "cpu"), (False, False, "cpu")])
def test_auto_takes_cuda_else_the_cpu_and_mps_by_name_alone(cuda, mps, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    asked = []
    monkeypatch.setattr(torch, "zeros", lambda size, device: asked.append(device))
    assert find_device("auto").type == expected and asked == [expected]


def test_a_device_that_is_not_there_and_another_word_get_one_line():
    with pytest.raises(ValueError, match=r"device='cuda:99' cannot be used here \(.*\); give auto, cpu") as caught:
        find_device("cuda:99")
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="unknown precision 'half'; accepted: auto, bfloat16, float16, float32$"):
        resolve_precision("half", "cpu")


@pytest.mark.parametrize("units, expected", [(True, torch.bfloat16), (False, torch.float16)])
def test_a_gpu_without_bfloat16_units_takes_float16(units, expected, monkeypatch):
    """A T4 emulates bfloat16, which does not count."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: units or including_emulation)
    assert resolve_precision("auto", "cuda") == expected


def test_products_are_done_in_the_precision_and_the_rest_is_not():
    x = torch.randn(4, 4)
    for name in PRECISIONS[1:]:
        with autocast("cpu", resolve_precision(name, "cpu")):
            assert (x @ x).dtype == getattr(torch, name) and (x + x).dtype == torch.float32


def curve(precision: str) -> np.ndarray:
    """The losses of 100 steps on text of the package."""
    torch.manual_seed(0)
    model = Caracal.from_preset("nano", n_layers=3, d_model=32, n_heads=2)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    text = torch.from_numpy(load_corpus("embedded", max_tokens=100_000, progress=False).train.astype(np.int64))
    losses = []
    for batch in text[:100 * 4 * 33].view(100, 4, 33):
        with autocast("cpu", resolve_precision(precision, "cpu")):
            loss = model.loss(batch[:, :-1], batch[:, 1:])
        optimizer.zero_grad()
        (loss * 1024).backward()  # as a scaler does for float16
        for p in model.parameters():
            p.grad /= 1024
        optimizer.step()
        losses.append(loss.item())
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    return np.array(losses)


@pytest.mark.slow
def test_the_curve_is_that_of_float32_within_noise():
    """Noise: how far the losses of one curve scatter around their own running mean."""
    smooth = {name: np.convolve(found, np.ones(20) / 20, "valid")
              for name in PRECISIONS[1:] for found in [curve(name)]}
    exact = curve("float32")
    assert exact[-20:].mean() < exact[:5].mean() - 1
    noise = (exact[10:-9] - smooth["float32"]).std()
    for name in ("bfloat16", "float16"):
        assert 0 < np.abs(smooth[name] - smooth["float32"]).max() < noise, name
