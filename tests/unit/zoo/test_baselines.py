"""The baselines: sizes against Table 2 of the paper, causality, loss, gradients, errors."""

import os
import subprocess
import sys

import pytest
import torch

from caracal_min.evaluation import held_out_loss
from caracal_min.zoo import baselines, make_model
from caracal_min.zoo.baselines import BASELINES

TABLE_2 = {  # millions of parameters, tiny to large
    "llama": (64, 124, 360, 757),
    "mamba": (66, 129, 372, 793),
    "mamba2": (64, 125, 357, 764),
    "jamba": (71, 138, 409, 866),
}
SIZES = ("tiny", "small", "medium", "large")
SIZED = [(name, preset, count) for name, counts in TABLE_2.items() for preset, count in zip(SIZES, counts, strict=True)]


@pytest.fixture(scope="module", params=BASELINES)
def nano(request):
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    return make_model(request.param, "nano")


@pytest.fixture
def tokens():
    return torch.randint(256, (2, 12), generator=torch.Generator().manual_seed(0))


def count(name, preset, vocab_size=None):
    pytest.importorskip("transformers")
    with torch.device("meta"):
        return make_model(name, preset, vocab_size=vocab_size).num_parameters() / 1e6


@pytest.mark.parametrize(("name", "preset", "paper"), SIZED)
def test_parameters_are_those_of_table_2(name, preset, paper):
    """The table is in whole millions, so half of one may be lost; the medium Mamba is 7,000 parameters beyond that."""
    ours = count(name, preset)
    assert ours == pytest.approx(paper, abs=0.508 if (name, preset) == ("mamba", "medium") else 0.5)
    line = next(line for line in baselines.__doc__.splitlines() if line.startswith(f"    {preset} "))
    assert line.split()[1:][2 * BASELINES.index(name):][:2] == [f"{ours:.3f}", str(paper)]


@pytest.mark.parametrize("preset", SIZES)
def test_mamba_rounds_to_table_2_with_the_padded_vocabulary_of_mamba_ssm(preset):
    assert round(count("mamba", preset, 50_264)) == TABLE_2["mamba"][SIZES.index(preset)]


def test_no_logit_depends_on_a_later_token(nano, tokens):
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 256
    with torch.inference_mode():
        difference = (nano.eval()(changed)[0] - nano(tokens)[0]).abs().amax(dim=(0, 2))
    assert difference[:7].max() < 1e-6
    assert difference[7:].min() > 1e-2


def test_loss_is_the_mean_surprise_of_the_targets(nano, tokens):
    targets = tokens.roll(-1, dims=1)
    targets[:, -1] = -100
    logits, loss = nano(tokens, targets)
    assert logits.shape == (2, 12, 256)
    by_hand = -logits[:, :-1].log_softmax(-1).gather(-1, targets[:, :-1, None]).mean()
    assert loss.item() == pytest.approx(by_hand.item(), abs=1e-5)
    assert nano(tokens)[1] is None
    assert torch.allclose(logits, nano.model(input_ids=tokens, use_cache=False).logits, atol=1e-6)
    assert nano.loss(tokens, targets).item() == pytest.approx(by_hand.item(), abs=1e-5)


def test_every_parameter_gets_a_finite_gradient(nano, tokens):
    nano.train().zero_grad()
    nano(tokens, tokens.roll(-1, dims=1))[1].backward()
    for name, parameter in nano.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_every_token_id_is_an_ordinary_one(nano):
    """A padding id would have a zero embedding, which never learns."""
    assert nano.embedding.weight.std(dim=1).min() > 0.015
    assert nano.embedding.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert nano.model.get_output_embeddings().weight is nano.embedding.weight


def test_attention_is_causal_by_flag_and_no_mask_is_built(nano, tokens, monkeypatch):
    calls = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def record(*inputs, **options):
        calls.append((options.get("attn_mask"), options.get("is_causal")))
        return attend(*inputs, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", record)
    nano(tokens)
    expected = {"llama": 6, "jamba": 1}.get(nano.config.model_type, 0)
    assert calls == [(None, True)] * expected


def test_held_out_loss_takes_a_baseline(nano):
    text = torch.randint(256, (100,), generator=torch.Generator().manual_seed(1)).numpy()
    assert held_out_loss(nano, text, context=12) == pytest.approx(5.6, abs=0.2)


def test_bad_tokens_are_refused_as_by_caracal(nano, tokens):
    with pytest.raises(ValueError, match=r"tokens has shape \(12,\) and dtype torch.int64"):
        nano(tokens[0])
    with pytest.raises(ValueError, match="tokens holds id 256; this model knows 0 to 255"):
        nano(tokens.clone().fill_(256))
    with pytest.raises(ValueError, match=r"targets have shape \(2, 5\), tokens \(2, 12\); give one target per token"):
        nano(tokens, tokens[:, :5])


def test_missing_transformers_is_said_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match='^a baseline needs transformers: pip install "transformers>=5.23"$'):
        make_model("llama", "nano")


def test_transformers_is_imported_late_and_missing_kernels_pass_in_silence_without_a_gpu():
    pytest.importorskip("transformers")
    script = ("import sys, torch\n"
              "from caracal_min.zoo import make_model\n"
              "assert 'transformers' not in sys.modules\n"
              "for name in ('mamba', 'mamba2', 'jamba'): make_model(name, 'nano')(torch.zeros(1, 3, dtype=torch.long))")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stderr
    assert "falling back" not in done.stderr
