"""What decays, what Muon steps, and that a run with it goes on as one with AdamW does."""

import pytest
import torch
from small_run import config, corpus, losses

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


def test_muon_steps_the_matrices_between_the_layers_and_adamw_the_rest():
    with Trainer(config(optimizer="muon"), corpus()) as trainer:
        muon, decaying, others = ({names[id(p)] for p in group["params"]} for names in
                                  [{id(p): name for name, p in trainer.model.named_parameters()}]
                                  for group in trainer.optimizer.param_groups)
        shapes = {name: p.shape for name, p in trainer.model.named_parameters()}
    kinds = {name.partition(".")[2].partition(".")[2] for name in muon}
    assert muon == {name for name, shape in shapes.items() if len(shape) == 2} - {"embedding.weight"}
    assert {"mixer.to_value.weight", "mixer.to_gate.weight", "mixer.to_out.weight"} < kinds
    assert decaying > {"embedding.weight", "blocks.0.mixer.gate_mix.weight", "blocks.0.mixer.pre_conv.weight"}
    assert others == {name for name, shape in shapes.items() if len(shape) == 1}
    assert [group["weight_decay"] for group in trainer.optimizer.param_groups] == [0.1, 0.1, 0.0]


@pytest.mark.parametrize("architecture", ["llama", "mamba"])
def test_muon_leaves_the_embedding_of_a_baseline_and_the_rates_of_mamba(architecture):
    pytest.importorskip("transformers")
    with Trainer(config(architecture=architecture, optimizer="muon"), corpus()) as trainer:
        by_muon = {id(p) for p in trainer.optimizer.param_groups[0]["params"]}
    left = {name for name, p in trainer.model.named_parameters() if p.ndim == 2 and id(p) not in by_muon}
    assert left and all("embed" in name or name.endswith("A_log") for name in left)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch before 2.9 has no Muon to compare with")
def test_muon_takes_the_step_that_torch_takes():
    """Against the two optimizers of torch, side by side, on the same gradients and rates."""
    with Trainer(config(optimizer="muon", weight_decay=0.3), corpus()) as trainer:
        groups = [[torch.nn.Parameter(p.detach().clone()) for p in group["params"]]
                  for group in trainer.optimizer.param_groups]
        muon = torch.optim.Muon(groups[0], lr=3e-3, weight_decay=0.3, adjust_lr_fn="match_rms_adamw")
        trainer.optimizer._muon.dtype = torch.bfloat16  # the only one that torch has
        adamw = torch.optim.AdamW([{"params": groups[1], "weight_decay": 0.3},
                                   {"params": groups[2], "weight_decay": 0.0}], lr=3e-3, betas=(0.9, 0.95), fused=True)
        for step in range(3):
            for group in (*trainer.optimizer.param_groups, *muon.param_groups, *adamw.param_groups):
                group["lr"] = 3e-3 * (step + 1)
            for twins, group in zip(groups, trainer.optimizer.param_groups, strict=True):
                for twin, parameter in zip(twins, group["params"], strict=True):
                    parameter.grad = torch.randn_like(parameter)
                    twin.grad = parameter.grad.clone()
            for optimizer in (trainer.optimizer, muon, adamw):
                optimizer.step()
        for twins, group in zip(groups, trainer.optimizer.param_groups, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(twins, group["params"], strict=True))


def test_a_run_with_muon_goes_on_bit_for_bit(tmp_path):
    with Trainer(config(optimizer="muon"), corpus()) as trainer:
        whole = trainer.run()
    with Trainer(config(tmp_path, optimizer="muon"), corpus()) as trainer:
        trainer.run(until=4)
    with Trainer(config(tmp_path, optimizer="muon"), corpus()) as again:
        assert again.step == 4
        assert losses(again.run()) == losses(whole)
    assert whole[-1]["loss"] < 0.7 * whole[0]["loss"]


def test_another_optimizer_does_not_go_on_with_a_run(tmp_path):
    with Trainer(config(tmp_path), corpus()) as trainer:
        trainer.run(until=4)
    with pytest.raises(ValueError, match="holds a run with optimizer='adamw', now 'muon'"):
        Trainer(config(tmp_path, optimizer="muon"), corpus())


def test_the_rate_of_every_group_follows_the_schedule_down_to_zero():
    with Trainer(config(optimizer="muon", final_fraction=0.0), corpus()) as trainer:
        for step in (1, 6, 12):
            entry = trainer.run(until=step)[-1]
            assert {group["lr"] for group in trainer.optimizer.param_groups} == {entry["learning_rate"]}
    assert entry["learning_rate"] < 0.03 * trainer.config.learning_rate
