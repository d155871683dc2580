"""`python -m caracal_min` as a user runs it: in a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from caracal_min.commands import COMMANDS
from faults.bad_input import BAD, bad_command_lines, bad_files, make_places, refused
from small_run import config, corpus

from caracal_book import __main__ as book
from caracal_book.commands import COMMANDS as BOOK
from caracal_book.rivals import make_model
from caracal_min import Caracal, __version__
from caracal_min.__main__ import _whole_number, main
from caracal_min.data import ByteTokenizer
from caracal_min.training import Trainer
from caracal_min.training.checkpoint import load_trained


def run(*arguments, **options):
    command = [sys.executable, "-m", "caracal_min", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def commands():
    """Every command of both packages, by name."""
    return {name: import_module(f"{package}.commands.{name}").COMMAND
            for package, names in (("caracal_min", COMMANDS), ("caracal_book", BOOK)) for name in names}


def test_help_lists_the_commands_without_waiting_for_pytorch():
    for package, names in (("caracal_min", COMMANDS), ("caracal_book", BOOK)):
        code = (f"import sys; from {package}.__main__ import main; assert main(['--help']) == 0; "
                "assert not {'torch', 'numpy', 'tyro'} & set(sys.modules)")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"usage: python -m {package} COMMAND [OPTIONS]\n")
        assert re.findall(r"^  (\w+)  +\S", done.stdout, re.MULTILINE) == list(names)
        assert max(map(len, done.stdout.splitlines())) <= 100
    code = (f"import sys; from caracal_min.__main__ import main\n"
            f"for name in {list(COMMANDS)}: assert main([name, '--help']) == 0\n"
            "assert 'torch' not in sys.modules")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments, said", [
    (["fly"], "there is no command 'fly'; there are train, sample, evaluate, benchmark, tokenize, export, info;"),
    (["trian"], "there is no command 'trian'; did you mean train? there are train,"),
    ([], "no command is given; there are train,"), (["--tokens", "1"], "give a command before '--tokens'; there are"),
    (["train", "--toknes", "3"], "Unrecognized options: --toknes, 3; did you mean --tokens?; see python -m caracal_min "
                                 "train --help"),
    (["train", "--tokens", "10X"], "--tokens: '10X' is no whole number; give one such as 4096, 10_000_000, 10M or"),
    (["sample", "m", "--top-k", "1.5"], "--top-k: '1.5' is no whole number"),
    (["sample", "m", "--top-p", "x"], "--top-p: could not convert string to float: 'x'; see"),
    (["sample"], "missing: --model; see"), (["export", "--length", "3"], "missing: --model, --out; see"),
    (["train", "--prompt", "caf\udce9"], r"prompt='caf\udce9' holds bytes that are not UTF-8 (character 4); give it"),
    (["sample", "m", "--prompt", "caf\udce9"], r"prompt='caf\udce9' holds bytes that are not UTF-8 (character 4); "),
])
def test_what_is_misspelt_gets_one_line_that_says_what_there_is(capsys, arguments, said):
    assert main(arguments) == 2
    found = capsys.readouterr().err
    assert found.startswith(f"error: {said}") and found.count("\n") == 1


@pytest.mark.parametrize("word, number", [
    ("4096", 4096), ("10_000_000", 10**7), ("10M", 10**7), ("2B", 2 * 10**9), ("1.5B", 1_500_000_000), ("64k", 64_000),
    ("0.5k", 500), ("1e3", None), ("1e3k", None), ("1.0005k", None), ("M", None), ("1/3k", None), ("10 M", None),
    ("nank", None), ("10m", None), ("1__0", None), ("-2k", -2000)])
def test_a_whole_number_may_have_a_unit(word, number):
    if number is None:
        with pytest.raises(ValueError, match="is no whole number; give one such as"):
            _whole_number(word)
    else:
        assert _whole_number(word) == number


def test_the_model_may_stand_first(killed, tmp_path, capsys):
    for arguments in (["sample", str(killed), "--prompt", "gate", "--max-new-tokens", "3", "--device", "cpu"],
                      ["info", str(killed)],
                      ["export", str(killed), "--out", str(tmp_path / "x.pt2"), "--length", "9"]):
        assert main(arguments) == 0
        said = capsys.readouterr().err
        assert said == f"{killed} has no finished model: this is the one of its checkpoint at step 2\n"
    assert main(["evaluate", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert main(["train", "nowhere"]) == 2  # which field would that be?
    assert capsys.readouterr().err.startswith("error: Unrecognized options: nowhere")


def test_an_interruption_at_any_moment_is_one_line():
    """Most of the first seconds PyTorch is imported: some moments from when its first library is there."""
    for seconds in (0.0, 0.1, 0.3, 0.7, 1.5, 3.0):
        long = ["benchmark", "--preset", "nano", "--rows", "layer", "--lengths", "128", "--repeats", "1000000"]
        with subprocess.Popen([sys.executable, "-m", "caracal_min", *long],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            libraries = Path(f"/proc/{process.pid}/maps")
            deadline = time.monotonic() + 60
            while "torch" not in libraries.read_text() and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
            said = process.communicate()[1]
        lines = said.splitlines()
        # Python itself ends by the signal, for which a shell says 130, too, where code in C has seen the exception.
        assert process.returncode in (130, -signal.SIGINT) and lines == ["error: interrupted"], (seconds, said)


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
    model = Caracal.from_preset("nano")
    model.tokenizer = ByteTokenizer()
    model.save_pretrained(tmp_path)
    first, second = (run("sample", "--model", tmp_path, "--prompt", "def ", "--max-new-tokens", 20, "--seed", 1)
                     for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("def ") and first.stdout == second.stdout
    assert run("sample", "--model", tmp_path, "--prompt", "def ", "--max-new-tokens", 0).stdout == "def \n"


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder of a run that was left after step 2: a checkpoint, and no model."""
    out = tmp_path_factory.mktemp("killed") / "run"
    with Trainer(config(out), corpus()) as trainer:
        trainer.run(until=2)
    return out


def test_a_killed_run_is_sampled_exported_and_described(killed, tmp_path, capsys):
    """What is drawn is drawn from its checkpoint, with or without a gate that is cut; stdout holds the text alone."""
    note = f"{killed} has no finished model: this is the one of its checkpoint at step 2\n"
    for cut in (None, 3):
        options = [] if cut is None else ["--gate-length", str(cut)]
        assert main(["sample", "--model", str(killed), "--prompt", "gate token", "--max-new-tokens", "12",
                     "--temperature", "0", "--device", "cpu", "--precision", "float32", *options]) == 0
        said = capsys.readouterr()
        model, prompt = load_trained(killed, cut).model, torch.tensor([list(b"gate token")])
        drawn = model.generate(prompt, 12, temperature=0.0, stop=0)[0].tolist()
        assert said.out == ByteTokenizer().decode([i for i in drawn if i]) + "\n" and said.err == note
        out = tmp_path / f"{cut}.pt2"
        assert main(["export", "--model", str(killed), "--out", str(out), "--length", "9", *options]) == 0
        assert capsys.readouterr().err == note
        exported = torch.export.load(out).module()(prompt[:, :9])
        assert torch.allclose(exported, model(prompt[:, :9])[0], atol=1e-4)
        assert torch.allclose(exported, load_trained(killed).model(prompt[:, :9])[0], atol=1e-4) is (cut is None)
    assert main(["info", "--model", str(killed)]) == 0
    assert "1,269,504 parameters" in capsys.readouterr().out


def test_the_device_of_a_sample_is_looked_for(killed, capsys):
    assert main(["sample", "--model", str(killed), "--device", "cuda:99"]) == 2
    assert "device='cuda:99' cannot be used here" in capsys.readouterr().err


def test_a_baseline_is_not_sampled(tmp_path, capsys):
    pytest.importorskip("transformers")
    make_model("llama", "nano").save_pretrained(tmp_path)
    for arguments in (["sample"], ["export", "--out", str(tmp_path / "x.pt2"), "--length", "9"], ["info"]):
        assert main([*arguments, "--model", str(tmp_path)]) == 2
        assert f"{tmp_path} holds a llama; this command is for caracal only" in capsys.readouterr().err


def test_an_export_makes_its_folder_and_leaves_nothing_where_it_fails(killed, tmp_path, monkeypatch):
    out = tmp_path / "new" / "x.pt2"
    given = ["export", "--model", str(killed), "--out", str(out), "--length", "9"]
    with monkeypatch.context() as patch:
        patch.setattr("torch.export.save", lambda program, file: file.write(b"half") and 1 / 0)
        with pytest.raises(ZeroDivisionError):
            main(given)
    assert list(tmp_path.rglob("*.pt2*")) == []
    assert main(given) == 0 and out.stat().st_size > 10**6


def test_output_that_nobody_reads_on_is_no_error():
    with subprocess.Popen([sys.executable, "-m", "caracal_min", "info"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 141)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_what_the_parser_says_is_one_sentence_in_every_encoding(encoding):
    """Characters that a terminal lacks are shown by their numbers."""
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    for arguments, said in ((["info", "--preset", "huge"], "unknown preset 'huge'"),
                            (["sample", "--model", "m", "--gate-length", "0"], "gate_length=0; give a number >= 1"),
                            (["info", "--fly"], "Unrecognized options: --fly")):
        done = run(*arguments, env=environment)
        assert done.returncode == 2 and done.stderr.startswith(f"error: {said}") and done.stderr.count("---") == 0
        assert done.stderr.count("\n") == 1 and "Config" not in done.stderr


def test_the_help_says_what_each_option_is_and_names_nothing_internal(capsys, monkeypatch):
    """Every option has words and a default, and none the quotes of code, in which docstrings put names of Python."""
    monkeypatch.setenv("COLUMNS", "200")
    for name, command in commands().items():
        assert (main if name in COMMANDS else book.main)([name, "--help"]) == 0
        said = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert "`" not in said and "LanguageModel" not in said
        for field in fields(command.config):
            option = field.name.replace("_", "-")
            words = re.search(rf"--(?:no-)?{option} (?:[A-Z]+ |\S*[{{\[]\S+(?: \[?[A-Z .]+\]+)? )?(?!--)"
                              r"([^(]*.*?) \((default|required)", said)
            assert words and words[1].rstrip("])").endswith("."), (name, option, words and words[1])


def test_benchmark_prints_a_table_and_saves_it(tmp_path):
    done = run("benchmark", "--rows", "layer", "mixer", "--preset", "nano", "--lengths", 32, "--contexts", 64,
               "--tokens", 64, "--repeats", 1, "--out", tmp_path / "speed" / "table.json")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "speed" / "table.json").read_text())
    assert len(record["results"]["rows"]) == len(done.stdout.splitlines()) - 1 == 5
    assert record["machine"]["versions"]["torch"] == version("torch") and record["config"]["lengths"] == [32]


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
    (["export", "--model", "x", "--out", "x.pt2"], ["length is not given"]),
    (["export", "--model", "x", "--out", "x", "--format", "web", "--length", 9], ["length=9", "leave it out"]),
    (["info", "--preset", "huge"], ["unknown preset 'huge'", "nano, micro, tiny, small, medium, large"]),
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
    known = {name: {f"--{field.name.replace('_', '-')}" for field in fields(command.config)}
             for name, command in commands().items()}
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
import torch, caracal_min, caracal_min.training, caracal_book.viz
assert doctest.testmod(caracal_min).attempted > 10
from caracal_min.__main__ import main
assert main(["--version"]) == 0 and main(["info", "--help"]) == 2
try:
    import caracal_min.evaluation.tasks
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    version, tasks = done.stdout.splitlines()  # and no failure of the example
    assert version == f"caracal-min {__version__}"
    assert tasks.startswith("evaluation on tasks needs lm-eval: pip install accelerate lm-eval")
    assert done.stderr.startswith("error: the command line needs tyro: pip install ")
