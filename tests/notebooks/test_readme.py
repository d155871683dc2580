"""The README and the pages of the API keep their word: Python runs, files exist, commands are there."""

import re
import tomllib

import torch

import caracal_book
import caracal_min


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


def rooms_of_the_api(root) -> dict[str, list[str]]:
    """The modules that each page of the API documents, pages in the order in which the opening page lists them."""
    opening = (root / "book" / "api.md").read_text(encoding="utf-8")
    assert "automodule" not in opening
    pages = re.findall(r"^\| \[`\w+`\]\(api/(\w+)\.md\) \|", opening, re.MULTILINE)
    assert sorted(pages) == sorted(path.stem for path in (root / "book" / "api").glob("*.md"))
    return {page: re.findall(r"automodule:: caracal_(?:min|book)\.([\w.]+)$",
                             (root / "book" / "api" / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE)
            for page in pages}


def test_the_api_has_a_page_for_each_room_in_the_order_of_reading(root):
    pages = rooms_of_the_api(root)
    assert all(module.split(".")[0] == page for page, modules in pages.items() for module in modules)
    assert all(modules and modules[0] == page for page, modules in pages.items())
    order = re.findall(r"^    (\w+)  ", f"{caracal_min.__doc__}\n{caracal_book.__doc__}", re.MULTILINE)
    assert list(pages) == [room for room in order if room in pages]
    contents = (root / "_toc.yml").read_text(encoding="utf-8")
    assert re.findall(r"- file: book/api/(\w+)$", contents, re.MULTILINE) == list(pages)


def test_every_module_that_a_caller_names_is_on_a_page_of_the_api(root):
    # Parts of a run, of a file or of a command, which no caller of the package names.
    internal = {"allocator", "direct_kernel", "extras", "files", "frames", "lazy", "online", "projections", "progress",
                "weights", "data.chunks", "data.local_files", "evaluation.harness", "evaluation.measured",
                "fineweb", "numbers.small_operators", "training.checkpoint", "training.distributed", "training.folder",
                "training.optimizer", "training.run_log", "training.run_record", "training.settings"}
    modules = {".".join(path.relative_to(package).with_suffix("").parts).removesuffix(".__init__")
               for package in (root / "caracal_min", root / "book" / "caracal_book")
               for path in package.rglob("*.py")} - {"__init__", "__main__", "version"}
    shown = [module for modules in rooms_of_the_api(root).values() for module in modules]
    inner = {name for name in modules if name.startswith(("viz.", "benchmark."))} - {*shown}  # called through the room
    internal |= {name for name in modules if name.split(".")[0] in ("commands", "exercises", "rules")}
    assert internal <= modules
    assert sorted(shown) == sorted(modules - inner - internal)


def test_the_five_things_that_most_people_need_run(root, tmp_path, monkeypatch):
    page = (root / "book" / "api.md").read_text(encoding="utf-8")
    example = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(example, names)
    assert (tmp_path / "my_model" / "config.json").is_file()
    assert len(names["ids"]) == 24 and names["text"].startswith("The ")
    assert 2 < names["loss"] < 6 and names["y"].shape == (2, 100, 64)
