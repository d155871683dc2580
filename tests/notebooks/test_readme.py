"""The README, the page on running the book and the pages of the API keep their word."""

import re
import shlex
import shutil
import socket
import subprocess
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from caracal_book.commands import COMMANDS
from caracal_book.commands.record import RecordConfig, run_record
from caracal_book.records import code
from caracal_book.rules.printed_values import parse_line
from caracal_book.rules.prose_numbers import disagreement, quotes
from caracal_min.model import Caracal, locate_model
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


# What takes minutes on the page, and what stands in its place here.
SHORTER = {"200_000": "8192", "--eval-every 24": "--eval-every 2", "50_000": "4096", "100_000": "8192",
           "16384": "2048", "--prompt": "--max-new-tokens 8 --prompt"}


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


@pytest.fixture
def going_on(root, tmp_path, monkeypatch):
    """The page Going on, in an empty folder without a network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("the network was asked"))
    return (root / "book" / "going_on.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_commands_of_going_on_run(going_on, tmp_path, monkeypatch, capsys):
    from caracal_min.__main__ import main

    commands = [shlex.split(line, comments=True) for block in blocks(going_on, "bash")
                for line in block.replace("\\\n", " ").splitlines()]
    ours = [command[3:] for command in commands if command[:3] == ["python", "-m", "caracal_min"]]
    (written,) = [command[2] for command in commands if command[:2] == ["python", "-c"]]
    exec(written)
    said = []
    for command in ours:
        if "tiny" in command:  # a day of a GPU
            assert set(re.findall(r"--[\w-]+", " ".join(command))) <= {
                f"--{field.name.replace('_', '-')}" for field in fields(TrainConfig)}
            continue
        line = shlex.join(command)
        for old, new in SHORTER.items():
            line = line.replace(old, new)
        monkeypatch.setattr("sys.argv", ["caracal_min", *shlex.split(line)])
        main()
        said.append(capsys.readouterr().out)
    trained, before, sampled, evaluated, short, longer = said
    assert "model: runs/mine/model" in trained and "bits per byte" in evaluated
    assert before.startswith("The first") and sampled.startswith("The first")
    assert "step 4 of 4: done" in short and "step 8 of 8: done" in longer
    assert len((tmp_path / "runs" / "longer" / "log.jsonl").read_text().splitlines()) == 8

    monkeypatch.setattr("caracal_book.commands.record.code", lambda: {**code(), "clean": True})  # as if committed
    ((kind, folder),) = [command[3:] for command in commands if command[:3] == ["python", "-m", "caracal_book"]]
    assert kind == "record"
    run_record(RecordConfig(Path(folder)))
    for command in commands:
        if command[0] == "cp":
            subprocess.run(command, check=True)
    exec(blocks(going_on, "python")[-1], {})
    card = (tmp_path / "my_micro" / "README.md").read_text(encoding="utf-8")
    assert "trained from micro on my.txt for\n8,192 tokens" in card
    assert Caracal.from_pretrained("my_micro", device="cpu").num_parameters() == 5_979_648


@pytest.mark.slow
def test_the_examples_of_going_on_run(going_on, tmp_path, capsys):
    shutil.copytree(locate_model("micro"), tmp_path / "my_micro")
    names = {}
    for example in blocks(going_on, "python"):
        exec(example, names)
    card = (tmp_path / "my_micro" / "README.md").read_text(encoding="utf-8")
    assert "A Caracal of 5,979,648 parameters" in card and "7,527 steps" in card
    mean, local = (next(row["loss"] for row in names["race"]["results"]["standings"] if row["contender"] == name)
                   for name in ("mean", "local"))
    assert 0 < mean < 6 and 0 < local < 6 and "the cache keeps" in capsys.readouterr().out


def test_the_verdict_says_what_the_records_hold(readme, notebooks, capsys):
    """README's numbers are those that the cells of chapter 12 print."""
    names = {}
    for cell in notebooks["12_train_tiny"]["cells"]:
        if cell["cell_type"] == "code" and cell["id"].startswith(("opening-figure", "imports", "verdict-")):
            exec("".join(cell["source"]), names)
    values = {value.name: value for line in capsys.readouterr().out.splitlines() if (value := parse_line(line))}
    found = list(quotes(readme))
    assert len(found) >= 3 and [disagreement(quote, values) for quote in found] == [None] * len(found)


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
