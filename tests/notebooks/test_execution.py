"""The execution of notebooks by the build: a failure is told at once and keeps the rest, a long cell is named."""

import pytest
from bookext import execution
from nbformat import v4
from sphinx.errors import ExtensionError

pytestmark = pytest.mark.process


@pytest.fixture
def build(build_book):
    """A function that builds a book of two notebooks, given their code."""

    def run(**code):
        files = {f"{name}.ipynb": v4.new_notebook(cells=[
            v4.new_markdown_cell(f"# {name}", id="title"), v4.new_code_cell(text, id="code")])
            for name, text in code.items()}
        files["index.md"] = "# Book\n\n```{toctree}\n" + "\n".join(code) + "\n```\n"
        build_book(files, "execution", "kernel", mode="cache")

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
