"""The README, the page on running the book and the pages of the API keep their word."""

import re
import tomllib
from dataclasses import fields

import pytest
import torch

from caracal_book.commands import COMMANDS
from caracal_min.training import TrainConfig


@pytest.fixture
def readme(root):
    return (root / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_examples_run(readme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for example in re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL):
        exec(example, names)
    assert names["r"].shape == (8, 512, 1000)
    assert torch.allclose(names["r"][..., 0], names["v"][..., 0] * names["g"][..., 0], atol=1e-4)
    assert names["logits"].shape == (1, 64, 256) and names["loss"] is None
    assert names["tokens"].shape == (1, 24) and names["text"].startswith("The ")
    assert names["nats_per_token"].isfinite()
    assert torch.allclose(names["same"], names["model"](torch.tensor([list(b"The ")]))[0], atol=1e-4)


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


def test_files_commands_and_options_exist(root, readme, monkeypatch, capsys):
    from caracal_min.__main__ import main

    links = re.findall(r"\]\((?!https?:)([^)]+)\)", readme)
    assert "LICENSE" in links and [link for link in links if not (root / link).exists()] == []
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{command}:" in makefile for command in re.findall(r"^make (\w+)", readme, re.MULTILINE))
    monkeypatch.setattr("sys.argv", ["caracal_min", "--help"])
    with pytest.raises(SystemExit, match="0"):
        main()
    known = set(re.search(r"\{([\w,]+)\}", capsys.readouterr().out)[1].split(","))
    assert set(re.findall(r"-m caracal_min (\w+)", readme)) <= known
    last = re.search(r"experiments of the book: (.*?)\.", readme, re.DOTALL)[1]
    assert sorted(re.findall(r"`([\w-]+)`", last)) == sorted(COMMANDS)
    options = {f"--{field.name.replace('_', '-')}" for field in fields(TrainConfig)}
    assert set(re.findall(r"`(--[\w-]+)", readme)) - options == {"--help"}


def test_the_tree_names_every_module(root, readme):
    tree = re.search(r"## What is where\n.*?```\n(.*?)```", readme, re.DOTALL)[1]
    ours, books = tree.split("\nbook/caracal_book/ ")
    for folder, lines in (("caracal_min", ours), ("book/caracal_book", books.split("\nbook/ ")[0])):
        listed = {name for words in re.findall(r"^  (\S+(?:  \S+)*)  ", lines, re.MULTILINE) for name in words.split()}
        entries = [path for path in (root / folder).iterdir() if path.is_dir() or path.suffix == ".py"]
        names = {path.stem + "/" * path.is_dir() for path in entries} - {"__init__", "__pycache__/"}
        assert listed | {"__main__"} == names


def test_every_module_has_a_page(root):
    pages = (path.read_text(encoding="utf-8") for path in (root / "book" / "api").glob("*.md"))
    documented = set(re.findall(r"automodule:: (\S+)", "\n".join(pages)))
    package = root / "caracal_min"
    modules = {".".join(path.relative_to(root).with_suffix("").parts) for path in package.rglob("*.py")}
    modules = {name.removesuffix(".__init__") for name in modules} - {"caracal_min"}
    assert modules - documented == {"caracal_min.kernel"}  # imports Triton, which Linux alone has
    listed = re.findall(r"book/api/(\w+)", (root / "_toc.yml").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.stem for path in (root / "book" / "api").glob("*.md"))


def test_the_extras_are_those_of_the_project(root):
    """The page says what each brings, by the names of packages where it names any."""
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    page = (root / "book" / "how_to_run.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE))
    assert rows.keys() == extras.keys()
    for name in ("eval", "gpu", "hf", "onnx", "train"):
        assert rows[name].split(", ") == [re.match(r"[\w.-]+", line)[0] for line in extras[name]]
