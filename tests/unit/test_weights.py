"""A model on disk: what was saved loads again, with the same logits; a save that fails leaves the old one."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch.nn.utils import prune

from caracal_min import Caracal, CaracalConfig, model
from caracal_min.data import ByteTokenizer

SMALL = CaracalConfig(vocab_size=256, d_model=8, n_layers=3, n_heads=2, window_size=7, init_std=0.2, embedding_std=0.5)
CONFIG, WEIGHTS = "config.json", "model.safetensors"
TOKENS = torch.randint(256, (2, 40), generator=torch.Generator().manual_seed(0))


def small(seed: int = 0, **changes) -> Caracal:
    torch.manual_seed(seed)
    return Caracal(CaracalConfig(**vars(SMALL) | changes)).eval()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_was_saved_loads_with_the_same_logits(tmp_path):
    saved, folder = small(), tmp_path / "deep" / "model"
    saved.tokenizer = ByteTokenizer()
    saved.save_pretrained(folder)
    assert {*contents(folder)} == {CONFIG, WEIGHTS, "tokenizer.json", "tokenizer_config.json"}
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes[WEIGHTS] == modes[CONFIG]  # safetensors alone makes a file that only its owner can read
    loaded = Caracal.from_pretrained(folder, device="cpu")
    assert loaded.config == SMALL and loaded.tokenizer.name == "byte" and not loaded.training
    assert torch.equal(loaded(TOKENS)[0], saved(TOKENS)[0])
    assert all(p.requires_grad for p in loaded.parameters())
    before = contents(folder)
    loaded.save_pretrained(folder)  # over the files that it was read from
    assert contents(folder) == before
    other = Caracal(replace(SMALL, n_heads=1))
    other.save_pretrained(folder)  # over a model of another configuration
    loaded = Caracal.from_pretrained(folder, device="cpu")
    assert torch.equal(loaded(TOKENS)[0], other(TOKENS)[0])
    assert loaded.tokenizer is None and {*contents(folder)} == {CONFIG, WEIGHTS}  # not the old model's


def test_what_transformers_saves_loads_whole_and_in_parts_and_it_reads_ours(tmp_path):
    pytest.importorskip("transformers")
    from caracal_min.hf import CaracalForCausalLM

    ours = small()
    theirs = CaracalForCausalLM.from_caracal(ours)
    theirs.save_pretrained(tmp_path / "whole")
    theirs.save_pretrained(tmp_path / "parts", max_shard_size="5KB")
    assert len([*(tmp_path / "parts").glob("model-*.safetensors")]) > 1
    ours.save_pretrained(tmp_path / "ours")
    for name in ("whole", "parts", "ours"):
        assert json.loads((tmp_path / name / CONFIG).read_text())["architectures"] == ["CaracalForCausalLM"]
        assert torch.equal(Caracal.from_pretrained(tmp_path / name, device="cpu")(TOKENS)[0], ours(TOKENS)[0])
    with torch.no_grad():
        found = CaracalForCausalLM.from_pretrained(tmp_path / "ours")(TOKENS).logits
    torch.testing.assert_close(found, ours(TOKENS)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("stored, asked, found", [
    (torch.bfloat16, None, torch.float32), (torch.float64, None, torch.float64),
    (torch.bfloat16, torch.bfloat16, torch.bfloat16), (torch.float32, torch.bfloat16, torch.bfloat16)])
def test_weights_are_loaded_in_float32_or_in_the_type_that_is_asked_for(tmp_path, name, stored, asked, found):
    saved = small().to(stored)
    saved.save_pretrained(tmp_path)
    loaded = Caracal.from_pretrained(tmp_path, device="cpu", **{name: asked})
    for a, b in zip(saved.parameters(), loaded.parameters(), strict=True):
        assert b.dtype == found and torch.equal(b, a.to(found)) and b.data_ptr() % 64 == 0


def test_a_gate_is_cut_on_loading_and_other_changes_are_told(tmp_path):
    small().save_pretrained(tmp_path)
    whole, cut = (Caracal.from_pretrained(tmp_path, gate_length=n, device="cpu") for n in (None, 9))
    assert cut.config.gate_length == 9 and torch.equal(cut(TOKENS[:, :9])[0], whole(TOKENS[:, :9])[0])
    assert not torch.allclose(cut(TOKENS)[0], whole(TOKENS)[0], atol=1e-2)
    cut.save_pretrained(tmp_path / "cut")
    assert Caracal.from_pretrained(tmp_path / "cut").config.gate_length == 9
    with pytest.raises(ValueError, match="unknown field 'gate_lenght'; accepted: vocab_size, "):
        Caracal.from_pretrained(tmp_path, gate_lenght=9)
    with pytest.raises(RuntimeError, match="embedding.weight"):
        Caracal.from_pretrained(tmp_path, d_model=16)


def test_fields_of_other_tools_mean_nothing_and_other_kinds_of_model_are_told(tmp_path):
    small().save_pretrained(tmp_path)
    stored = json.loads((tmp_path / CONFIG).read_text())
    del stored["gate_length"]  # as a folder has it that was written before there was one
    (tmp_path / CONFIG).write_text(json.dumps(stored | {"architectures": ["X"], "auto_map": {"A": "evil.Model"}}))
    assert Caracal.from_pretrained(tmp_path).config == SMALL
    (tmp_path / CONFIG).write_text(json.dumps(stored | {"model_type": "llama"}))
    with pytest.raises(ValueError, match="unknown model_type 'llama'; accepted: caracal"):
        Caracal.from_pretrained(tmp_path)
    (tmp_path / CONFIG).write_text(json.dumps(stored))
    for name in (WEIGHTS, CONFIG):
        (tmp_path / name).unlink()
        with pytest.raises(FileNotFoundError, match=name):
            Caracal.from_pretrained(tmp_path)


def fill_the_disk(monkeypatch):
    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(safetensors.torch, "save", full)


def pull_the_plug(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "save_tokenizer", interrupted)


@pytest.mark.parametrize("fail, error", [(fill_the_disk, OSError), (pull_the_plug, KeyboardInterrupt)])
def test_a_save_that_fails_leaves_the_model_that_was_there(tmp_path, monkeypatch, fail, error):
    saved, other = small(), small(1, window_size=5)
    saved.tokenizer = other.tokenizer = ByteTokenizer()
    saved.save_pretrained(tmp_path)
    before = contents(tmp_path)
    fail(monkeypatch)
    with pytest.raises(error):
        other.save_pretrained(tmp_path)
    assert contents(tmp_path) == before


def pruned(m):
    prune.l1_unstructured(m.blocks[1].mixer.to_out, "weight", 0.5)


def adapted(m):
    peft = pytest.importorskip("peft")
    peft.get_peft_model(m, peft.LoraConfig(target_modules=["to_out"]))


def grown(m):
    m.embedding = torch.nn.Embedding(300, 8)


@pytest.mark.parametrize("change", [pruned, adapted, grown])
def test_what_could_not_be_loaded_again_is_not_saved(tmp_path, change):
    small().save_pretrained(tmp_path)
    before, changed = contents(tmp_path), small(1)
    change(changed)
    with pytest.raises(ValueError, match="^the model could not be loaded again: its tensor '.*") as caught:
        changed.save_pretrained(tmp_path)
    assert "\n" not in str(caught.value) and contents(tmp_path) == before


class Bomb:
    """Unpickling it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["pytorch_model.bin", WEIGHTS])
def test_nothing_is_unpickled(tmp_path, name):
    small().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / WEIGHTS).unlink()
    (tmp_path / "model" / name).write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    with pytest.raises((OSError, safetensors.SafetensorError)):
        Caracal.from_pretrained(tmp_path / "model")
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(Bomb(tmp_path / "ran"))).close()
    assert (tmp_path / "ran").exists()  # the bomb is one


def test_names_are_found_in_the_package_in_folders_and_on_the_hub(tmp_path, monkeypatch):
    """The hub by its own loader, offline, on a cache in its layout."""
    import huggingface_hub.constants

    monkeypatch.setattr(model, "PRETRAINED", tmp_path / "pretrained")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    commit, repo = "0123456789abcdef0123456789abcdef01234567", tmp_path / "models--someone--caracal"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    shipped, mine, hub = (small(seed) for seed in range(3))
    shipped.save_pretrained(tmp_path / "pretrained" / "pocket")
    mine.save_pretrained(tmp_path / "pocket")
    hub.save_pretrained(repo / "snapshots" / commit)
    assert model.shipped_models() == ("pocket",)
    for name, expected in (("pocket", shipped), ("./pocket", mine), (Path("pocket"), mine), ("someone/caracal", hub)):
        assert torch.equal(Caracal.from_pretrained(name, device="cpu").embedding.weight, expected.embedding.weight)
    for name in ("mikro", "runs/nano/model", Path("no/folder")):
        with pytest.raises(FileNotFoundError, match=r"^there is no model .*shipped one \(pocket\), a folder, .*hub$"):
            Caracal.from_pretrained(name)
