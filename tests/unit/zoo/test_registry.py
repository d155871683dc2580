"""Every model that the paper names, by name; and what it costs."""

import errno
import os

import pytest
import torch

from caracal_min import Caracal
from caracal_min.config import PRESETS
from caracal_min.modules import SlidingWindowAttention
from caracal_min.training import flops_per_token, peak_flops
from caracal_min.zoo import ARCHITECTURES, VARIANTS, load_model, make_model
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


def test_learned_positions_cover_the_context():
    assert make_model(preset="nano", variant="pe", context=3000).config.max_positions == 3000
    assert make_model(preset="nano", variant="pe", context=300).config.max_positions == 2048


@pytest.mark.parametrize("kind, words", [
    (("gpt", "tiny", "default"), "unknown architecture 'gpt'; accepted: caracal, llama, mamba, mamba2, jamba"),
    (("caracal", "huge", "default"), "unknown preset 'huge'; accepted: nano, tiny"),
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


def multiplications(model, tokens):
    """Count two operations for every weight of a matrix product, with torch's own counter."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.logits(tokens)
    return counter.get_total_flops()


@pytest.mark.parametrize("architecture", ["caracal", "llama"])
def test_flops_agree_with_those_that_torch_counts(architecture):
    """Torch counts no FFT, no attention on a CPU and no 3-tap convolution of ours: the matrix products remain."""
    model = make_model(architecture, "nano", vocab_size=1000)
    counted = 3 * multiplications(model, torch.zeros(1, 64, dtype=torch.int64)) / 64
    ours = flops_per_token(architecture, "nano", "default", 1000, 64)
    assert 0.9 * ours < counted < 1.15 * ours


def test_flops_grow_as_the_mixers_do():
    llama, ours, pure = ([flops_per_token(a, "tiny", v, 50_257, length) for length in (512, 8192)]
                         for a, v in (("llama", "default"), ("caracal", "default"), ("caracal", "no-swa")))
    assert llama[1] - llama[0] == 3 * 12 * 4 * 512 * (8192 - 512) / 2
    assert ours[1] < 1.02 * ours[0] and pure[1] < 1.02 * pure[0]
    assert 6 * 62_494_208 < ours[0] < 1.05 * 6 * 62_494_208
    assert flops_per_token("mamba", "nano", "default", 256, 64) is None


def test_peaks_are_known_for_gpus_only(monkeypatch):
    assert peak_flops(torch.device("cpu")) is None
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    assert peak_flops(torch.device("cuda")) == 989e12
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA L4")
    assert peak_flops(torch.device("cuda")) == 121e12
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "an unknown GPU")
    assert peak_flops(torch.device("cuda")) is None


def test_presets_keep_their_vocabulary_unless_told():
    with torch.device("meta"):
        assert {name: make_model(preset=name).config.vocab_size for name in PRESETS} == {
            name: size.vocab_size for name, size in PRESETS.items()}
