"""The README and the pages of the API keep their word: Python runs, files exist, commands are there."""

import re
import tomllib

import pytest
import torch


@pytest.mark.slow
def test_the_examples_run(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readme = (root / "README.md").read_text(encoding="utf-8")
    names = {}
    for example in re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL):
        exec(example, names)
    assert names["r"].shape == (8, 512, 1000)
    assert torch.allclose(names["r"][..., 0], names["v"][..., 0] * names["g"][..., 0], atol=1e-4)
    assert names["logits"].shape == (1, 64, 256) and names["loss"] is None
    assert names["tokens"].shape == (1, 24) and names["text"].startswith("The ")
    assert torch.allclose(names["same"], names["model"](torch.tensor([list(b"The ")]))[0], atol=1e-4)


def test_files_and_commands_exist(root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", readme)
    assert "LICENSE" in links
    assert [link for link in links if not (root / link).exists()] == []
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"^make (\w+)", readme, re.MULTILINE)
    assert commands == ["book", "test"]
    assert all(f"\n{command}:" in makefile for command in commands)


def test_the_extras_are_those_of_the_project(root):
    """The page says what each brings, by the names of packages where it names any."""
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (root / "book" / "how_to_run.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE))
    assert rows.keys() == extras.keys()
    for name in ("eval", "gpu", "onnx", "train"):
        assert rows[name].split(", ") == [re.match(r"[\w.-]+", line)[0] for line in extras[name]]


@pytest.mark.slow
def test_the_five_things_that_most_people_need_run(root, tmp_path, monkeypatch):
    page = (root / "book" / "api.md").read_text(encoding="utf-8")
    example = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(example, names)
    assert (tmp_path / "my_model" / "config.json").is_file()
    assert len(names["ids"]) == 24 and names["text"].startswith("The ")
    assert 2 < names["loss"] < 6 and names["y"].shape == (2, 100, 64)
