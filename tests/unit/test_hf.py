"""`CaracalForCausalLM` against `Caracal`, and what transformers asks of every model of its own."""

import copy
import inspect
import math
import os
import shutil
import subprocess
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    DynamicCache,
    GenerationConfig,
    Trainer,
    TrainingArguments,
    pipeline,
    set_seed,
)
from transformers.modeling_outputs import CausalLMOutputWithPast

from caracal_min import Caracal, CaracalConfig
from caracal_min.data import ByteTokenizer
from caracal_min.hf import CaracalCache, CaracalForCausalLM, PretrainedCaracalConfig

SIZE = dict(vocab_size=256, d_model=32, n_layers=4, n_heads=2, window_size=8)
VARIANTS = [{}, {"positional_encoding": "learned", "max_positions": 90}, {"gate_length": 16},
            {"fourier_per_attention": None, "pre_conv": False, "gate": "single_stage"}]


def caracal(**changes):
    """A model whose layers say more than its embedding: what it predicts depends on all that it read."""
    torch.manual_seed(0)
    return Caracal(CaracalConfig(**SIZE | {"init_std": 0.2, "embedding_std": 0.2} | changes)).eval()


def build(**changes):
    return CaracalForCausalLM.from_caracal(caracal(**changes))


def ids(*shape, seed=1):
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(seed))


def same(found, expected):
    """Logits of two copies of a model: a processor may add otherwise where weights lie otherwise in memory."""
    assert_close(found, expected, rtol=1e-4, atol=1e-4)


def padded(rows, left, fill=0):
    """Rows of different lengths as one batch, and where they are."""
    longest = max(map(len, rows))
    fills = [torch.full((longest - len(row),), fill) for row in rows]
    pairs = [(f, r) if left else (r, f) for f, r in zip(fills, rows, strict=True)]
    masks = [torch.cat([torch.full_like(x, int(x is r)) for x in pair]) for pair, r in zip(pairs, rows, strict=True)]
    return torch.stack([torch.cat(pair) for pair in pairs]), torch.stack(masks)


@pytest.fixture(scope="module")
def model():
    return build()


@pytest.fixture
def folder(tmp_path):
    """A model as `Caracal` saves it, with its tokenizer."""
    model = caracal()
    model.tokenizer = ByteTokenizer()
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


# Folders and configurations


@pytest.mark.parametrize("changes", VARIANTS)
def test_it_reads_what_caracal_writes_and_the_logits_are_equal(tmp_path, changes):
    ours = caracal(**changes)
    ours.save_pretrained(tmp_path)
    theirs, found = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert isinstance(theirs, CaracalForCausalLM) and not theirs.training and not any(found.values())
    assert theirs.config.shape == ours.config and theirs.num_parameters() == ours.num_parameters()
    x = ids(3, 70)
    same(theirs(x).logits, ours(x)[0])
    assert_close(theirs(x, labels=x).loss, ours.loss(x[:, :-1], x[:, 1:]))


@pytest.mark.parametrize("changes", VARIANTS)
def test_caracal_reads_what_it_writes(tmp_path, changes):
    """Also over a folder that `Caracal` wrote, whose hashes are of other weights."""
    other = caracal(**changes)
    torch.nn.init.ones_(other.embedding.weight)
    other.save_pretrained(tmp_path)
    theirs = build(**changes)
    theirs.save_pretrained(tmp_path)
    ours, x = Caracal.from_pretrained(tmp_path, device="cpu"), ids(2, 70)
    assert ours.config == theirs.config.shape
    same(ours(x)[0], theirs(x).logits)
    same(AutoModelForCausalLM.from_pretrained(tmp_path)(x).logits, theirs(x).logits)


def test_weights_in_parts_and_in_another_type(tmp_path, model):
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    x = ids(2, 20)
    same(AutoModelForCausalLM.from_pretrained(tmp_path)(x).logits, model(x).logits)
    half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    half.save_pretrained(tmp_path / "half")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "half")
    assert again.dtype == torch.bfloat16
    assert_close(again(x).logits, half(x).logits, atol=0.05, rtol=0.05)
    assert (half(x).logits - model(x).logits).abs().max() < 0.1 * model(x).logits.abs().max()


def test_the_type_of_weights_that_were_loaded_is_not_that_of_those_that_are_saved(tmp_path):
    build().to(torch.bfloat16).save_pretrained(tmp_path)
    ours, x = Caracal.from_pretrained(tmp_path, device="cpu"), ids(2, 20)
    torch.nn.init.normal_(ours.embedding.weight)
    ours.save_pretrained(tmp_path)
    for kind in (AutoModelForCausalLM, CaracalForCausalLM):
        same(kind.from_pretrained(tmp_path)(x).logits, ours(x)[0])


@pytest.mark.parametrize("kind", [AutoModelForCausalLM, CaracalForCausalLM])
@pytest.mark.parametrize("at", ["weights", "configuration"])
def test_a_folder_that_is_saved_anew_while_it_is_read_is_refused(tmp_path, monkeypatch, kind, at):
    """The configuration would be that of one model, the weights those of another."""
    caracal().save_pretrained(tmp_path)
    made, loaded = PretrainedCaracalConfig.from_dict, CaracalForCausalLM._load_pretrained_model

    def save_and_then(of):
        def wrapper(*given, **options):
            caracal(gate_length=4).save_pretrained(tmp_path)
            return of(*given, **options)
        return wrapper

    if at == "configuration":  # just after it was read
        monkeypatch.setattr(PretrainedCaracalConfig, "from_dict", save_and_then(made))
    else:
        monkeypatch.setattr(CaracalForCausalLM, "_load_pretrained_model", save_and_then(loaded))
    with pytest.raises(ValueError, match=f"^{tmp_path} was saved anew ") as caught:
        kind.from_pretrained(tmp_path)
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    given = AutoConfig.from_pretrained(tmp_path, window_size=5)  # what the caller changes is not that of another save
    caracal(gate_length=6).save_pretrained(tmp_path / "other")
    elsewhere = AutoConfig.from_pretrained(tmp_path / "other")
    for options, found in (({}, (8, 4)), ({"window_size": 5}, (5, 4)), ({"config": given}, (5, 4)),
                           ({"config": elsewhere}, (8, 6))):
        config = kind.from_pretrained(pretrained_model_name_or_path=tmp_path, **options).config
        config.save_pretrained(tmp_path / "saved")
        assert (config.window_size, config.gate_length) == found
        assert "_read" not in (tmp_path / "saved" / "config.json").read_text()
    saved = kind.from_pretrained(tmp_path)
    saved.save_pretrained(tmp_path)  # with more keys than were read
    kind.from_pretrained(tmp_path, config=saved.config)


@pytest.mark.parametrize("size", ["20KB", "1GB"])
@pytest.mark.parametrize("before", ["20KB", "1GB", "Caracal"])
def test_no_older_weights_stay_beside_those_that_are_saved(tmp_path, model, before, size):
    """transformers reads `model.safetensors` first, and other programs the index of parts."""
    older = {"fourier_per_attention": None}
    if before == "Caracal":
        caracal(**older).save_pretrained(tmp_path)
    else:
        build(**older).save_pretrained(tmp_path, max_shard_size=before)
    model.save_pretrained(tmp_path, max_shard_size=size)
    parts, x = size == "20KB", ids(1, 9)
    assert (tmp_path / "model.safetensors").exists() != parts
    assert (tmp_path / "model.safetensors.index.json").exists() == any(tmp_path.glob("model-*.safetensors")) == parts
    same(AutoModelForCausalLM.from_pretrained(tmp_path)(x).logits, model(x).logits)
    model.save_pretrained(tmp_path, max_shard_size="1KB" if parts else "1GB", variant="other")
    assert (tmp_path / "model.safetensors").exists() != parts  # that of a variant lies beside it
    with pytest.raises(ValueError, match="holds a model with fourier_per_attention=2, and a variant of it has"):
        build(**older).save_pretrained(tmp_path, variant="older")
    same(AutoModelForCausalLM.from_pretrained(tmp_path)(x).logits, model(x).logits)


def test_a_save_that_fails_leaves_what_was_there(tmp_path, model, monkeypatch):
    """transformers writes the configuration first: it stood beside the older weights, and no hash said so."""
    caracal(gate_length=4).save_pretrained(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transformers.modeling_utils.safe_save_file", fails)
    with pytest.raises(OSError, match=r"could not be written \(.*No space left.*what was there is unchanged"):
        model.save_pretrained(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    monkeypatch.undo()
    model.save_pretrained(tmp_path, is_main_process=False)  # as the other processes of a run do
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_an_adapter_that_is_saved_into_the_folder_of_its_model_leaves_that_whole(tmp_path):
    peft = pytest.importorskip("peft")
    caracal().save_pretrained(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    adapted = AutoModelForCausalLM.from_pretrained(tmp_path)
    adapted.add_adapter(peft.LoraConfig(target_modules=["to_gate"], init_lora_weights=False))
    adapted.save_pretrained(tmp_path)
    after = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert before.items() <= after.items() and {"adapter_config.json", "adapter_model.safetensors"} <= after.keys()
    for save in (caracal().save_pretrained, build().save_pretrained):  # the adapter would change it
        with pytest.raises(ValueError, match=r"holds an adapter \(adapter_config.json\), which transformers"):
            save(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == after
    with pytest.warns(UserWarning, match="holds an adapter, which is not applied: load it by caracal_min.hf, merge it"):
        Caracal.from_pretrained(tmp_path, device="cpu")


def test_words_on_the_use_of_another_model_do_not_stay(tmp_path, model):
    model.save_pretrained(tmp_path)
    assert (tmp_path / "generation_config.json").exists()
    caracal().save_pretrained(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["SHA256SUMS", "config.json", "model.safetensors"]


def test_a_kill_at_any_step_of_a_save_leaves_no_mixture(tmp_path, model, monkeypatch):
    """Weights in parts over a single file: the old file goes before the new configuration comes."""
    seen, replace, unlink = [], os.replace, Path.unlink

    def look(of, *given, **options):
        of(*given, **options)
        names = {file.name for file in tmp_path.iterdir()}
        seen.append(("config.json" in names, "model.safetensors" in names, any("-of-" in name for name in names)))

    caracal(gate_length=4).save_pretrained(tmp_path)
    monkeypatch.setattr(os, "replace", lambda *given: look(replace, *given))
    monkeypatch.setattr(Path, "unlink", lambda *given, **options: look(unlink, *given, **options))
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert seen[-1] == (True, False, True) and (False, False, True) in seen
    assert not [step for step in seen if step in ((True, True, True), (True, False, False))]


def test_the_configuration_has_the_names_of_both(tmp_path):
    by_ours = PretrainedCaracalConfig(**SIZE, gate_length=5)
    by_theirs = PretrainedCaracalConfig(vocab_size=256, hidden_size=32, num_hidden_layers=4, num_attention_heads=2,
                                        window_size=8, gate_length=5)
    assert by_ours.shape == by_theirs.shape == CaracalConfig(**SIZE, gate_length=5)
    assert (by_ours.hidden_size, by_ours.num_hidden_layers, by_ours.num_attention_heads) == (32, 4, 2)
    by_ours.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).shape == by_ours.shape
    assert asdict(by_ours.shape).items() <= by_ours.to_dict().items()


@pytest.mark.parametrize(("given", "error", "words"), [
    ({}, TypeError, "missing 4 required positional arguments: 'vocab_size'"),
    ({**SIZE, "n_heads": 3}, ValueError, "d_model=32 is not divisible by n_heads=3; choose"),
    ({**SIZE, "gate": "three"}, ValueError, "gate='three'; accepted: two_stage, single_stage"),
])
def test_bad_configurations_get_one_line(given, error, words):
    with pytest.raises(error) as caught:
        PretrainedCaracalConfig(**given)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_field_can_be_changed_on_loading(folder):
    cut = AutoModelForCausalLM.from_pretrained(folder, gate_length=4)
    x = ids(2, 30)
    same(cut(x).logits, Caracal.from_pretrained(folder, device="cpu", gate_length=4)(x)[0])
    with pytest.raises(ValueError, match="^gate_length=0; give a whole number >= 1"):
        AutoModelForCausalLM.from_pretrained(folder, gate_length=0)


def test_weights_that_are_missing_are_drawn_as_caracal_draws_them():
    """All are on the meta device first; those that were read stay."""
    config = PretrainedCaracalConfig(**SIZE | {"d_model": 128}, init_std=0.5, embedding_std=2.0,
                                     positional_encoding="learned")
    ours = Caracal(config.shape).state_dict()
    kept = {name: t for name, t in ours.items() if name.startswith("blocks.1.")}
    drawn = CaracalForCausalLM.from_pretrained(None, config=config, state_dict=kept)
    for model in (drawn, CaracalForCausalLM(config), AutoModelForCausalLM.from_config(config)):
        for name, t in model.state_dict().items():
            if model is drawn and name in kept:
                assert torch.equal(t, kept[name]), name
            elif name != "lm_head.weight":
                assert t.std().item() == pytest.approx(ours[name].std().item(), rel=0.2), name
                assert t.mean().item() == pytest.approx(ours[name].mean().item(), abs=0.2), name


def test_the_head_is_the_embedding(tmp_path, model):
    model.save_pretrained(tmp_path)
    for one in (model, copy.deepcopy(model), CaracalForCausalLM(model.config), AutoModelForCausalLM.from_config(
            model.config), AutoModelForCausalLM.from_pretrained(tmp_path)):
        assert one.get_output_embeddings().weight is one.get_input_embeddings().weight is one.embedding.weight


def test_more_tokens_can_be_added(tmp_path, model):
    larger = copy.deepcopy(model)
    larger.resize_token_embeddings(300)
    assert larger.config.vocab_size == 300 and larger.lm_head.weight is larger.embedding.weight
    larger.save_pretrained(tmp_path)
    x = ids(1, 9)
    same(Caracal.from_pretrained(tmp_path, device="cpu")(x)[0], larger(x).logits)
    same(larger(x).logits[..., :256], model(x).logits)
    assert larger(x + 40).logits.shape[-1] == 300


def test_a_model_in_memory_lends_its_weights():
    ours = caracal()
    theirs = CaracalForCausalLM.from_caracal(ours.train())
    assert theirs.training and not CaracalForCausalLM.from_caracal(ours.eval()).training
    with torch.no_grad():
        ours.norm.weight.mul_(2)
        theirs.embedding.weight.mul_(2)
    x = ids(1, 9)
    same(ours(x)[0], theirs.eval()(x).logits)


# The forward pass


def test_outputs(model):
    x = ids(2, 20)
    whole = model(x, labels=x)
    assert next(iter(inspect.signature(model.forward).parameters)) == "input_ids" == model.main_input_name
    assert isinstance(whole, CausalLMOutputWithPast) and list(whole) == ["loss", "logits"]
    as_tuple = model(x, labels=x, return_dict=False)
    assert isinstance(as_tuple, tuple) and all(map(torch.equal, as_tuple, whole.to_tuple()))
    assert torch.equal(model(x).logits, whole.logits)
    kept = torch.tensor([0, 3, 19])
    for keep, expected in ((0, whole.logits), (5, whole.logits[:, -5:]), (kept, whole.logits[:, kept])):
        same(model(x, logits_to_keep=keep).logits, expected)


def test_hidden_states_are_those_between_the_blocks(model):
    x, seen = ids(2, 20), []
    hooks = [block.register_forward_hook(lambda *call: seen.append(call[2])) for block in model.blocks]
    model(x)
    for hook in hooks:
        hook.remove()
    found = model(x, output_hidden_states=True).hidden_states
    assert len(found) == 1 + model.config.num_hidden_layers == 1 + len(seen)
    assert all(map(torch.equal, found, [model.embedding(x), *seen[:-1], model.norm(seen[-1])]))
    batch, mask = padded([x[0, :7], x[1]], left=True)
    of_padded = model(batch, attention_mask=mask, output_hidden_states=True).hidden_states
    for whole, alone in zip(of_padded, model(x[:1, :7], output_hidden_states=True).hidden_states, strict=True):
        assert_close(whole[0, -7:], alone[0])


def test_the_loss_counts_as_transformers_says(model):
    x = ids(2, 20)
    labels = x.clone()
    labels[0, :10] = -100
    logits = model(x).logits[:, :-1].log_softmax(-1).gather(-1, x[:, 1:, None])[..., 0]
    counted = -logits[labels[:, 1:] != -100]
    assert_close(model(x, labels=labels).loss, counted.mean())
    for items in (7, torch.tensor(7)):
        assert_close(model(x, labels=labels, num_items_in_batch=items).loss, counted.sum() / 7)
    assert "num_items_in_batch" in inspect.getdoc(type(model).forward)


@pytest.mark.parametrize("changes", VARIANTS[:3])
@pytest.mark.parametrize("left", [True, False])
def test_a_row_of_a_padded_batch_gives_what_it_gives_alone(changes, left):
    model, rows = build(**changes), [ids(n, seed=n) for n in (5, 30, 1, 17)]
    batch, mask = padded(rows, left)
    logits = model(batch, attention_mask=mask).logits
    for row, logits_of_row, kept in zip(rows, logits, mask.bool(), strict=True):
        assert_close(logits_of_row[kept], model(row[None]).logits[0], rtol=1e-4, atol=1e-4)
    other, _ = padded(rows, left, fill=9)
    assert_close(model(other, attention_mask=mask).logits, logits, rtol=1e-4, atol=1e-4)


def test_padding_may_lie_anywhere_and_gives_the_logits_of_the_token_before(model):
    x = ids(2, 20)
    mask = torch.ones_like(x)
    mask[0, [0, 1, 7, 8, 12, 19]] = 0
    logits = model(x, attention_mask=mask).logits
    alone = model(x[:1][:, mask[0].bool()]).logits[0]
    assert_close(logits[0, mask[0].bool()], alone)
    assert torch.equal(logits[0, 7], logits[0, 6]) and torch.equal(logits[0, 19], logits[0, 18])


def test_the_loss_of_a_left_padded_batch_is_that_of_its_rows(model):
    """The first token of a row is predicted from nothing, so it has no loss; from padding it would."""
    rows = [ids(n, seed=n) for n in (5, 30, 17)]
    for left in (True, False):
        batch, mask = padded(rows, left)
        labels = batch.masked_fill(mask == 0, -100)
        alone = [model(row[None], labels=row[None]).loss * (len(row) - 1) for row in rows]
        assert_close(model(batch, attention_mask=mask, labels=labels).loss,
                                   sum(alone) / sum(len(row) - 1 for row in rows))


def test_positions_that_count_the_tokens_of_each_row_change_nothing(model):
    x = ids(2, 20)
    for position_ids in (torch.arange(20)[None], torch.arange(20).expand(2, -1)):
        assert torch.equal(model(x, position_ids=position_ids).logits, model(x).logits)
    mask = torch.ones_like(x)
    mask[0, :6] = 0
    model(x, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))
    model(x, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).masked_fill(mask == 0, 1))
    with pytest.raises(ValueError, match="^position_ids do not count the tokens of each row; .* or give no pos"):
        model(x, position_ids=torch.arange(5, 25)[None])


@pytest.mark.parametrize("changes", VARIANTS)
def test_documents_whose_positions_begin_at_0_give_what_they_give_alone(changes):
    model, x, parts = build(**changes).double(), ids(1, 43), [5, 17, 1, 20]
    positions = torch.cat([torch.arange(n) for n in parts])[None]
    packed = model(x, position_ids=positions, labels=x, output_hidden_states=True)
    rows = x.split(parts, 1)
    alone = [model(row, labels=row, output_hidden_states=True) for row in rows]
    for name, found in (("logits", packed.logits), *((i, h) for i, h in enumerate(packed.hidden_states))):
        expected = torch.cat([one.logits if name == "logits" else one.hidden_states[name] for one in alone], 1)
        assert_close(found, expected, rtol=1e-10, atol=1e-10)
    counted = [(one.loss, n - 1) for one, n in zip(alone, parts, strict=True) if n > 1]
    mean = sum(loss * n for loss, n in counted) / sum(n for _, n in counted)
    assert_close(packed.loss, mean)  # transformers takes it in float32
    expected, found = (torch.autograd.grad(loss, [*model.parameters()]) for loss in (mean, packed.loss))
    for a, b in zip(expected, found, strict=True):
        assert_close(b, a, rtol=1e-4, atol=1e-6)
    assert (model(x).logits - packed.logits)[:, 5:].abs().max() > 1e-3


def test_documents_beside_padding(model):
    x, mask = ids(2, 20), torch.ones(2, 20, dtype=torch.long)
    mask[0, [0, 1, 2, 9, 19]] = 0
    positions = torch.stack([torch.arange(20), torch.arange(20) % 11])
    positions[0, mask[0].bool()] = torch.arange(15) % 8
    logits = model(x, attention_mask=mask, position_ids=positions, logits_to_keep=20).logits
    tokens = x[0, mask[0].bool()]
    for row, found in ((tokens[:8], logits[0, mask[0].bool()][:8]), (tokens[8:], logits[0, mask[0].bool()][8:]),
                       (x[1, 11:], logits[1, 11:])):
        assert_close(found, model(row[None]).logits[0], rtol=1e-4, atol=1e-4)
    assert torch.equal(logits[0, 9], logits[0, 8]) and torch.equal(logits[0, 19], logits[0, 18])


def test_a_cache_holds_one_document_for_each_row(model):
    x, positions = ids(1, 12), torch.arange(12)[None] % 7
    greedy = dict(max_new_tokens=4, do_sample=False, pad_token_id=0)
    with pytest.raises(ValueError, match="^position_ids begin at 0 several times, and a cache holds one document for"):
        model.generate(x, position_ids=positions, **greedy)
    found = model.generate(x, position_ids=positions, use_cache=False, **greedy)[:, 12:]
    assert torch.equal(found, model.generate(x[:, 7:], **greedy)[:, 5:])
    cache = model(x, use_cache=True).past_key_values
    with pytest.raises(ValueError, match="^position_ids do not count the tokens of each row; let them begin at 0 with"):
        model(x[:, :1], past_key_values=cache, position_ids=torch.tensor([[0]]))
    assert_close(model(x[:, :1], past_key_values=cache, position_ids=torch.tensor([[12]])).logits,
                               model(torch.cat([x, x[:, :1]], 1)).logits[:, -1:], rtol=1e-4, atol=1e-4)


def test_smoothed_labels_are_those_of_the_next_token(model, tmp_path):
    """The trainer shifts them for the classes that it knows by name; others would learn to copy."""
    settings = TrainingArguments(str(tmp_path), label_smoothing_factor=0.1, use_cpu=True, report_to=[])
    x = ids(2, 20)
    found = Trainer(model, settings).compute_loss(model, {"input_ids": x, "labels": x.clone()})
    lost = -model(x).logits[:, :-1].log_softmax(-1)
    expected = 0.9 * lost.gather(-1, x[:, 1:, None]).mean() + 0.1 * lost.mean()
    assert_close(found, expected)


def test_smoothed_labels_behind_padding_do_not_tell_the_first_token(model, tmp_path):
    """The trainer scores the first token of a padded row at the padding before it, which must not have read it."""
    settings = TrainingArguments(str(tmp_path), label_smoothing_factor=0.1, use_cpu=True, report_to=[])
    x, mask = ids(1, 20), torch.ones(1, 20, dtype=torch.int64)
    mask[:, :4] = 0
    labels = x.masked_fill(mask == 0, -100)
    assert not model(x, attention_mask=mask).logits[:, :4].any()
    given = {"input_ids": x, "attention_mask": mask, "labels": labels}
    found = Trainer(model, settings).compute_loss(model, dict(given))
    lost = -model(x[:, 4:]).logits[:, :-1].log_softmax(-1)
    expected = 0.9 * lost.gather(-1, x[:, 5:, None]).sum() + 0.1 * lost.mean(-1).sum()
    assert_close(found, (expected + math.log(256)) / 16)


def test_the_trainer_packs_documents_with_the_collator_of_transformers(model):
    from transformers import DataCollatorWithFlattening

    rows = [ids(n, seed=n) for n in (5, 30, 17)]
    batch = DataCollatorWithFlattening()([{"input_ids": row.tolist()} for row in rows])
    alone = [model(row[None], labels=row[None]).loss * (len(row) - 1) for row in rows]
    assert_close(model(**batch).loss, sum(alone) / 49)


@pytest.mark.parametrize(("given", "words"), [
    ({}, "give input_ids, [batch, length], alone: embeddings"),
    ({"inputs_embeds": torch.zeros(1, 3, 32)}, "give input_ids, [batch, length], alone: embeddings"),
    ({"input_ids": ids(1, 3), "inputs_embeds": torch.zeros(1, 3, 32)}, "give input_ids, [batch, length], alone"),
    ({"input_ids": ids(1, 3), "seq_idx": torch.zeros(1, 3)}, "documents of a row are known by position_ids that begin"),
    ({"input_ids": ids(1, 3), "past_key_values": DynamicCache()}, "past_key_values is a DynamicCache; give what a"),
    ({"input_ids": torch.tensor([[1, 256]])}, "input_ids holds id 256; this model knows 0 to 255"),
    ({"input_ids": torch.tensor([1, 2])}, "input_ids has shape (2,)"),
    ({"input_ids": ids(2, 5), "attention_mask": torch.ones(2, 4)}, "attention_mask has shape (2, 4); give [2, 5], 0"),
    ({"input_ids": ids(2, 5), "attention_mask": torch.tensor([[0.0] * 4 + [-1e9]] * 2)}, "attention_mask holds -1000"),
    ({"input_ids": ids(1, 3), "attention_mask": torch.tensor([[1, 2, 2]])}, "attention_mask holds 2; give [1, 3], 0"),
    ({"input_ids": ids(2, 5), "position_ids": torch.ones(2, 4)}, "position_ids has shape (2, 4); give [2, 5]"),
    ({"input_ids": ids(2, 5), "attention_mask": torch.ones(2, 1, 5, 5)}, "attention_mask has shape (2, 1, 5, 5); give"),
    ({"input_ids": ids(2, 5), "attention_mask": torch.tensor([[1] * 5, [0] * 5]), "use_cache": True},
     "attention_mask leaves no token in row 1; a cache takes one or more"),
])
def test_bad_input_gets_one_line(model, given, words):
    with pytest.raises(ValueError) as caught:
        model(**given)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_runs_blocks_twice_and_changes_no_gradient(model, reentrant):
    def gradients(of):
        runs, of = [], of.train()
        hooks = [block.mixer.register_forward_hook(lambda *_: runs.append(1)) for block in of.blocks]
        of(x, labels=x, use_cache=False).loss.backward()
        for hook in hooks:
            hook.remove()
        found = {name: weight.grad for name, weight in of.named_parameters()}
        of.zero_grad()
        return len(runs), found

    x, one = ids(2, 20), copy.deepcopy(model)
    plain, expected = gradients(one)
    assert plain == 4 and all(g is not None and g.abs().sum() > 0 for g in expected.values())
    one.activation_checkpointing_enable({"use_reentrant": reentrant})
    twice, found = gradients(one)
    assert twice == 8 and all(torch.equal(found[name], expected[name]) for name in expected)
    with torch.no_grad():  # a cache is not continued twice
        assert torch.equal(one.generate(x, max_new_tokens=3, do_sample=False, pad_token_id=0),
                           model.generate(x, max_new_tokens=3, do_sample=False, pad_token_id=0))
    one.activation_checkpointing_disable()
    assert gradients(one.train())[0] == 4


# Generation


def greedy(model, x, count, **options):
    return model.generate(x, max_new_tokens=count, do_sample=False, pad_token_id=0, **options)


@pytest.mark.parametrize("changes", VARIANTS)
def test_generation_is_that_of_caracal_with_and_without_cache(changes):
    x, count = ids(3, 9), 60
    found = greedy(build(**changes), x, count)
    assert torch.equal(found, caracal(**changes).generate(x, count, temperature=0.0))
    assert torch.equal(found, greedy(build(**changes), x, count, use_cache=False))
    assert len({tuple(row.tolist()) for row in found[:, 9:]}) == 3


@pytest.mark.parametrize("changes", VARIANTS)
@pytest.mark.parametrize("left", [True, False])
def test_a_row_of_a_padded_batch_is_continued_as_alone(changes, left):
    """Exactly as alone: the same tokens; the logits of each step differ by rounding."""
    model, rows = build(**changes), [ids(n, seed=n) for n in (5, 30, 1, 17)]
    batch, mask = padded(rows, left)
    got = greedy(model, batch, 40, attention_mask=mask, return_dict_in_generate=True, output_logits=True)
    for i, row in enumerate(rows):
        alone = greedy(model, row[None], 40, return_dict_in_generate=True, output_logits=True)
        assert torch.equal(got.sequences[i, 30:], alone.sequences[0, len(row):])
        assert_close(torch.stack(got.logits)[:, i], torch.stack(alone.logits)[:, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("changes", [VARIANTS[0], VARIANTS[2]])
def test_a_cache_grows_with_what_it_reads(changes):
    """In parts of 1 to 40 tokens with padding, beyond what the first call makes room for."""
    model, x = build(**changes), ids(2, 700)
    draw = torch.Generator().manual_seed(3)
    mask = torch.rand(2, 700, generator=draw) < 0.8
    mask[:, 0] = True
    past, start, parts = CaracalCache(), 0, []
    while start < 700:
        end = start + int(torch.randint(1, 41, (), generator=draw))
        mask[:, start] = True
        parts.append(model(x[:, start:end], attention_mask=mask[:, :end], past_key_values=past).logits)
        start = end
    logits = torch.cat(parts, 1)
    assert past.get_seq_length() == 700 and model.seen(past.layers) == mask.sum(1).tolist() and not logits.requires_grad
    for row in range(2):
        expected = model(x[row, mask[row]][None]).logits[0]
        assert_close(logits[row, mask[row]], expected, rtol=1e-3, atol=1e-3)


def test_a_call_that_fails_leaves_the_cache_as_it_was(model):
    x, past = ids(2, 30), CaracalCache()
    model(x[:, :10], past_key_values=past)
    for wrong, words in ((x[:1, 10:], "the cache has 2 rows, input_ids 1"), (x[:, 10:] + 250, "input_ids holds id")):
        with pytest.raises(ValueError, match=words):
            model(wrong, past_key_values=past)
    assert_close(model(x[:, 10:], past_key_values=past).logits, model(x).logits[:, 10:])


def test_generation_goes_on_from_a_cache(model):
    """From all ids so far, as transformers takes them, also after a batch with padding."""
    batch, mask = padded([ids(4, seed=4), ids(9, seed=9)], left=True)
    whole = greedy(model, batch, 20, attention_mask=mask)
    first = greedy(model, batch, 8, attention_mask=mask, return_dict_in_generate=True)
    mask = torch.cat([mask, torch.ones(2, 8, dtype=torch.int64)], 1)
    rest = greedy(model, first.sequences, 12, attention_mask=mask, past_key_values=first.past_key_values)
    assert torch.equal(rest, whole)


def test_a_long_prompt_may_be_read_in_parts(model):
    x = ids(2, 50)
    parts = greedy(model, x, 9, prefill_chunk_size=16, past_key_values=CaracalCache())
    assert torch.equal(parts, greedy(model, x, 9))


def test_the_cache_has_the_name_that_generate_hands_on(model):
    """`past_key_values` in the version of requirements.txt, `cache` from 5.24 on: each is taken."""
    x = ids(2, 9)
    (name,) = {"past_key_values", "cache"} & {*model(x, use_cache=True)}
    assert name in inspect.signature(model.prepare_inputs_for_generation).parameters
    for given in ("past_key_values", "cache"):
        past = model(x[:, :5], use_cache=True)[name]
        assert isinstance(past, CaracalCache) and past.get_seq_length() == 5
        assert_close(model(x[:, 5:], **{given: past}).logits, model(x).logits[:, 5:])
        assert past.get_seq_length() == 9
    assert name not in model(x) and {"past_key_values", "cache"} == {*model.config.keys_to_ignore_at_inference}


@pytest.mark.parametrize("options", [dict(num_beams=3), dict(num_beams=4, num_return_sequences=2, length_penalty=2.0),
                                     dict(num_beams=3, do_sample=True, top_k=20)])
def test_beams_take_their_caches_along(model, options):
    batch, mask = padded([ids(4, seed=4), ids(9, seed=9)], left=True)
    found = []
    for use_cache in (True, False):
        torch.manual_seed(0)
        found.append(model.generate(batch, attention_mask=mask, max_new_tokens=24, pad_token_id=0, use_cache=use_cache,
                                    **{"do_sample": False} | options))
    assert torch.equal(*found)
    assert not torch.equal(found[0][:, :33], greedy(model, batch, 24, attention_mask=mask).repeat_interleave(
        len(found[0]) // 2, 0))  # and find what greedy decoding does not


def test_what_a_cache_cannot_do_is_refused(model):
    with pytest.raises(ValueError, match="^assisted generation is not supported with stateful models, such as Caracal"):
        model.generate(ids(1, 9), max_new_tokens=5, prompt_lookup_num_tokens=2)


def test_hooks_and_hidden_states_see_every_step_of_generation(model):
    x = ids(2, 9)
    whole = greedy(model, x, 6, return_dict_in_generate=True, output_hidden_states=True, output_logits=True)
    assert [[h.shape[1] for h in step] for step in whole.hidden_states] == [[9] * 5] + [[1] * 5] * 5
    for step, logits in zip(whole.hidden_states, whole.logits, strict=True):
        assert_close(model.lm_head(step[-1][:, -1]), logits)
    steering = torch.randn(32, generator=torch.Generator().manual_seed(0))
    hook = model.blocks[1].register_forward_hook(lambda *call: call[2] + 3 * steering)
    steered, steered_without_cache = greedy(model, x, 6), greedy(model, x, 6, use_cache=False)
    hook.remove()
    assert torch.equal(steered, steered_without_cache) and not torch.equal(steered, whole.sequences)


def test_an_end_of_text_ends_a_row(model):
    x = ids(2, 9)
    whole = greedy(model, x, 20)
    stop = int(whole[0, 14])
    found = greedy(model, x, 20, eos_token_id=stop)
    end = whole[0].tolist().index(stop, 9)
    assert torch.equal(found[0, :end + 1], whole[0, :end + 1]) and not found[0, end + 1:].any()


# Tools


def test_a_pipeline_and_a_tokenizer_of_the_folder(folder):
    assert AutoTokenizer.from_pretrained(folder).encode("é\0") == ByteTokenizer().encode("é\0")
    write = pipeline("text-generation", model=str(folder), device="cpu")
    write.tokenizer.pad_token = write.tokenizer.eos_token
    prompts = ["The", "A much longer prompt", "x"]
    batch = write(prompts, max_new_tokens=12, do_sample=False, batch_size=3)
    alone = [write(prompt, max_new_tokens=12, do_sample=False)[0] for prompt in prompts]
    assert [texts[0] for texts in batch] == alone
    ours = Caracal.from_pretrained(folder, device="cpu").generate(torch.tensor([list(b"The")]), 12, temperature=0.0)
    assert alone[0]["generated_text"] == ByteTokenizer().decode(id for id in ours[0].tolist() if id)


@pytest.mark.parametrize("how", ["folder", "hf", "memory"])
def test_a_text_ends_where_it_does_for_the_package(tmp_path, how):
    ours = caracal()
    prompt = "The"
    ours.tokenizer = ByteTokenizer()
    stop = ours.generate(torch.tensor([list(b"The")]), 12, temperature=0.0)[0].tolist()[7]
    ours.tokenizer.end_of_text = stop  # an id that comes
    theirs = CaracalForCausalLM.from_caracal(ours)
    if how != "memory":
        (ours if how == "folder" else theirs).save_pretrained(tmp_path)
        theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    found = theirs.generate(torch.tensor([list(b"The")]), max_new_tokens=12, do_sample=False)[0].tolist()
    assert found[-1] == stop and len(found) <= 8
    assert ours.generate_text(prompt, 12, temperature=0.0) == ByteTokenizer().decode(found[:-1])
    if how == "hf":
        again = Caracal.from_pretrained(tmp_path, device="cpu")
        again.tokenizer = ByteTokenizer()
        again.save_pretrained(tmp_path)
        assert AutoModelForCausalLM.from_pretrained(tmp_path).generation_config.eos_token_id == 0


def train(model, out, folder, steps=6, **options):
    """Steps of `Trainer` on left-padded texts, two batches each; with resume=True, from the checkpoint in `out`."""
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left", pad_token="<|endoftext|>")
    texts = [tokenizer(f"text number {i} " * (1 + i % 5)) for i in range(48)]
    set_seed(0)
    settings = TrainingArguments(str(out), max_steps=steps, per_device_train_batch_size=4, seed=0, save_steps=3,
                                 gradient_accumulation_steps=2, logging_steps=1, report_to=[], learning_rate=3e-3,
                                 use_cpu=True, disable_tqdm=True, **options)
    trainer = Trainer(model, settings, train_dataset=texts, processing_class=tokenizer,
                      data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False))
    trainer.train(resume_from_checkpoint=(out / "checkpoint-3").is_dir())
    return trainer


def weights(model):
    return {name: weight.clone() for name, weight in model.state_dict().items()}


def require_equal(found, expected):
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


def test_a_run_of_trainer_resumes_on_the_same_path(folder, tmp_path):
    fresh = PretrainedCaracalConfig(**SIZE)
    set_seed(1)
    whole = train(CaracalForCausalLM(fresh), tmp_path / "whole", folder)
    losses = [entry["loss"] for entry in whole.state.log_history if "loss" in entry]
    assert len(losses) == 6 and losses[-1] < losses[0] - 0.3
    shutil.copytree(tmp_path / "whole" / "checkpoint-3", tmp_path / "cut" / "checkpoint-3")
    set_seed(2)
    resumed = train(CaracalForCausalLM(fresh), tmp_path / "cut", folder)
    require_equal(weights(resumed.model), weights(whole.model))
    of_folder = Caracal.from_pretrained(tmp_path / "whole" / "checkpoint-6", device="cpu").state_dict()
    require_equal(of_folder | {"lm_head.weight": of_folder["embedding.weight"]}, weights(whole.model))
    assert AutoTokenizer.from_pretrained(tmp_path / "whole" / "checkpoint-6").eos_token_id == 0


@pytest.mark.parametrize("target", [["to_out", "to_qkv"], "all-linear"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_adapters_train_are_saved_and_are_merged(folder, tmp_path, target, checkpointing):
    peft = pytest.importorskip("peft")

    def adapted():
        torch.manual_seed(5)
        return peft.get_peft_model(build(), peft.LoraConfig(task_type="CAUSAL_LM", target_modules=target, r=4))

    trained = train(adapted(), tmp_path / "out", folder, activation_checkpointing=checkpointing).model.eval()
    x = ids(2, 32)  # as many tokens in a row as channels
    logits = trained(x).logits
    assert not torch.allclose(logits, build()(x).logits, atol=1e-3)
    shutil.copytree(tmp_path / "out" / "checkpoint-3", tmp_path / "cut" / "checkpoint-3")
    require_equal(weights(train(adapted(), tmp_path / "cut", folder, activation_checkpointing=checkpointing).model),
                  weights(trained))
    trained.save_pretrained(tmp_path / "adapter")
    loaded = peft.PeftModel.from_pretrained(build(), tmp_path / "adapter").eval()
    assert_close(loaded(x).logits, logits)
    assert torch.equal(greedy(loaded, x, 8), greedy(trained, x, 8))
    merged = loaded.merge_and_unload()
    assert_close(merged(x).logits, logits, rtol=1e-3, atol=1e-3)
    merged.save_pretrained(tmp_path / "merged")
    same(Caracal.from_pretrained(tmp_path / "merged", device="cpu")(x)[0], merged(x).logits)


@pytest.mark.parametrize("options", [
    {"target_modules": ["embedding"]}, {"target_modules": ["lm_head"]}, {"target_modules": ["embedding", "lm_head"]},
    {"target_modules": ["lm_head"], "ensure_weight_tying": True},  # merged, both adapters change the one matrix
    *({"target_modules": ["to_out"], "modules_to_save": names}
      for names in (["embedding"], ["lm_head"], ["embedding", "lm_head"])),
    {"target_modules": ["to_out"], "trainable_token_indices": {"embedding": [3, 4], "lm_head": [3, 5]}}])
def test_an_adapter_of_one_use_of_the_tied_matrix_is_refused(options):
    """Merged, it would be another model than was trained, or one whose output matrix is not its embedding."""
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(build(), peft.LoraConfig(task_type="CAUSAL_LM", **options))
    for call in (lambda: adapted(ids(1, 5)), lambda: greedy(adapted, ids(1, 5), 2)):
        with pytest.raises(ValueError, match="^embedding and lm_head are one matrix, .*'lm_head'.*ensure_w") as caught:
            call()
        assert "\n" not in str(caught.value)


def changed(adapted):
    with torch.no_grad():
        for weight in adapted.parameters():
            if weight.requires_grad:
                weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(2)))
    return adapted.eval()


def test_the_tied_matrix_is_trained_whole_as_the_refusal_says(tmp_path):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["to_out"], modules_to_save=["lm_head"],
                             ensure_weight_tying=True)
    adapted, x = changed(peft.get_peft_model(build(), config)), ids(2, 20)
    logits = adapted(x).logits
    adapted.merge_and_unload().save_pretrained(tmp_path / "merged")
    assert_close(Caracal.from_pretrained(tmp_path / "merged", device="cpu")(x)[0], logits,
                               rtol=1e-4, atol=1e-4)


def test_two_matrices_are_adapted_apart_and_a_quantised_head_is_no_adapter():
    peft = pytest.importorskip("peft")
    untied, x = CaracalForCausalLM(PretrainedCaracalConfig(**SIZE, tie_word_embeddings=False)), ids(2, 20)
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["embedding", "lm_head"])
    adapted = changed(peft.get_peft_model(untied, config))
    logits = adapted(x).logits
    assert_close(adapted.merge_and_unload()(x).logits, logits, rtol=1e-4, atol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, that torchao will take its place
        small = torch.ao.quantization.quantize_dynamic(build(), {"lm_head"})
    assert 0 < (small(x).logits - build()(x).logits).norm() < 0.1 * build()(x).logits.norm()


def test_tokens_that_are_adapted_are_so_in_the_head_too():
    """PEFT ties them where the configuration says, in its dictionary, that the two are one."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["to_value"], trainable_token_indices=[3, 4])
    adapted, x = changed(peft.get_peft_model(build(), config)), torch.tensor([[1, 3, 4, 3, 7]])
    logits = adapted(x).logits
    assert (logits - build()(x).logits)[..., 3:5].abs().max() > 0.1
    assert_close(adapted.merge_and_unload()(x).logits, logits, rtol=1e-4, atol=1e-4)


def test_a_part_of_the_model_may_lie_on_the_disk(folder, tmp_path):
    apart = AutoModelForCausalLM.from_pretrained(folder, device_map="auto", max_memory={"cpu": "100KB"},
                                                 offload_folder=str(tmp_path / "offloaded"))
    assert set(apart.hf_device_map.values()) == {"cpu", "disk"}
    whole, x = AutoModelForCausalLM.from_pretrained(folder), ids(2, 20)
    same(apart(x).logits, whole(x).logits)
    assert torch.equal(greedy(apart, x, 8), greedy(whole, x, 8))


@pytest.mark.parametrize("there", [False, True])
def test_the_hub_gets_a_card_unless_it_has_one(model, monkeypatch, there):
    from huggingface_hub import HfApi, ModelCard

    own, sent = "---\ntags: [mine]\n---\nMy own card.\n", {}

    def create_commit(self, repo_id, operations, **_):
        sent.update({op.path_in_repo: op.path_or_fileobj for op in operations})
        sent.update({name: open(path, "rb").read() for name, path in sent.items() if isinstance(path, str)})

    def upload_file(self, *, path_or_fileobj, path_in_repo, repo_id, **_):
        sent[path_in_repo] = path_or_fileobj

    monkeypatch.setattr(HfApi, "create_repo", lambda self, repo_id, **_: SimpleNamespace(repo_id=f"me/{repo_id}"))
    monkeypatch.setattr(HfApi, "file_exists", lambda self, repo_id, name: there)
    monkeypatch.setattr(HfApi, "upload_file", upload_file)
    monkeypatch.setattr(HfApi, "create_commit", create_commit)
    monkeypatch.setattr(ModelCard, "load", lambda repo_id, **_: ModelCard(sent.get("README.md", own.encode()).decode()))
    model.push_to_hub("small")
    assert {"config.json", "model.safetensors", "README.md"} <= sent.keys()
    card = ModelCard(sent["README.md"].decode())
    assert "caracal" in card.data.tags
    if there:
        assert card.text.strip() == "My own card." and "mine" in card.data.tags
    else:
        assert card.data.library_name == "transformers" and card.data.pipeline_tag == "text-generation"
        assert 'pipeline("text-generation", "me/small")' in card.text and "    import caracal_min.hf" in card.text
        assert f"{model.num_parameters():,} parameters" in card.text and "d_model=32" in card.text


def test_an_upload_that_fails_leaves_what_was_saved(model, monkeypatch, tmp_path):
    from huggingface_hub import HfApi

    asked, sent = {}, {}

    def fails(self, **given):
        sent.update(given | {"token": self.token})
        raise OSError("403 Forbidden")

    monkeypatch.setattr(HfApi, "create_repo", lambda self, name, **given: asked.update(given) or SimpleNamespace(
        repo_id=f"me/{name}"))
    monkeypatch.setattr(HfApi, "file_exists", lambda self, repo_id, name: True)
    monkeypatch.setattr(HfApi, "create_branch", lambda self, repo_id, branch, **_: asked.update(branch=branch))
    monkeypatch.setattr(HfApi, "upload_folder", fails)
    for folder, named, name in (("a", {}, "me/a"), ("b", {"repo_id": "small"}, "me/small")):
        with pytest.raises(OSError, match="^403 Forbidden$"):
            model.save_pretrained(tmp_path / folder, push_to_hub=True, private=True, commit_message="first",
                                  token="of me", revision="tried", create_pr=True, **named)
        written = sent.pop("allow_patterns")
        assert {*written} == {path.name for path in (tmp_path / folder).iterdir()} and "model.safetensors" in written
        assert sent == dict(repo_id=name, folder_path=tmp_path / folder, commit_message="first", revision="tried",
                            create_pr=True, token="of me")
        assert asked == dict(private=True, exist_ok=True, branch="tried")
        assert torch.equal(Caracal.from_pretrained(tmp_path / folder, device="cpu")(ids(1, 9))[0],
                           model(ids(1, 9)).logits)


def test_nothing_of_the_package_needs_it_and_without_transformers_one_line_says_so():
    code = ("import sys, pkgutil, importlib, caracal_min\n"
            "for module in pkgutil.iter_modules(caracal_min.__path__, 'caracal_min.'):\n"
            "    if not module.name.endswith(('.hf', '.__main__')): importlib.import_module(module.name)\n"
            "assert not {'transformers', 'caracal_min.hf'} & {*sys.modules}\n"
            "sys.modules['transformers'] = None\n"
            "import caracal_min.hf")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("ImportError: caracal_min.hf needs transformers: pip install")


def test_a_copy_and_a_generation_config_of_the_model_are_its_own(model):
    other = copy.deepcopy(model)
    other.generation_config = GenerationConfig(max_new_tokens=2, do_sample=False, pad_token_id=0)
    assert other.generate(ids(1, 5)).shape == (1, 7) and model.generation_config.max_new_tokens is None
