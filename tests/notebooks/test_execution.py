"""The execution of notebooks by the build: a failure is told at once and keeps the rest, a long cell is named."""

import io

import nbformat
import pytest
from bookext import execution
from nbformat import v4
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import docutils_namespace

pytestmark = pytest.mark.process


@pytest.fixture
def build(tmp_path, monkeypatch):
    """A function that builds a book of two notebooks, given their code."""
    monkeypatch.delenv("IPYTHONDIR", raising=False)  # the build sets it; this puts it back afterwards

    def run(**code):
        source = tmp_path / "source"
        source.mkdir(exist_ok=True)
        (source / "index.md").write_text("# Book\n\n```{toctree}\n" + "\n".join(code) + "\n```\n", encoding="utf-8")
        for name, text in code.items():
            notebook = v4.new_notebook(cells=[v4.new_markdown_cell(f"# {name}", id="title"),
                                             v4.new_code_cell(text, id="code")])
            notebook["metadata"]["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
            nbformat.write(notebook, source / f"{name}.ipynb")
        settings = {"extensions": ["myst_nb", "bookext.execution", "bookext.kernel"], "nb_execution_mode": "cache"}
        with docutils_namespace():
            Sphinx(source, None, tmp_path / "build" / "html", tmp_path / "doctrees", "html", settings, status=None,
                   warning=io.StringIO(), freshenv=True).build()

    return run


def test_a_chapter_that_fails_is_told_at_once_and_the_others_are_kept(build, capfd):
    with pytest.raises(ExtensionError, match="b failed, see above; what was executed is kept"):
        build(a="print(1)", b="x = 1\nraise ValueError('no such file')")
    said = capfd.readouterr().out
    assert "a: executed in" in said
    assert "b: FAILED after" in said and "in cell 2 of 2 (x = 1): ValueError: no such file" in said
    assert "jupyter execute b.ipynb" in said

    build(a="print(1)", b="x = 1")  # goes on with the rest
    said = capfd.readouterr().out
    assert "b: executed in" in said and "a: executed" not in said


def test_a_long_cell_is_named_while_it_runs(build, capfd, monkeypatch):
    monkeypatch.setattr(execution, "PULSE", 0.2)
    build(a="import time\ntime.sleep(1.5)")
    assert "s, cell 2 of 2 (import time)" in capfd.readouterr().out
