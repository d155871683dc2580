"""`python -m caracal_min` as a user runs it: in a process of its own."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from faults.bad_input import BAD, bad_command_lines, bad_files, make_places, refused

from caracal_min import Caracal
from caracal_min.__main__ import main
from caracal_min.commands import COMMANDS
from caracal_min.version import __version__


def run(*arguments, **options):
    command = [sys.executable, "-m", "caracal_min", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_info():
    done = run("info", "--preset", "tiny")
    assert done.returncode == 0, done.stderr
    assert "tiny: 62,494,208 parameters, layers FFAFFAFFAFFA" in done.stdout


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"caracal-min {__version__}\n")


def test_help_shows_the_recipe_of_the_preset():
    for preset, rate in (("nano", "0.003"), ("tiny", "0.0009")):
        done = run("train", "--preset", preset, "--help")
        assert done.returncode == 0, done.stderr
        assert re.search(r"--learning-rate FLOAT.*?default: ([\d.]+)", done.stdout, re.DOTALL)[1] == rate


def test_sample_is_reproducible(tmp_path):
    torch.manual_seed(0)
    Caracal.from_preset("nano").save_pretrained(tmp_path)
    first, second = (run("sample", "--model", tmp_path, "--prompt", "def ", "--max-new-tokens", 20, "--seed", 1)
                     for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("def ") and first.stdout == second.stdout
    assert run("sample", "--model", tmp_path, "--prompt", "def ", "--max-new-tokens", 0).stdout == "def \n"


def test_benchmark_prints_a_table_and_saves_it(tmp_path):
    done = run("benchmark", "--rows", "layer", "mixer", "--preset", "nano", "--lengths", 32, "--contexts", 64,
               "--tokens", 64, "--repeats", 1, "--out", tmp_path / "speed" / "table.json")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "speed" / "table.json").read_text())
    assert len(record["results"]["rows"]) == len(done.stdout.splitlines()) - 1 == 5
    assert record["machine"]["versions"]["torch"] == torch.__version__ and record["config"]["lengths"] == [32]


def test_export_writes_a_program(tmp_path):
    torch.manual_seed(0)
    model = Caracal.from_preset("nano").eval()
    model.save_pretrained(tmp_path / "model")
    done = run("export", "--model", tmp_path / "model", "--out", tmp_path / "nano.pt2", "--length", 9)
    assert done.returncode == 0, done.stderr
    assert "ids [1, 9] to logits" in done.stdout
    tokens = torch.tensor([list(range(9))])
    assert torch.allclose(torch.export.load(tmp_path / "nano.pt2").module()(tokens), model(tokens)[0], atol=1e-4)


@pytest.mark.parametrize("arguments, words", [
    (["export", "--model", "x", "--out", "x.zip", "--length", 9], ["x.zip", ".onnx or .pt2"]),
    (["info", "--preset", "huge"], ["unknown preset 'huge'", "nano, tiny, small, medium, large"]),
    (["sample", "--model", "./nowhere/at/all"], ["nowhere", "save_pretrained"]),
    (["train", "--preset", "nano", "--data", "nowhere.jsonl", "--no-progress"], ["no file nowhere.jsonl"]),
])
def test_errors_are_one_line_without_a_traceback(arguments, words, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_options_out_of_range_are_reported_by_the_parser():
    for *options, word in (("--tokens", "0", "tokens=0"), ("--tokens", "many", "many"), ("--tokes", "1", "--tokes")):
        done = run("train", "--preset", "nano", *options)
        assert done.returncode == 2 and word in done.stderr and "Traceback" not in done.stderr
    done = run("benchmark", "--rows", "magic")
    assert done.returncode == 2 and "rows=magic" in done.stderr and "Traceback" not in done.stderr


def test_the_bad_options_are_options_of_their_command():
    known = {command.name: {f"--{field.name.replace('_', '-')}" for field in fields(command.config)}
             for command in COMMANDS}
    assert {command[0] for command in BAD} == set(known)
    for command, options in BAD.items():
        assert set(options) <= known[command[0]]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return make_places(tmp_path_factory.mktemp("places"))


def test_hundreds_of_bad_command_lines_get_one_line_each(places, tmp_path, monkeypatch):
    """Every bad value of every option once, then random pairs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    answers = [refused(arguments) for arguments in bad_command_lines(places, pairs=100, seed=0)]
    assert [answer for answer in answers if answer] == []
    assert len(answers) > 500 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [
    [], ["fly"], ["train", "--fly"], ["train", "--tokens"], ["--tokens", "1"], ["sample"], ["train", "nano"],
    ["train", "sample"], ["train", "--preset"], ["train", "--preset="], ["\udcff"], [""],
])
def test_what_is_no_command_gets_one_line(arguments):
    assert refused(arguments) == ""


def test_many_bad_files_get_one_line_each(places, tmp_path, monkeypatch):
    """Each of nine kinds of files, damaged in each of the ways that it can be."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    cases = bad_files(tmp_path / "files", places, count=72, seed=0)
    answers = [(refused(arguments, word=path.name), path) for arguments, path in cases]
    assert [answer for answer, _ in answers if answer] == []
    assert len({path for _, path in answers}) == 9


def test_a_failure_that_is_not_the_users_has_another_status(places, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=0))
    status = main(["train", "--data", str(places["text"]), "--tokens", "128", "--context", "32", "--no-progress",
                   "--device", "cpu", "--out", str(tmp_path / "run")])
    said = capfd.readouterr().err
    assert status == 1 and "0 MB free" in said and said.count("\n") == 1


def test_the_four_dependencies_are_enough(tmp_path):
    """With every other package of this environment made unimportable, what help(caracal_min) shows works.

    So does `--version`; what needs more says which command installs it.
    """
    code = """
import doctest, sys, importlib.metadata as md, re
allowed, queue = set(), ["torch", "numpy", "safetensors", "huggingface_hub"]
while queue:  # the four, and what they themselves require
    name = re.sub(r"[-_.]+", "-", queue.pop()).lower()
    if name in allowed: continue
    allowed.add(name)
    try: needs = md.requires(name) or []
    except md.PackageNotFoundError: continue
    queue += [re.match(r"[\\w.-]+", r)[0] for r in needs if "extra ==" not in r]
tops = {top for top, dists in md.packages_distributions().items()
        if not any(re.sub(r"[-_.]+", "-", d).lower() in allowed | {"caracal-min"} for d in dists)}
sys.modules.update(dict.fromkeys(tops))  # None: importing it fails, asking whether it exists does not
assert {"matplotlib", "tyro", "anywidget"} <= tops, tops
import torch, caracal_min, caracal_min.training, caracal_min.viz
assert doctest.testmod(caracal_min).attempted > 10
from caracal_min.__main__ import main
assert main(["--version"]) == 0 and main(["--help"]) == 2
try:
    import caracal_min.evaluation.tasks
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    version, tasks = done.stdout.splitlines()  # and no failure of the example
    assert version == f"caracal-min {__version__}"
    assert tasks.startswith("evaluation on tasks needs lm-eval: pip install lm-eval")
    assert done.stderr.startswith("error: the command line needs tyro: pip install ")
