"""What decays, what Muon steps, and that its step is the one that PyTorch's takes."""

import pytest
import torch
from small_run import config

from caracal_min import Caracal
from caracal_min.training import optimizer as module
from caracal_min.training.optimizer import decays, make_optimizer, orthogonalize


def groups(**changes):
    """The names in each group of an optimizer of nano, and what all groups say."""
    model = Caracal.from_preset("nano")
    names = {id(p): name for name, p in model.named_parameters()}
    made = make_optimizer(model, config(**changes))
    return model, [({names[id(p)] for p in g["params"]}, g["weight_decay"])
                   for g in made.param_groups]


def test_matrices_decay_and_vectors_do_not():
    model, ((matrices, decay), (vectors, none)) = groups()
    assert (decay, none) == (0.1, 0.0)
    assert vectors == {name for name, p in model.named_parameters() if p.ndim < 2}
    assert matrices | vectors == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("name, expected", [
    ("blocks.0.mixer.to_out.weight", True), ("blocks.0.mixer.A_log", False),
    ("mixer.kernel", False)])
def test_rates_of_mamba_and_kernels_as_long_as_the_text_do_not_decay(name, expected):
    assert decays(name, torch.nn.Parameter(torch.zeros(4, 4))) is expected


def test_muon_steps_the_matrices_between_the_layers_and_adamw_the_rest():
    model, ((muon, _), (matrices, _), (vectors, _)) = groups(optimizer="muon")
    shapes = {name: p.shape for name, p in model.named_parameters()}
    hidden = {name for name, shape in shapes.items() if len(shape) == 2} - {"embedding.weight"}
    assert muon == hidden and "blocks.0.mixer.to_gate.weight" in muon
    assert {"embedding.weight", "blocks.0.mixer.gate_mix.weight",
            "blocks.0.mixer.pre_conv.weight"} < matrices
    assert vectors == {name for name, shape in shapes.items() if len(shape) == 1}


@pytest.mark.parametrize("shape", [(20, 50), (50, 20), (16, 16)])
def test_an_orthogonalized_matrix_keeps_its_singular_vectors(shape):
    torch.manual_seed(0)
    matrix = torch.randn(shape)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    values = u.T @ orthogonalize(matrix).float() @ v.T
    assert 0.5 < values.diag().min() and values.diag().max() < 1.3
    assert (values - values.diag().diag()).abs().max() < 0.05


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch before 2.9 has no Muon")
def test_muon_takes_the_step_that_torch_takes(monkeypatch):
    """Against the two optimizers of torch, on the same gradients and rates."""
    monkeypatch.setattr(module, "has_bfloat16", lambda device: True)  # the only type that torch has
    torch.manual_seed(0)
    ours = make_optimizer(Caracal.from_preset("nano"), config(optimizer="muon", weight_decay=0.3))
    hidden, matrices, vectors = ([torch.nn.Parameter(p.detach().clone()) for p in group["params"]]
                                 for group in ours.param_groups)
    muon = torch.optim.Muon(hidden, lr=3e-3, weight_decay=0.3, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.3},
                               {"params": vectors, "weight_decay": 0.0}],
                              betas=(0.9, 0.95), fused=True)
    pairs = list(zip([*hidden, *matrices, *vectors],
                     [p for group in ours.param_groups for p in group["params"]], strict=True))
    for step in range(3):
        for group in (*ours.param_groups, *muon.param_groups, *adamw.param_groups):
            group["lr"] = 3e-3 * (step + 1)
        for twin, parameter in pairs:
            parameter.grad = torch.randn_like(parameter)
            twin.grad = parameter.grad.clone()
        for optimizer in (ours, muon, adamw):
            optimizer.step()
    assert all(torch.equal(twin, parameter) for twin, parameter in pairs)
