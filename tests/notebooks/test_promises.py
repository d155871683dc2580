"""The page of promises: its tests exist, its figures are those of the fault runs, and what is missing is a warning."""

import io
import json
import re

import pytest
from bookext import promises
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

RUNS = {"kills": {"what": "Killed, each.", "tried": 20, "held": 20, "seed": 7, "code": {"commit": "0123456789" * 4}},
        "broken": {"what": "Broken.", "tried": 5, "held": 4, "seed": 0, "code": {"commit": None}}}
PAGE = """# Page

It holds ({tested}`tests/unit/test_a.py::test_it_holds`) in {fault}`kills: held` of {fault}`kills: tried` cases.

:::{fault-runs}
:::
"""


@pytest.fixture
def build(tmp_path):
    """Build a page beside one file of tests; return warnings and HTML."""
    def run(page):
        tests = tmp_path / "tests" / "unit" / "test_a.py"
        tests.parent.mkdir(parents=True)
        tests.write_text("def test_it_holds():\n    pass\n\n\ndef helper():\n    pass\n")
        (tmp_path / "book").mkdir()
        (tmp_path / "book" / "fault_runs.json").write_text(json.dumps(RUNS))
        (tmp_path / "index.md").write_text(page)
        warnings, settings = io.StringIO(), {"extensions": ["myst_parser", "bookext.promises"],
                                             "source_suffix": {".md": "markdown"},
                                             "myst_enable_extensions": ["colon_fence"]}
        with docutils_namespace():
            Sphinx(tmp_path, None, tmp_path / "html", tmp_path / "doctrees", "html", settings, status=None,
                   warning=warnings, freshenv=True).build()
        return warnings.getvalue(), (tmp_path / "html" / "index.html").read_text(encoding="utf-8")

    return run


def test_names_and_figures_are_shown(build):
    warnings, html = build(PAGE)
    assert warnings == ""
    assert 'title="tests/unit/test_a.py::test_it_holds">test_<wbr>it_<wbr>holds</code>' in html
    assert "in 20 of 20 cases" in html
    cells = re.findall(r"<td><p>(.*?)</p></td>", html)
    assert cells == ["Killed, each.", "20", "20", "7", "0123456", "Broken.", "5", "4", "0", "none"]


@pytest.mark.parametrize("old, new, says", [
    ("test_it_holds`", "test_it_helds`", "tests/unit/test_a.py has no test 'test_it_helds'"),
    ("::test_it_holds", "::helper", "tests/unit/test_a.py has no test 'helper'"),
    ("::test_it_holds", "", "tests/unit/test_a.py has no test ''"),
    ("test_a.py", "test_b.py", "there is no file tests/unit/test_b.py of tests"),
    ("tests/unit/test_a.py", "index.md", "there is no file index.md of tests"),
    ("kills: held", "kill: held", "fault_runs.json has no run named 'kill'"),
    ("kills: held", "kills: failed", "write {fault}`run: tried|held|seed`"),
    ("kills: held", "broken: tried", "fault_runs.json: broken held 4 times of 5"),
])
def test_what_does_not_exist_or_did_not_hold_is_a_warning(build, old, new, says):
    warnings, _ = build(PAGE.replace(old, new, 1))
    assert says in warnings and warnings.count("WARNING") == 1


def test_every_test_on_the_page_exists(root):
    text = (root / "book" / "promises.md").read_text(encoding="utf-8")
    places = re.findall(r"\{tested\}`(.*?)`", text, re.DOTALL)
    assert len(places) > 25
    assert [problem for place in places if (problem := promises.missing_test(root, place))] == []
