"""Notebooks run whole, as Colab runs them: an empty folder, no checkout, the package installed by the set-up cell.

The environment has everything that the build's has but caracal_min, which comes from a wheel.
"""

import ast
import json
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import nbformat
import pytest
import set_source
from nbclient import NotebookClient

from caracal_min import Caracal

pytestmark = [pytest.mark.process, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
# What Colab sets in the kernel's environment, as far as libraries look at it.
COLAB = {"COLAB_RELEASE_TAG": "release-colab", "COLAB_GPU": "", "PYTHONUNBUFFERED": "1",
         "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
PACKAGES = ("caracal_min", "book/caracal_book")
CHAPTERS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
KEPT = {"my_nano", "my_twin", "my_micro"}  # what chapters leave to their reader
# Runs of some minutes, cut to a few steps.  What is learnt by their ends is asserted where the book is built.
SHORTENED = {"09_teaching_it": ("minutes=10", "minutes=0.01"),
             "12_train_tiny": ("tokens=96 * 2048", "tokens=32 * 2048")}

_WRITES = """
import socket, sys
for name in ("datasets", "transformers", "tyro"):
    sys.modules[name] = None  # as if it were not installed
import caracal_min
from caracal_min import Caracal
def refuse(*_, **__):
    raise AssertionError("the network was asked")
socket.getaddrinfo = socket.create_connection = refuse
print(caracal_min.__file__)
print(Caracal.from_pretrained("micro", device="cpu").generate_text("The history of", 60, seed=0))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from a copy that holds only what a wheel is made of."""
    copy = tmp_path_factory.mktemp("source")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
                    "--wheel-dir", copy / "dist", copy], check=True)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture
def bare_python(tmp_path) -> Path:
    """A Python with all installed packages except caracal_min."""
    folder = tmp_path / "bare"
    packages = folder / "packages"
    packages.mkdir(parents=True)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        hidden = entry.name.startswith(("caracal_", "__editable__")) or entry.suffix == ".pth"
        if not hidden:
            (packages / entry.name).symlink_to(entry)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                          check=True, capture_output=True, text=True).stdout.strip()
    Path(site, "parent.pth").write_text(f"{packages}\n", encoding="utf-8")
    return python


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if not name.startswith("caracal_min-")} == shipped()
    assert {".js", ".css", ".json", ".typed", ".xz"} <= {Path(name).suffix for name in names}
    about = {name.partition(".dist-info/")[2] for name in names if name.startswith("caracal_min-")}
    assert about == {"METADATA", "RECORD", "WHEEL", "top_level.txt", "licenses/LICENSE",
                     "licenses/caracal_min/data/python.LICENSE"}


def test_the_source_archive_is_enough_to_build_that_wheel(wheel):
    """`build` makes the wheel of a release from the archive, so all of the package has to be in it."""
    folder = wheel.parents[1]
    subprocess.run([sys.executable, "-c", "from setuptools.build_meta import build_sdist; build_sdist('dist')"],
                   cwd=folder, check=True, capture_output=True)
    (archive,) = (folder / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames() if packed.getmember(name).isfile()}
    names = {name for name in names if ".egg-info/" not in name}
    packed_too = {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}
    assert {name.removeprefix("book/") for name in names} == shipped() | packed_too


def shipped() -> set[str]:
    """The files of both packages, as the checkout has them, with the names that they have in a wheel."""
    return {path.relative_to((ROOT / package).parent).as_posix()
            for package in PACKAGES for path in (ROOT / package).rglob("*")
            if path.suffix in (".py", ".js", ".css", ".svg", ".json", ".typed", ".xz", ".LICENSE")
            or path.is_file() and path.parents[1].name == "pretrained"}


def test_from_text_to_text_without_a_network_and_without_other_packages(wheel, bare_python, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    run = subprocess.run([bare_python, "-c", _WRITES], cwd=tmp_path, capture_output=True, text=True,
                         env=_environment() | {"PYTHONPATH": str(tmp_path / "site")})
    assert run.returncode == 0, run.stderr
    where, text = run.stdout.split("\n", 1)
    assert Path(where).is_relative_to(tmp_path / "site")
    model = Caracal.from_pretrained("micro", device="cpu")
    assert text == model.generate_text("The history of", 60, seed=0) + "\n" and text.startswith("The history of ")


@pytest.fixture
def run_alone(bare_python, tmp_path, monkeypatch):
    """A function that runs a notebook in an empty folder and returns it."""

    def run(notebook):
        kernel = tmp_path / "jupyter" / "kernels" / "bare"
        kernel.mkdir(parents=True)
        (kernel / "kernel.json").write_text(json.dumps({
            "argv": [str(bare_python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": "bare", "language": "python"}), encoding="utf-8")
        monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
        empty = tmp_path / "empty"
        empty.mkdir()
        notebook.cells.append(nbformat.v4.new_code_cell("print(caracal_min.__file__)"))
        client = NotebookClient(notebook, kernel_name="bare", timeout=1800,
                                resources={"metadata": {"path": str(empty)}})
        client.execute(env=_environment() | COLAB)
        where = notebook.cells[-1].outputs[0].text.strip()
        assert Path(where).is_relative_to(bare_python.parent.parent), where
        assert {path.name for path in empty.iterdir()} <= KEPT
        return notebook

    return run


def shortened(notebook, old, new):
    """Return the notebook with another size of its run, and without the asserts about what comes out."""
    assert sum(cell.source.count(old) for cell in notebook.cells) == 1, old
    for cell in notebook.cells:
        if cell.cell_type == "code":
            tree = _WithoutAsserts().visit(ast.parse(cell.source.replace(old, new)))
            cell.source = ast.unparse(ast.fix_missing_locations(tree))
    return notebook


class _WithoutAsserts(ast.NodeTransformer):
    def visit_Assert(self, node):
        return ast.Expr(node.test)  # what it computes may fail on its own


def drawn(chapters: list[str], number: int = 3) -> list[str]:
    """Return some chapters, others for each commit: the build has just executed all.  RELEASE=1 takes all."""
    if os.environ.get("RELEASE") == "1":
        return chapters
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True)
    return sorted(random.Random(done.stdout).sample(chapters, number))


@pytest.mark.parametrize("chapter", drawn(CHAPTERS))
def test_a_chapter_runs_from_an_empty_folder(chapter, wheel, run_alone):
    notebook = nbformat.read(ROOT / "notebooks" / f"{chapter}.ipynb", as_version=4)
    notebook = set_source.set_source(notebook, str(wheel))
    run_alone(shortened(notebook, *SHORTENED[chapter]) if chapter in SHORTENED else notebook)


def _environment() -> dict[str, str]:
    """The environment without what would lead a Python to the checkout or to another kernel's settings."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "IPYTHONDIR")
    return {key: value for key, value in os.environ.items() if key not in hidden}
