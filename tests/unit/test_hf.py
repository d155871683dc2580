"""`CaracalModel` and `CaracalForCausalLM` against `Caracal`, and what is built on transformers."""

import copy
import math
import shutil
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer, Trainer

from caracal_min import Caracal, CaracalConfig
from caracal_min.data import ByteTokenizer
from caracal_min.hf import CaracalCache, CaracalForCausalLM, CaracalModel, PretrainedCaracalConfig
from caracal_min.model import PRETRAINED

SIZE = dict(vocab_size=256, d_model=32, n_layers=4, n_heads=2, window_size=8)
VARIANTS = [{}, {"positional_encoding": "learned", "max_positions": 90}, {"gate_length": 16},
            {"fourier_per_attention": None, "pre_conv": False, "gate": "single_stage"}]


def caracal(**changes):
    """A model whose layers say more than its embedding: predictions depend on all tokens."""
    torch.manual_seed(0)
    return Caracal(CaracalConfig(**SIZE, init_std=0.2, embedding_std=0.2, **changes)).eval()


def build(**changes):
    return CaracalForCausalLM.from_caracal(caracal(**changes))


def ids(*shape, seed=1):
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(seed))


def same(found, expected):
    """Copies of a model may add in another order, where their weights lie otherwise in memory."""
    assert_close(found, expected, rtol=1e-4, atol=1e-4)


def native(folder):
    return Caracal.from_pretrained(folder, device="cpu")


def padded(rows, left, fill=0):
    """Rows of different lengths as one batch, and its attention mask."""
    batch = torch.full((len(rows), max(map(len, rows))), fill)
    mask = torch.zeros_like(batch)
    for i, row in enumerate(rows):
        place = slice(-len(row), None) if left else slice(len(row))
        batch[i, place] = row
        mask[i, place] = 1
    return batch, mask


def generate(model, x, count, **options):
    options = {"do_sample": False, "pad_token_id": 0} | options
    return model.generate(x, max_new_tokens=count, **options)


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
def test_each_class_reads_what_the_others_write(tmp_path, changes):
    ours, x = caracal(**changes), ids(3, 70)
    ours.save_pretrained(tmp_path / "native")
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "native")
    base = AutoModel.from_pretrained(tmp_path / "native")
    assert isinstance(whole, CaracalForCausalLM) and isinstance(base, CaracalModel)
    assert whole.config.shape == ours.config and not whole.training
    assert whole.num_parameters() == base.num_parameters() == ours.num_parameters()
    whole.save_pretrained(tmp_path / "whole")
    base.save_pretrained(tmp_path / "base")
    for name in ("native", "whole", "base"):
        assert load_file(tmp_path / name / "model.safetensors").keys() == ours.state_dict().keys()
        same(native(tmp_path / name)(x)[0], ours(x)[0])
        for auto in (AutoModelForCausalLM, AutoModel):
            model, report = auto.from_pretrained(tmp_path / name, output_loading_info=True)
            assert not any(report.values())
            same(model.base_model(x).last_hidden_state, ours.hidden(x))
            if auto is AutoModelForCausalLM:
                same(model(x).logits, ours(x)[0])


def test_the_configuration_has_the_names_of_both(tmp_path):
    names = dict(hidden_size=32, num_hidden_layers=4, num_attention_heads=2)
    config = PretrainedCaracalConfig(vocab_size=256, window_size=8, gate_length=5, **names)
    assert config.shape == CaracalConfig(**SIZE, gate_length=5)
    assert names.items() <= {name: getattr(config, name) for name in names}.items()
    special = (config.pad_token_id, config.bos_token_id, config.eos_token_id, config.use_cache)
    assert special == (None, None, None, True)  # as Llama's
    config.save_pretrained(tmp_path)
    changed = AutoConfig.from_pretrained(tmp_path, gate_length=4)
    assert changed.shape == CaracalConfig(**SIZE, gate_length=4)
    with pytest.raises(ValueError, match="d_model=32 is not divisible by n_heads=3"):
        PretrainedCaracalConfig(**SIZE | {"n_heads": 3})


# The forward pass


def test_outputs(model):
    x = ids(2, 20)
    whole = model(x, labels=x)
    assert list(whole) == ["loss", "logits"]
    assert all(map(torch.equal, model(x, labels=x, return_dict=False), whole.to_tuple()))
    kept = torch.tensor([0, 3, 19])
    same(model(x, logits_to_keep=5).logits, whole.logits[:, -5:])
    same(model(x, logits_to_keep=kept).logits, whole.logits[:, kept])
    labels = x.clone()
    labels[0, :10] = -100
    lost = -whole.logits[:, :-1].log_softmax(-1).gather(-1, x[:, 1:, None])[..., 0]
    counted = lost[labels[:, 1:] != -100]
    assert_close(model(x, labels=labels).loss, counted.mean())
    assert_close(model(x, labels=labels, num_items_in_batch=7).loss, counted.sum() / 7)
    # As numpy's memory maps of shards have them.
    small = model(x.to(torch.uint8), labels=x.to(torch.uint8))
    assert torch.equal(small.logits, whole.logits) and torch.equal(small.loss, whole.loss)
    with pytest.raises(ValueError, match="input_ids holds id 256; this model knows 0 to 255"):
        model(x.clamp(max=0) + 256)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("changes", VARIANTS[:3])
def test_a_row_of_a_padded_batch_gives_what_it_gives_alone(changes, left):
    model, rows = build(**changes), [ids(n, seed=n) for n in (5, 30, 2, 17)]
    batch, mask = padded(rows, left)
    found = model(batch, attention_mask=mask, labels=batch.masked_fill(mask == 0, -100))
    alone = [model(row[None], labels=row[None]) for row in rows]
    for logits, kept, one in zip(found.logits, mask.bool(), alone, strict=True):
        same(logits[kept], one.logits[0])
    # The first token of a row has nothing before it, so the others alone are counted.
    total = sum(one.loss * (len(row) - 1) for one, row in zip(alone, rows, strict=True))
    assert_close(found.loss, total / (54 - 4))
    other, _ = padded(rows, left, fill=9)
    same(model(other, attention_mask=mask).logits, found.logits)


@pytest.mark.parametrize("padding", [0, 4])
def test_smoothed_labels_are_those_of_the_next_token(model, tmp_path, padding):
    """`Trainer` scores the first token at the padding before it, which must not have read it."""
    smooth = dict(label_smoothing_factor=0.1, use_cpu=True, report_to=[])
    trainer = Trainer(model, transformers.TrainingArguments(str(tmp_path), **smooth))
    x, mask = ids(1, 20), torch.ones(1, 20, dtype=torch.int64)
    mask[:, :padding] = 0
    batch = dict(input_ids=x, attention_mask=mask, labels=x.masked_fill(mask == 0, -100))
    found = trainer.compute_loss(model, batch)
    lost = -model(x[:, padding:]).logits[:, :-1].log_softmax(-1)
    scored = [0.9 * lost.gather(-1, x[:, padding + 1:, None])[..., 0] + 0.1 * lost.mean(-1)]
    if padding:  # logits of 0: every token is as likely
        scored.append(torch.full((1, 1), math.log(256)))
    assert_close(found, torch.cat(scored, 1).mean())


@pytest.mark.parametrize("changes", VARIANTS)
def test_documents_whose_positions_begin_at_0_give_what_they_give_alone(changes):
    model, parts = build(**changes).double(), [5, 17, 1, 20]
    x = ids(1, 43)
    rows = x.split(parts, 1)
    collate = transformers.DataCollatorWithFlattening()
    batch = collate([{"input_ids": row[0].tolist()} for row in rows])
    packed = model(**batch | {"labels": x}, output_hidden_states=True)
    alone = [model(row, labels=row, output_hidden_states=True) for row in rows]
    exact = dict(rtol=1e-10, atol=1e-10)
    assert_close(packed.logits, torch.cat([one.logits for one in alone], 1), **exact)
    for i, found in enumerate(packed.hidden_states):
        assert_close(found, torch.cat([one.hidden_states[i] for one in alone], 1), **exact)
    total = sum(one.loss * (n - 1) for one, n in zip(alone, parts, strict=True) if n > 1)
    assert_close(packed.loss, total / (43 - 4))


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_runs_blocks_twice_and_changes_no_gradient(model, reentrant):
    x, one, runs, found = ids(2, 20), copy.deepcopy(model).train(), [], []
    for block in one.model.blocks:
        block.mixer.register_forward_hook(lambda *_: runs.append(1))
    for expected_runs in (4, 12):
        one(x, labels=x).loss.backward()
        assert len(runs) == expected_runs
        found.append([weight.grad.clone() for weight in one.parameters()])
        one.zero_grad()
        one.gradient_checkpointing_enable({"use_reentrant": reentrant})
    assert all(map(torch.equal, *found))


# Generation


@pytest.mark.parametrize("changes", VARIANTS)
def test_generation_is_that_of_caracal_with_and_without_cache(changes):
    x, model = ids(3, 9), build(**changes)
    found = generate(model, x, 60)
    assert torch.equal(found, caracal(**changes).generate(x, 60, temperature=0.0))
    assert torch.equal(found, generate(model, x, 60, use_cache=False))
    assert len({tuple(row.tolist()) for row in found[:, 9:]}) == 3


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("changes", [VARIANTS[1], VARIANTS[2]])
def test_a_row_of_a_padded_batch_is_continued_as_alone(changes, left):
    model, rows = build(**changes), [ids(n, seed=n) for n in (5, 30, 1, 17)]
    batch, mask = padded(rows, left)
    options = dict(return_dict_in_generate=True, output_logits=True)
    got = generate(model, batch, 40, attention_mask=mask, **options)
    for i, row in enumerate(rows):
        alone = generate(model, row[None], 40, **options)
        assert torch.equal(got.sequences[i, 30:], alone.sequences[0, len(row):])
        same(torch.stack(got.logits)[:, i], torch.stack(alone.logits)[:, 0])


@pytest.mark.parametrize("changes", [VARIANTS[0], VARIANTS[2]])
def test_a_cache_grows_with_what_it_reads(changes):
    """In parts with padding, beyond what the first call makes room for; without a graph."""
    model, x = build(**changes), ids(2, 600)
    mask = torch.rand(2, 600, generator=torch.Generator().manual_seed(3)) < 0.8
    mask[0, 0], mask[1, :1], mask[1, 41:49] = True, False, False  # row 1 sleeps through three parts
    past, start, parts = CaracalCache(), 0, []
    for length in [1, 40, 1, 7, 250, 1, 150, 1, 149]:
        end = start + length
        one = model(x[:, start:end], attention_mask=mask[:, :end], past_key_values=past)
        parts.append(one.logits)
        start = end
    logits = torch.cat(parts, 1)
    assert past.get_seq_length() == 600 and not logits.requires_grad
    for row in range(2):
        expected = model(x[row, mask[row]][None]).logits[0]
        assert_close(logits[row, mask[row]], expected, rtol=1e-3, atol=1e-3)


def test_generation_goes_on_from_a_cache(model):
    batch, mask = padded([ids(4, seed=4), ids(9, seed=9)], left=True)
    whole = generate(model, batch, 20, attention_mask=mask)
    first = generate(model, batch, 8, attention_mask=mask, return_dict_in_generate=True)
    # The name of the cache is another one from transformers 5.24 on.
    name = "cache" if "cache" in first else "past_key_values"
    past = {name: first[name]}
    mask = torch.cat([mask, torch.ones(2, 8, dtype=torch.int64)], 1)
    assert torch.equal(generate(model, first.sequences, 12, attention_mask=mask, **past), whole)


@pytest.mark.parametrize("options", [
    dict(num_beams=4, num_return_sequences=2, length_penalty=2.0),
    dict(num_beams=3, do_sample=True, top_k=20),
    dict(do_sample=True, temperature=0.8, top_p=0.9),
])
def test_beams_and_samples_take_their_caches_along(model, options):
    batch, mask = padded([ids(4, seed=4), ids(9, seed=9)], left=True)
    found = []
    for use_cache in (True, False):
        torch.manual_seed(0)
        options["use_cache"] = use_cache
        found.append(generate(model, batch, 24, attention_mask=mask, **options))
    assert torch.equal(*found)


def test_an_end_of_text_ends_a_row_and_a_cache_does_not_go_back(tmp_path):
    ours = caracal()
    prompt = torch.tensor([list(b"The")])
    stop = ours.generate(prompt, 12, temperature=0.0)[0].tolist()[7]
    ours.tokenizer = ByteTokenizer()
    ours.tokenizer.end_of_text = stop
    ours.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    for model in (loaded, CaracalForCausalLM.from_caracal(ours)):
        found = model.generate(prompt, max_new_tokens=12, do_sample=False)[0].tolist()
        assert found[-1] == stop and len(found) <= 8
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful"):
        model.generate(prompt, prompt_lookup_num_tokens=2)


# Tools


def test_the_tokenizer_of_a_folder_and_a_pipeline(folder):
    tokenizer = AutoTokenizer.from_pretrained(PRETRAINED / "micro")
    # Or a model that is tuned on such texts never learns to stop.
    assert tokenizer("Hello" + tokenizer.eos_token).input_ids[-1] == 4095 == tokenizer.eos_token_id
    write = transformers.pipeline("text-generation", model=str(folder), device="cpu")
    write.tokenizer.pad_token = write.tokenizer.eos_token
    prompts = ["The", "A much longer prompt", "x"]
    batch = write(prompts, max_new_tokens=12, do_sample=False, batch_size=3)
    alone = [write(prompt, max_new_tokens=12, do_sample=False) for prompt in prompts]
    assert batch == alone
    text = native(folder).generate_text("The", 12, temperature=0.0)
    assert alone[0][0]["generated_text"].replace("\0", "") == text


def train(model, out, folder):
    """Six steps of `Trainer` on left-padded texts, from the checkpoint in `out` if it is there."""
    padding = dict(padding_side="left", pad_token="<|endoftext|>")
    tokenizer = AutoTokenizer.from_pretrained(folder, **padding)
    texts = [tokenizer(f"text number {i} " * (1 + i % 5)) for i in range(48)]
    transformers.set_seed(0)
    settings = transformers.TrainingArguments(
        str(out), max_steps=6, per_device_train_batch_size=4, seed=0, save_steps=3,
        gradient_accumulation_steps=2, logging_steps=1, report_to=[], learning_rate=3e-3,
        use_cpu=True, disable_tqdm=True)
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    trainer = Trainer(model, settings, train_dataset=texts, data_collator=collator)
    trainer.train(resume_from_checkpoint=(out / "checkpoint-3").is_dir())
    return trainer


def test_a_run_of_trainer_resumes_on_the_same_path(folder, tmp_path):
    config = PretrainedCaracalConfig(**SIZE)
    whole = train(CaracalForCausalLM(config), tmp_path / "whole", folder)
    losses = [entry["loss"] for entry in whole.state.log_history if "loss" in entry]
    assert len(losses) == 6 and losses[-1] < losses[0] - 0.3
    shutil.copytree(tmp_path / "whole" / "checkpoint-3", tmp_path / "cut" / "checkpoint-3")
    resumed = train(CaracalForCausalLM(config), tmp_path / "cut", folder)
    expected = whole.model.state_dict()
    assert all(torch.equal(t, expected[name]) for name, t in resumed.model.state_dict().items())
    x = ids(2, 9)
    same(native(tmp_path / "cut" / "checkpoint-6")(x)[0], whole.model.eval()(x).logits)


@pytest.mark.parametrize("target", [["to_out", "to_qkv"], "all-linear"])
def test_adapters_see_no_future_are_saved_and_are_merged(folder, tmp_path, target):
    peft = pytest.importorskip("peft")
    torch.manual_seed(5)
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=target, r=4)
    adapted = train(peft.get_peft_model(build(), config), tmp_path / "out", folder).model.eval()
    x = ids(2, 32)
    logits = adapted(x).logits
    assert not torch.allclose(logits, build()(x).logits, atol=1e-3)
    other = x.clone()
    other[:, 20:] = 7
    same(adapted(other).logits[:, :20], logits[:, :20])
    adapted.save_pretrained(tmp_path / "adapter")
    loaded = peft.PeftModel.from_pretrained(build(), tmp_path / "adapter").eval()
    assert_close(loaded(x).logits, logits)
    assert torch.equal(generate(loaded, x, 8), generate(adapted, x, 8, use_cache=False))
    loaded.merge_and_unload().save_pretrained(tmp_path / "merged")
    assert_close(native(tmp_path / "merged")(x)[0], logits, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_trl_tunes_the_shipped_model(tmp_path):
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    texts = [f"The history of number {i} is long. " * (1 + i % 4) for i in range(16)]
    settings = trl.SFTConfig(
        str(tmp_path), max_steps=2, per_device_train_batch_size=2, report_to=[], use_cpu=True,
        bf16=False, logging_steps=1, disable_tqdm=True, packing=True, max_length=64)
    tokenizer = AutoTokenizer.from_pretrained(PRETRAINED / "micro")
    data = datasets.Dataset.from_dict({"text": texts})
    trainer = trl.SFTTrainer(str(PRETRAINED / "micro"), settings, train_dataset=data, processing_class=tokenizer)
    trainer.train()
    assert 2 < trainer.state.log_history[0]["loss"] < 5
    native(tmp_path / "checkpoint-2")


def test_the_harness_scores_a_text_as_the_model_does(folder):
    harness = pytest.importorskip("lm_eval.models.huggingface")
    pairs = [("The cat", " sat on the mat"), ("A", " b"), ("A longer context", "!")]
    requests = [SimpleNamespace(args=pair) for pair in pairs]
    scorer = harness.HFLM(str(folder), device="cpu", batch_size=2)
    scores = scorer.loglikelihood(requests, disable_tqdm=True)
    for (score, _), (context, continuation) in zip(scores, pairs, strict=True):
        x = torch.tensor([list((context + continuation).encode())])
        logits = native(folder)(x[:, :-1])[0].log_softmax(-1)
        expected = logits.gather(-1, x[:, 1:, None])[0, len(context) - 1:].sum()
        assert score == pytest.approx(expected.item(), rel=1e-4)
