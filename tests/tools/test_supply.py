"""What the book is built with: promised Pythons, pins and constraints, actions by commit."""

import re
import tomllib

import pytest
import resolve
import yaml
from packaging.requirements import Requirement


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def promised(project):
    """The Pythons that the classifiers name, the oldest first."""
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", c) for c in project["project"]["classifiers"]]
    return [match[1] for match in found if match]


@pytest.fixture(scope="module")
def workflows(root):
    return {path.name: path.read_text() for path in (root / ".github" / "workflows").glob("*.yml")}


def requirements(root, name):
    lines = (line.partition("#")[0].strip() for line in (root / name).read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def test_the_same_pythons_are_promised_everywhere(root, project, promised, workflows):
    assert promised == ["3.11", "3.12", "3.13"]
    oldest = promised[0]
    assert project["project"]["requires-python"] == f">={oldest}" and resolve.lowest_python() == oldest
    assert project["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")
    for name, words in {"README.md": "need Python {} or newer", "book/how_to_run.md": "Python {} or newer",
                        "Makefile": "Needs Python >= {} "}.items():
        assert words.format(oldest) in (root / name).read_text(encoding="utf-8"), name
    makefile = (root / "Makefile").read_text()
    assert f"sys.version_info < (3, {oldest[2:]})" in makefile and f"needs {oldest} or newer" in makefile
    assert yaml.safe_load(workflows["ci.yml"])["jobs"]["units"]["strategy"]["matrix"]["python"] == promised
    used = re.findall(r'python-version: "([\d.]+)"', workflows["pages.yml"])
    assert used and set(used) <= set(promised)
    named = re.findall(r"python(3\.\d+)", makefile + (root / "book/how_to_run.md").read_text(encoding="utf-8"))
    assert named and set(named) <= set(promised)


def test_direct_requirements_are_pinned_for_every_promised_python(root, promised):
    direct = requirements(root, "requirements.txt")
    for requirement in direct:
        assert re.fullmatch(r"==[\w.]+", str(requirement.specifier)), requirement
        assert requirement.marker is None or any(requirement.marker.evaluate(
            {"python_version": version, "sys_platform": "linux"}) for version in promised), requirement
    assert "torch==2.13.0" in map(str, direct)


def test_actions_are_pinned_by_commit(workflows):
    lines = [(name, line) for name, text in workflows.items() for line in text.splitlines() if "uses:" in line]
    assert len(lines) >= 8
    assert [(name, line) for name, line in lines
            if not re.fullmatch(r"\s*(- )?uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line)] == []
    commits = {}
    for _, line in lines:
        action, _, pin = line.partition("uses: ")[2].partition("@")
        assert commits.setdefault(action, pin) == pin, f"{action} has two pins"
