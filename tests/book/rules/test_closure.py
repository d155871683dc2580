"""What a notebook is made of: every file that could change its outputs, and no other figure."""

import nbformat
import pytest

from caracal_book.rules.closure import of_file, of_notebook

FILES = {
    "caracal_min/__init__.py": "from .model import Model\n",
    "caracal_min/model.py": "from .spectral import conv\nclass Model: pass\n",
    "caracal_min/spectral.py": "def conv(): pass\n",
    "caracal_min/unused.py": "",
    "caracal_min/__main__.py": "def main():\n    from . import unused\n",
    "book/caracal_book/__init__.py": "",
    "book/caracal_book/viz/__init__.py": "from .clock import clock\nfrom .poke import poke\nHERE = 1\n",
    "book/caracal_book/viz/clock.py": "from . import svg\nfrom .figure import Figure\ndef clock(): pass\n",
    "book/caracal_book/viz/clock.js": "", "book/caracal_book/viz/poke.js": "", "book/caracal_book/viz/other.js": "",
    "book/caracal_book/viz/poke.py": "from .figure import Figure\ndef poke(): return Figure(parts=['engine/loader'])\n",
    "book/caracal_book/viz/engine/loader.js": "", "book/caracal_book/viz/engine/model.js": "",
    "book/caracal_book/viz/figure.py": "def css():\n    return open('figure.css')\nclass Figure: pass\n",
    "book/caracal_book/viz/figure.css": "", "book/caracal_book/viz/svg.py": "",
    "book/caracal_book/runs/__init__.py": "def load(name): return open(f'{name}.json')\n",
    "book/caracal_book/runs/learn_mirror.json": "", "book/caracal_book/runs/learn_recall.json": "",
    "book/caracal_book/runs/race.json": "",
    "tests/unit/helper.py": "from caracal_min.spectral import conv\n",
    "tests/unit/test_a.py": "from helper import conv\n",
}


@pytest.fixture
def repository(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def reached(repository, code):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    return {path.relative_to(repository).as_posix().rpartition("caracal_")[2] for path in
            of_notebook(notebook, repository)}


def test_a_figure_brings_its_script_and_what_it_imports_and_no_other_figure(repository):
    figures = {"book/viz/__init__.py", "book/viz/clock.py", "book/viz/clock.js", "book/viz/svg.py",
               "book/viz/figure.py", "book/viz/figure.css"}
    assert reached(repository, "from caracal_book import viz\nviz.clock(1)") == figures
    assert reached(repository, "from caracal_book.viz import clock") == figures
    assert reached(repository, "import caracal_book.viz as v\nv.clock(2)") == figures
    assert reached(repository, "from caracal_book.viz.clock import clock") == figures


def test_a_name_of_the_package_brings_the_modules_behind_it(repository):
    model = {"min/__init__.py", "min/model.py", "min/spectral.py"}
    assert reached(repository, "def f():\n    from caracal_min import Model") == model
    assert reached(repository, "x = 1\n%matplotlib inline") == set()


@pytest.mark.parametrize("code, records", [
    ("runs.load('race')", {"race"}), ("runs.load(f'learn_{task}')", {"learn_mirror", "learn_recall"}),
    ("runs.load('learn_' + task)", {"learn_mirror", "learn_recall"}), ("x = 'a race of models'", set()),
])
def test_a_record_that_is_named_counts(code, records, repository):
    found = reached(repository, f"from caracal_book import runs\nruns.load\n{code}")
    assert found - {"book/runs/__init__.py"} == {f"book/runs/{name}.json" for name in records}


def test_a_test_brings_the_helpers_of_its_folders(repository):
    found = of_file(repository / "tests" / "unit" / "test_a.py", repository)
    assert {path.name for path in found} == {"test_a.py", "helper.py", "spectral.py"}


def test_the_chapters_reach_what_they_show(root):
    """On the notebooks as they are: each reaches at least one module, and none reaches a checker of another chapter."""
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        found = of_notebook(nbformat.read(path, 4), root)
        checkers = {file.stem for file in found if file.parent.name == "exercises"}
        assert checkers - {"__init__", "counting", "streams"} in ({path.stem.partition("_")[2]}, set()), path.stem
        assert any("caracal_min" in file.parts for file in found), path.stem
        if "Caracal.from_pretrained" in path.read_text(encoding="utf-8"):
            assert root / "caracal_min" / "pretrained" / "micro" / "model.safetensors" in found, path.stem
