"""Which PyTorch the set-up brings: said before it is fetched, from another index if asked for, and never a failure."""

import os
import subprocess
import sys
import zipfile

import pytest
import torch_build

CPU, CUDA = {"2.13.0", "2.13.0+cpu", "2.12.0"}, {"2.13.0", "2.12.0"}


def test_the_pinned_version_is_that_of_the_requirements(root):
    assert f"\ntorch=={torch_build.pinned()}\n" in (root / "requirements.txt").read_text()


@pytest.mark.parametrize("system, versions, gpu, cuda", [
    ("Linux", CUDA, False, True), ("Linux", CUDA, True, False), ("Linux", CPU, False, False),
    ("Darwin", CUDA, False, False), ("Windows", CUDA, False, False), ("Linux", {"2.12.0", "2.12.0+cpu"}, False, False),
    ("Linux", set(), False, False),
])
def test_where_pip_brings_cuda_for_nothing(system, versions, gpu, cuda):
    assert torch_build.brings_cuda(system, versions, "2.13.0", gpu) is cuda


@pytest.fixture
def machine(monkeypatch):
    """A machine without PyTorch and GPU, on which pip finds what is given and TORCH_INDEX does what is given."""

    def make(index="", works=False, versions=CUDA, here=None):
        tried = []
        monkeypatch.setenv("TORCH_INDEX", index)
        monkeypatch.setattr(torch_build.platform, "system", lambda: "Linux")
        for name, answer in (("installed", here), ("offered", versions), ("gpu_by_nvidia", False)):
            monkeypatch.setattr(torch_build, name, lambda answer=answer: answer)
        monkeypatch.setattr(torch_build, "install", lambda *given: tried.append(given) or works)
        return tried

    return make


def test_cuda_is_named_before_it_comes_with_the_way_around_it(machine, capsys):
    machine()
    assert torch_build.main() == 0
    said = capsys.readouterr().out
    assert "the build with CUDA, 4.6 GB on disk" in said and "no NVIDIA GPU" in said
    assert f"make book TORCH_INDEX={torch_build.CPU_INDEX}" in said


def test_nothing_is_said_where_no_cuda_comes(machine, capsys):
    machine(versions=CPU)
    assert torch_build.main() == 0
    tried = machine("https://index.example.org", here=torch_build.pinned())
    assert torch_build.main() == 0 and tried == []
    assert capsys.readouterr().out == ""


def test_the_named_index_is_taken(machine, capsys):
    tried = machine("https://index.example.org", works=True)
    assert torch_build.main() == 0
    assert tried == [("https://index.example.org", torch_build.pinned())]
    assert "CUDA" not in capsys.readouterr().out


def test_an_index_that_fails_is_passed_over_and_not_offered_again(machine, capsys):
    machine("https://index.example.org")
    assert torch_build.main() == 0
    said = capsys.readouterr().out
    assert "https://index.example.org has no 2.13.0 for this Python, or cannot be reached; going on without it" in said
    assert "with CUDA" in said and "TORCH_INDEX=" not in said


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """An index of one package, an empty torch for CPUs."""
    folder = tmp_path_factory.mktemp("index") / "torch"
    folder.mkdir()
    about = f"torch-{torch_build.pinned()}+cpu.dist-info"
    with zipfile.ZipFile(folder / f"torch-{torch_build.pinned()}+cpu-py3-none-any.whl", "w") as wheel:
        for name, text in (("torch.py", ""), (f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n"),
                           (f"{about}/METADATA", "Metadata-Version: 2.1\nName: torch\n"
                                                 f"Version: {torch_build.pinned()}+cpu\nRequires-Dist: networkx\n")):
            wheel.writestr(name, text)
        wheel.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in [*wheel.namelist(), f"{about}/RECORD"]))
    (folder / "index.html").write_text(f'<a href="{wheel.filename.rpartition("/")[2].replace("+", "%2B")}">torch</a>')
    return folder.parent.as_uri()


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A Python with pip and no PyTorch, and an environment in which pip knows no other index."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "PYTHON"))}
    return folder / "bin" / "python", kept | {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def test_what_pip_can_choose_from(bare, index, tmp_path, monkeypatch):
    python, environment = bare
    monkeypatch.setattr(torch_build.sys, "executable", str(python))
    for key in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", index)
    assert torch_build.offered() == {f"{torch_build.pinned()}+cpu"}
    monkeypatch.setenv("PIP_INDEX_URL", tmp_path.as_uri())
    assert torch_build.offered() == set()


def test_from_an_index_and_without_one(bare, index, root):
    python, environment = bare
    run = [python, root / "tools" / "torch_build.py"]
    nowhere = environment | {"TORCH_INDEX": "http://127.0.0.1:9/simple", "PIP_INDEX_URL": index}
    done = subprocess.run(run, env=nowhere, capture_output=True, text=True)
    assert done.returncode == 0 and "cannot be reached; going on without it" in done.stdout and done.stderr == ""
    done = subprocess.run(run, env=environment | {"TORCH_INDEX": index}, capture_output=True, text=True)
    assert done.returncode == 0 and "going on" not in done.stdout, done.stderr
    shown = subprocess.run([python, "-m", "pip", "list", "--format=freeze"], env=environment, capture_output=True,
                           text=True, check=True).stdout.splitlines()
    assert f"torch=={torch_build.pinned()}+cpu" in shown and not any(line.startswith("networkx") for line in shown)


def test_make_asks_before_it_installs(root):
    makefile = (root / "Makefile").read_text()
    assert makefile.index("tools/torch_build.py") < makefile.index("--requirement requirements.txt")
    assert "\nexport TORCH_INDEX ?=" in makefile and torch_build.CPU_INDEX in makefile
