"""Every model that the paper names, by name; and what it costs."""

import errno
import os

import pytest
import torch

from caracal_min import Caracal
from caracal_min.config import PRESETS
from caracal_min.modules import SlidingWindowAttention
from caracal_min.zoo import ARCHITECTURES, BASELINES, VARIANTS, load_model, make_model
from caracal_min.zoo.baselines import Baseline

LAYERS = {"default": "FFAFFAFFAFFA", "no-swa": "F" * 12, "no-swa-no-pc": "F" * 12, "pe": "FFAFFAFFAFFA",
          "sslp": "FFAFFAFFAFFA", "5:1": "FFFFFAFFFFFA", "3:1": "FFFAFFFAFFFA", "2:1": "FFAFFAFFAFFA", "1:1": "FA" * 6}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_are_rows_of_the_papers_tables(variant):
    with torch.device("meta"):
        model, default = make_model(preset="small", variant=variant), make_model(preset="small")
    mixers = [block.mixer for block in model.blocks]
    assert "".join("A" if isinstance(m, SlidingWindowAttention) else "F" for m in mixers) == LAYERS[variant]
    fourier = [m for m in mixers if not isinstance(m, SlidingWindowAttention)]
    assert all((m.pre_conv is None) == (variant == "no-swa-no-pc") for m in fourier)
    assert (model.positions is not None) == (variant == "pe")
    assert (model.num_parameters() < default.num_parameters()) == (variant in ("sslp", "no-swa", "no-swa-no-pc", "5:1",
                                                                               "3:1"))


def test_the_gate_of_every_variant_can_be_cut(tmp_path):
    with torch.device("meta"):
        for variant in VARIANTS:
            model, whole = (make_model(preset="nano", variant=variant, gate_length=n) for n in (9, None))
            assert (model.config.gate_length, whole.config.gate_length) == (9, None)
            assert model.num_parameters() == whole.num_parameters()
    with pytest.raises(ValueError, match="llama has no setting 'gate_length' to change; accepted: d_model, n_l"):
        make_model("llama", "nano", gate_length=9)
    make_model("llama", "nano", vocab_size=30).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="gate_length=9, but .* holds a baseline; only caracal has a gate"):
        load_model(tmp_path, gate_length=9)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_saved_and_loaded_by_one_name(architecture, tmp_path):
    torch.manual_seed(0)
    model = make_model(architecture, "nano", vocab_size=300).eval()
    model.save_pretrained(tmp_path / "model")
    loaded = load_model(tmp_path / "model").eval()
    assert type(loaded) is (Caracal if architecture == "caracal" else Baseline)
    tokens = torch.randint(300, (2, 9))
    with torch.inference_mode():
        assert torch.equal(model(tokens)[0], loaded(tokens)[0])
    assert loaded.num_parameters() == model.num_parameters()


@pytest.mark.parametrize("architecture", ["caracal", "llama"])
def test_a_save_that_fails_leaves_the_model_that_was_there(architecture, tmp_path, monkeypatch):
    make_model(architecture, "nano", vocab_size=300).save_pretrained(tmp_path)
    before, sync = {path.name: path.read_bytes() for path in tmp_path.iterdir()}, os.fsync

    def last_file_fails(opened):
        if os.fstat(opened).st_size == len(before["config.json"]):  # the weights are written by now
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(opened)

    monkeypatch.setattr(os, "fsync", last_file_fails)
    with pytest.raises(OSError, match=rf"^{tmp_path} could not be written \(.*No space left on device\); what was"):
        make_model(architecture, "nano", vocab_size=301).save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("architecture", ["caracal", *BASELINES])
def test_a_model_says_on_which_length_it_was_trained(architecture, tmp_path):
    pytest.importorskip("caracal_min.hf")
    from transformers import AutoConfig

    make_model(architecture, "nano", context=96).save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).max_position_embeddings == 96
    assert load_model(tmp_path).num_parameters() == make_model(architecture, "nano").num_parameters()


def test_learned_positions_cover_the_context():
    assert make_model(preset="nano", variant="pe", context=3000).config.max_positions == 3000
    assert make_model(preset="nano", variant="pe", context=300).config.max_positions == 2048


@pytest.mark.parametrize("kind, words", [
    (("gpt", "tiny", "default"), "unknown architecture 'gpt'; accepted: caracal, llama, mamba, mamba2, jamba"),
    (("caracal", "huge", "default"), "unknown preset 'huge'; accepted: nano, micro, tiny"),
    (("caracal", "tiny", "7:1"), "unknown variant '7:1'; accepted: default, no-swa"),
    (("llama", "tiny", "sslp"), "variant='sslp' with architecture='llama'; only caracal has variants"),
])
def test_other_names_get_one_line(kind, words):
    with pytest.raises(ValueError, match=words) as caught:
        make_model(*kind)
    assert "\n" not in str(caught.value)


def test_a_foreign_folder_gets_one_line(tmp_path):
    with pytest.raises((FileNotFoundError, ValueError)) as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)


def test_presets_keep_their_vocabulary_unless_told():
    with torch.device("meta"):
        assert {name: make_model(preset=name).config.vocab_size for name in PRESETS} == {
            name: size.vocab_size for name, size in PRESETS.items()}
