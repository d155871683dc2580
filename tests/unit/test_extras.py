"""What is said where a package is missing: what needs it, and a command that installs it from where it is."""

import ast
import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

import caracal_min
from caracal_min import extras

PACKAGE = Path(caracal_min.__file__).parent
REQUIRES = ["torch>=2.6", 'jupyter-thing<2,>=1.0.4; extra == "book"', 'transformers>=5; extra == "eval"',
            'lm-eval; extra == "eval"', 'flash-attn; platform_system == "Linux" and extra == "gpu"']


def calls() -> list[tuple[str, list[str]]]:
    """Every call of `missing`: where it is, and its words, with those of f-strings left empty."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "missing":
                words = [a.value if isinstance(a, ast.Constant) else "" for a in node.args]
                found.append((f"{path.relative_to(PACKAGE)}:{node.lineno}", words))
    return found


@pytest.fixture
def stated(monkeypatch):
    monkeypatch.setattr(extras, "requires", lambda name: REQUIRES)


@pytest.mark.parametrize("arguments, said", [
    (("a baseline", "transformers"), 'a baseline needs transformers: pip install "transformers>=5"'),
    (("tasks", "lm-eval", "eval"), 'tasks needs lm-eval: pip install "transformers>=5" lm-eval'),
    (("pages", "jupyter-thing"), 'pages needs jupyter-thing: pip install "jupyter-thing<2,>=1.0.4"'),
    (("a kernel", "flash-attn", "gpu"), "a kernel needs flash-attn: pip install flash-attn"),
    (("a figure", "other"), "a figure needs other: pip install other"),
])
def test_the_command_names_what_the_metadata_asks_for(stated, arguments, said):
    error = extras.missing(*arguments)
    assert isinstance(error, ImportError) and str(error) == said


def test_a_copied_folder_without_metadata_still_says_what_to_install(monkeypatch):
    def requires(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(extras, "requires", requires)
    assert str(extras.missing("a baseline", "transformers", "eval")).endswith(": pip install transformers")


def test_every_call_names_a_package_of_its_extra(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {name: {re.match(r"[\w.-]+", line)[0] for line in lines}
              for name, lines in project["optional-dependencies"].items()}
    anywhere = set().union(*groups.values())
    found = calls()
    assert len(found) >= 10
    assert [(where, words) for where, words in found
            if words[1] not in (groups[words[2]] if len(words) > 2 else anywhere)] == []
    assert project["name"] == extras.DISTRIBUTION


def test_no_file_recommends_a_name_that_is_on_no_index(root):
    """Whoever registers the name on PyPI would get what is installed in our name."""
    files = [*PACKAGE.rglob("*.py"), *root.glob("*.md"), *root.glob("book/**/*.md"), *root.glob("notebooks/*.ipynb"),
             *root.glob("tools/*.py"), *root.glob("tests/**/*.py")]
    wrong = re.compile(r"pip install [^\n]*caracal" + "-min")
    assert [str(path.relative_to(root)) for path in files if wrong.search(path.read_text(encoding="utf-8"))] == []
