"""`python -m caracal_min` as a user runs it: in a process of its own."""

import json
import random
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from caracal_min import Caracal
from caracal_min.__main__ import main
from caracal_min.training import TrainConfig, Trainer
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


WORDS = ["", "x", "nan", "inf", "-inf", "1e400", "-1", "1,5", "--", "\N{ROMAN NUMERAL FOUR}", "\udcff", "1 2"]
WHOLE = [*WORDS, "0", "1.5", "1e3", "-9" * 9, "9" * 30, "0x10"]
COUNT = [value for value in WHOLE if value != "0"]  # of what may be 0
RATE = [*WORDS, "0", "1e-400", "-1e-9"]
FOLDER = ["", "{file}/x", "{file}", "{long}"]
FILE = ["", "{file}/x", "{folder}", "{long}"]
DEVICE = ["", "foo", "cuda:99", "meta", "cpu:x", "CPU", "\udcff"]
BAD = {  # command and what it needs: option, values that it cannot have
    ("tokenize", "--source", "{text}", "--out", "{new}", "--tokenizer", "byte", "--no-progress"): {
        "--source": ["", "{missing}", "{file}", "{long}"], "--out": FOLDER, "--tokenizer": ["", "bert"],
        "--shard-tokens": WHOLE, "--workers": WHOLE, "--limit-documents": WHOLE, "--limit-tokens": WHOLE},
    ("train", "--data", "{text}", "--out", "{new}", "--tokens", "128", "--context", "32", "--no-progress"): {
        "--preset": ["", "huge", "NANO"], "--architecture": ["", "gpt"], "--variant": ["", "2:2"],
        "--data": ["", "{missing}", "{file}", "{long}"], "--validation": ["", "{missing}", "{file}", "{long}"],
        "--tokenizer": ["", "bert"], "--out": FOLDER, "--device": DEVICE, "--precision": ["", "float8"],
        "--compile": ["", "yes"],
        **dict.fromkeys(["--tokens", "--corpus-tokens", "--context", "--batch-size", "--micro-batch-size",
                         "--eval-every", "--eval-windows", "--checkpoint-every"], WHOLE),
        **dict.fromkeys(["--minutes", "--learning-rate", "--clip", "--peak-flops", "--timeout"], RATE),
        **dict.fromkeys(["--warmup", "--final-fraction", "--beta1", "--beta2"], [*WORDS, "1.5", "-0.1"]),
        "--weight-decay": WORDS, "--seed": COUNT},
    ("sample", "--model", "{model}"): {
        "--model": ["", "{missing}", "{file}", "{text}", "{long}"], "--prompt": ["", "\udcff"],
        "--max-new-tokens": [*COUNT, "1000000000000"], "--temperature": [*WORDS, "1e-300"], "--top-k": WHOLE,
        "--top-p": [*RATE, "1e-300", "1.5"], "--seed": COUNT},
    ("evaluate", "--model", "{model}"): {
        "--model": ["", "{missing}", "{file}", "{text}", "{long}"], "--split": ["", "none"], "--out": FILE,
        "--device": DEVICE,
        **dict.fromkeys(["--context", "--tokens", "--limit", "--batch-size", "--max-length"], WHOLE)},
    ("benchmark", "--rows", "layer"): {
        "--rows": ["", "magic"], "--preset": ["", "huge"], "--against": ["", "gpt"], "--compile": ["", "yes"],
        "--device": DEVICE, "--out": FILE,
        **dict.fromkeys(["--lengths", "--contexts", "--tokens", "--repeats"], WHOLE)},
    ("export", "--model", "{model}", "--out", "{new}.pt2", "--length", "9"): {
        "--model": ["", "{missing}", "{file}", "{long}"], "--out": ["", "x.zip", "{file}/x.pt2", "{folder}"],
        "--length": WHOLE, "--batch": WHOLE},
    ("info",): {"--preset": ["", "huge"], "--model": ["", "{missing}", "{file}", "{long}"]},
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """What the command lines name: a text, a model, a file that is neither, a folder."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": f"text number {i} " * 20}) + "\n"
                                               for i in range(400)))
    (folder / "file").write_bytes(bytes(range(256)))
    (folder / "folder.onnx").mkdir()
    torch.manual_seed(0)
    Caracal.from_preset("nano").save_pretrained(folder / "model")
    return {"text": folder / "text.jsonl", "file": folder / "file", "folder": folder / "folder.onnx",
            "new": folder / "new", "model": folder / "model", "missing": folder / "missing.jsonl", "long": "a" * 300}


def refused(arguments, capfd):
    """Run a command line here and return what it says, if that is one line and exit code 2."""
    shown = " ".join(map(ascii, arguments))
    try:
        status = main(arguments)
    except BaseException as error:
        pytest.fail(f"{shown}: {type(error).__name__}: {error}")
    said = capfd.readouterr().err
    assert status == 2 and said.startswith("error: ") and said.count("\n") == 1 and said.endswith("\n"), (shown, said)
    return said


def test_hundreds_of_bad_command_lines_get_one_line_each(places, tmp_path, capfd, monkeypatch):
    """Every bad value of every option once, then random pairs; whatever is accepted would also start to work."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    cases = [(command, ((option, value),)) for command, options in BAD.items() for option, values in options.items()
             for value in values]
    draw = random.Random(0)
    for _ in range(100):
        command = draw.choice(list(BAD))
        two = draw.sample(list(BAD[command].items()), 2)
        cases.append((command, tuple((option, draw.choice(values)) for option, values in two)))
    for command, changes in cases:
        given = [word.format(**places) for word in command]
        for option, value in changes:
            value = value.format(**places)
            if option in given:
                place = given.index(option)
                del given[place:place + 2]
            given += [f"{option}={value}"] if draw.random() < 0.3 else [option, value]
        refused(given, capfd)
    assert len(cases) > 500 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [
    [], ["fly"], ["train", "--fly"], ["train", "--tokens"], ["--tokens", "1"], ["sample"], ["train", "nano"],
    ["train", "sample"], ["train", "--preset"], ["train", "--preset="], ["\udcff"], [""],
])
def test_what_is_no_command_gets_one_line(arguments, capfd):
    refused(arguments, capfd)


def test_hundreds_of_bad_files_get_one_line_each(places, tmp_path, capfd, monkeypatch):
    """A run that stopped, and its checkpoint, its log or its text replaced, cut or changed at random."""
    monkeypatch.chdir(tmp_path)
    train = ["train", "--data", str(places["text"]), "--tokens", "256", "--context", "32", "--batch-size", "2",
             "--micro-batch-size", "2", "--checkpoint-every", "2", "--no-progress", "--device", "cpu", "--out"]
    with Trainer(TrainConfig.for_preset(
            "nano", data=str(places["text"]), tokens=256, context=32, batch_size=2, micro_batch_size=2,
            checkpoint_every=2, progress=False, device="cpu", out=tmp_path / "run")) as trainer:
        trainer.run(until=2)
    checkpoint, draw = (tmp_path / "run" / "checkpoint.safetensors").read_bytes(), random.Random(0)
    header = 8 + int.from_bytes(checkpoint[:8], "little")
    for number in range(60):
        damaged = bytearray(checkpoint)
        kind = number % 5
        if kind == 0:
            damaged = damaged[:draw.randrange(len(damaged))]
        elif kind == 1:
            damaged[draw.randrange(header)] ^= 1 << draw.randrange(8)
        elif kind == 2:
            damaged[draw.randrange(header, len(damaged))] ^= 1 << draw.randrange(8)
        elif kind == 3:
            damaged = draw.randbytes(draw.randrange(1000))
        else:
            place = draw.randrange(len(damaged) - 9)
            damaged[place:place + 8] = b"\xff" * 8
        (tmp_path / "run" / "checkpoint.safetensors").write_bytes(damaged)
        said = refused([*train, str(tmp_path / "run")], capfd)
        assert "checkpoint.safetensors" in said and "delete" not in said


def test_a_failure_that_is_not_the_users_has_another_status(places, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=0))
    status = main(["train", "--data", str(places["text"]), "--tokens", "128", "--context", "32", "--no-progress",
                   "--device", "cpu", "--out", str(tmp_path / "run")])
    said = capfd.readouterr().err
    assert status == 1 and "0 MB free" in said and said.count("\n") == 1


def test_importing_needs_only_the_four_dependencies():
    """With every other package of this environment made unimportable, `import caracal_min` and a forward pass work."""
    code = """
import sys, importlib.metadata as md, re
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
print(caracal_min.Caracal.from_preset("nano")(torch.tensor([[1, 2]]))[0].shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "torch.Size([1, 2, 256])" in done.stdout
