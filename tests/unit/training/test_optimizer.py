"""What decays, and what does not."""

import pytest
import torch
from small_run import config, corpus

from caracal_book.experiments.mixers import make_mixer
from caracal_min.training import Trainer
from caracal_min.training.optimizer import decays
from caracal_min.zoo.registry import ARCHITECTURES, make_model


def decaying(model):
    return {name for name, p in model.named_parameters() if decays(name, p)}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_matrices_decay_and_the_rates_of_mamba_do_not(architecture):
    if architecture != "caracal":
        pytest.importorskip("transformers")
    with torch.device("meta"):
        model = make_model(architecture, "nano")
    shapes = {name: p.shape for name, p in model.named_parameters()}
    left = {name for name, shape in shapes.items() if len(shape) >= 2} - decaying(model)
    rates = {name for name, shape in shapes.items() if name.endswith("A_log") and len(shape) == 2}
    assert left == rates and bool(rates) is (architecture in ("mamba", "jamba"))
    assert not [name for name in decaying(model) if len(shapes[name]) < 2]


@pytest.mark.parametrize("name", ["static", "gated-static"])
def test_a_kernel_as_long_as_the_text_does_not_decay(name):
    mixer = make_mixer(name, 8, 2, 16, 4)
    kernels = {name for name, _ in mixer.named_parameters() if name.rpartition(".")[2] == "kernel"}
    assert len(kernels) == 1 and not kernels & decaying(mixer)
    assert {name for name, p in mixer.named_parameters() if p.ndim >= 2} - kernels == decaying(mixer)


def test_the_groups_of_the_optimizer_are_these():
    pytest.importorskip("transformers")
    with Trainer(config(architecture="mamba"), corpus()) as trainer:
        first, second = trainer.optimizer.param_groups
    names = {id(p): name for name, p in trainer.model.named_parameters()}
    assert {names[id(p)] for p in first["params"]} == decaying(trainer.model)
    assert {names[id(p)] for p in second["params"]} == set(names.values()) - decaying(trainer.model)
    assert (first["weight_decay"], second["weight_decay"]) == (0.1, 0.0)
