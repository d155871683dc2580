"""Where a model of a name is: shipped with the package, in a folder, on the hub."""

import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from caracal_min import Caracal, CaracalConfig, locate
from caracal_min.training.trained import load_trained
from caracal_min.zoo import load_model

SMALL = CaracalConfig(vocab_size=30, d_model=8, n_layers=3, n_heads=2, window_size=7)


def saved(folder: Path, seed: int) -> torch.Tensor:
    """Save a small model, and return its embedding."""
    torch.manual_seed(seed)
    model = Caracal(SMALL)
    model.save_pretrained(folder)
    return model.embedding.weight


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """The embedding of a model that is shipped as `caracal_min/pretrained/pocket`."""
    monkeypatch.setattr(locate, "_SHIPPED", tmp_path / "pretrained")
    (tmp_path / "pretrained" / "notes").mkdir(parents=True)  # no model, so no name
    return saved(tmp_path / "pretrained" / "pocket", seed=0)


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the network was asked")

    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)


def test_a_shipped_model_is_loaded_by_its_name_without_a_network(shipped, no_network):
    assert locate.shipped_models() == ("pocket",)
    for model in (Caracal.from_pretrained("pocket"), load_model("pocket"), load_trained("pocket").model):
        assert torch.equal(model.embedding.weight.cpu(), shipped)
    trained = load_trained("pocket")
    assert trained.run == trained.source.parent == locate._SHIPPED / "pocket" and trained.note == ""


def test_a_folder_of_the_same_name_is_given_as_a_path(shipped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = saved(tmp_path / "pocket", seed=1)
    for given, expected in (("pocket", shipped), (Path("pocket"), mine), ("./pocket", mine),
                            (str(tmp_path / "pocket"), mine)):
        for load in (Caracal.from_pretrained, load_model, lambda given: load_trained(given).model):
            assert torch.equal(load(given).embedding.weight.cpu(), expected), given


@pytest.mark.parametrize("name", ["mikro", "", "poc ket", "a\nb"])
def test_an_unknown_name_gets_one_line_with_the_names_that_there_are_and_asks_no_network(shipped, no_network, name):
    for load in (Caracal.from_pretrained, load_model, load_trained):
        with pytest.raises(FileNotFoundError, match=r"(there is no model|is no folder with a model)") as caught:
            load(name)
        assert "\n" not in str(caught.value)
    if name:
        assert "the name of a shipped model (pocket), a folder that save_pretrained wrote, or" in str(caught.value)


def test_a_revision_is_of_the_hub(shipped, tmp_path):
    for given in ("pocket", tmp_path):
        with pytest.raises(ValueError, match="revision='v1', but .* is not on the hub; leave revision out"):
            Caracal.from_pretrained(given, revision="v1")


def test_a_wheel_carries_what_is_shipped(root, tmp_path):
    """Built from a package of two files, with the project's own settings."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (tmp_path / name).write_bytes((root / name).read_bytes())
    for package in ("caracal_min", "book/caracal_book"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "caracal_min" / "version.py").write_text("__version__ = '0'")
    files = ("config.json", "model.safetensors", "SHA256SUMS", "tokenizer.json", "README.md")
    (tmp_path / "caracal_min" / "pretrained" / "pocket").mkdir(parents=True)
    for name in files:
        (tmp_path / "caracal_min" / "pretrained" / "pocket" / name).write_text("x")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
                    "--wheel-dir", tmp_path / "dist", tmp_path], check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert {f"caracal_min/pretrained/pocket/{name}" for name in files} <= set(zipfile.ZipFile(wheel).namelist())
