"""Which precision a device computes in, and that training in each follows the same curve."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from caracal_min.choices import PRECISIONS
from caracal_min.data import load_corpus
from caracal_min.precision import autocast, find_device, resolve_precision
from caracal_min.training import TrainConfig, Trainer


def test_a_processor_is_asked_for_its_units(monkeypatch):
    for has, expected in (({"amx_bf16": True, "avx2": True}, torch.bfloat16), ({"avx512_bf16": True}, torch.float32),
                          ({"avx2": True, "amx_bf16": False}, torch.float32), ({}, torch.float32)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda has=has: has, raising=False)
        assert resolve_precision("auto", "cpu") == expected
    monkeypatch.delattr(torch.cpu, "get_capabilities")  # as in a version that cannot say
    assert resolve_precision("auto", "cpu") == torch.float32


@pytest.mark.parametrize("cuda, mps, expected", [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")])
def test_auto_takes_cuda_then_mps_then_the_cpu(cuda, mps, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    asked = []
    monkeypatch.setattr(torch, "zeros", lambda size, device: asked.append(device.type) or torch.ones(size))
    assert find_device("auto").type == expected and asked == [expected]


@pytest.mark.parametrize("units, expected", [(True, torch.bfloat16), (False, torch.float16)])
def test_a_gpu_without_bfloat16_units_takes_float16(units, expected, monkeypatch):
    """A T4 emulates bfloat16, which does not count."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: units or including_emulation)
    assert resolve_precision("auto", "cuda") == expected


def test_what_is_asked_for_is_given_and_other_words_are_refused():
    for name in PRECISIONS[1:]:
        assert resolve_precision(name, "cpu") == getattr(torch, name)
    with pytest.raises(ValueError, match="^precision='half'; accepted: auto, bfloat16, float16, float32$"):
        resolve_precision("half", "cpu")
    assert resolve_precision("auto", "mps") == torch.float32


def test_products_are_done_in_the_precision_and_the_rest_is_not():
    x = torch.randn(4, 4)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        with autocast("cpu", dtype):
            assert (x @ x).dtype == dtype and (x + x).dtype == torch.float32


@pytest.fixture(scope="module")
def curves():
    """The losses of 200 steps of a small model, by precision, and its trainers."""
    corpus = load_corpus("embedded", "byte", max_tokens=500_000, progress=False)
    found = {}
    for name in ("float32", "bfloat16", "float16"):
        config = TrainConfig.for_preset("nano", tokens=200 * 4 * 64, context=64, precision=name, eval_every=200,
                                        progress=False)
        trainer = Trainer(config, corpus)
        found[name] = np.array([entry["loss"] for entry in trainer.run()]), trainer
    return found


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_the_curve_is_that_of_float32_within_noise(name, curves):
    """Noise: how far the losses of one curve scatter around their own running mean."""
    exact, low = curves["float32"][0], curves[name][0]
    assert exact[-20:].mean() < exact[:20].mean() - 1
    smooth = np.convolve(exact, np.ones(20) / 20, "valid")
    noise = (exact[10:-9] - smooth).std()
    distance = np.abs(np.convolve(low, np.ones(20) / 20, "valid") - smooth)
    assert 0 < distance.max() < noise
    held_out = [trainer.log[-1]["validation_loss"] for _, trainer in (curves["float32"], curves[name])]
    assert abs(held_out[0] - held_out[1]) < 0.05


def test_weights_and_moments_stay_in_float32(curves):
    for _, trainer in curves.values():
        assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
        assert {s["exp_avg"].dtype for s in trainer.optimizer.state.values()} == {torch.float32}


def test_float16_scales_its_loss_and_the_scale_survives_a_checkpoint(tmp_path):
    """A scale of 2^40 overflows: steps are skipped, with no update, until it is small enough."""
    corpus = load_corpus("embedded", "byte", max_tokens=500_000, progress=False)
    config = TrainConfig.for_preset("nano", tokens=60 * 2 * 32, context=32, batch_size=2, micro_batch_size=2,
                                    precision="float16", out=tmp_path / "run", progress=False)
    trainer = Trainer(config, corpus)
    trainer.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    before = trainer.model.embedding.weight.clone()
    first = trainer.run(until=1)[0]
    assert first["grad_norm"] is None and first["loss_scale"] == 2.0**40
    assert torch.equal(trainer.model.embedding.weight, before)
    log = trainer.run(until=40)
    scales = [entry["loss_scale"] for entry in log]
    skipped = [entry["grad_norm"] is None for entry in log]
    assert not skipped[-1]
    assert all(b == (a / 2 if s else a) for a, b, s in zip(scales[:-1], scales[1:], skipped[:-1], strict=True))
    assert not torch.equal(trainer.model.embedding.weight, before)
    scale = trainer.scaler.state_dict()
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    expected = [entry["loss"] for entry in trainer.run(until=44)[40:]]
    resumed = Trainer(replace(config, out=tmp_path / "copy"), corpus)
    assert resumed.step == 40 and resumed.scaler.state_dict() == scale
    assert [entry["loss"] for entry in resumed.run(until=44)[40:]] == expected


@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("muon", marks=pytest.mark.skipif(
    not hasattr(torch.optim, "Muon"), reason="this PyTorch has no Muon"))])
def test_a_run_of_float16_goes_on_from_a_checkpoint_before_its_first_update(tmp_path, optimizer):
    """A fused AdamW that the scaler skips has moments of step 0; the whole run is the one in two parts."""
    corpus = load_corpus("embedded", "byte", max_tokens=500_000, progress=False)
    curves = []
    for stops in ((), (4, 13)):
        config = TrainConfig.for_preset("nano", tokens=20 * 2 * 32, context=32, batch_size=2, micro_batch_size=2,
                                        precision="float16", out=tmp_path / str(len(stops)), optimizer=optimizer,
                                        progress=False)
        for until in (*stops, None):
            with Trainer(config, corpus) as trainer:
                if trainer.step == 0:
                    trainer.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
                log = trainer.run(until=until)
                if until == 4:
                    assert {state["step"].item() for state in trainer.optimizer.state.values()} <= {0.0}
        curves.append([(entry["loss"], entry["loss_scale"]) for entry in log])
    assert curves[0] == curves[1] and log[3]["grad_norm"] is None and log[-1]["grad_norm"] is not None


def test_a_run_does_not_change_its_precision(tmp_path):
    corpus = load_corpus("embedded", "byte", max_tokens=500_000, progress=False)
    config = TrainConfig.for_preset("nano", tokens=4 * 2 * 32, context=32, batch_size=2, micro_batch_size=2,
                                    precision="bfloat16", out=tmp_path, progress=False)
    trainer = Trainer(config, corpus)
    trainer.run(until=2)
    trainer.checkpoint()
    other = TrainConfig.for_preset("nano", tokens=4 * 2 * 32, context=32, batch_size=2, micro_batch_size=2,
                                   precision="float32", out=tmp_path, progress=False)
    with pytest.raises(ValueError, match="holds a run with precision='bfloat16', now 'float32'"):
        Trainer(other, corpus)
