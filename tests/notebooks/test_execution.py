"""The execution of notebooks by the build: a failure is told at once and keeps the rest."""

import os

import pytest
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
        return build_book(files, "execution", mode="cache")[1]

    return run


def test_a_chapter_that_fails_is_told_at_once_and_the_others_are_kept(build, capfd):
    with pytest.raises(ExtensionError, match="b failed, see above; what was executed is kept"):
        build(a="print(1)", b="x = 1\nraise ValueError('no such file')")
    said = capfd.readouterr().out
    assert "a: executed in" in said
    assert "b: FAILED: " in said and "\nx = 1\n" in said and "no such file" in said.rpartition("ValueError")[2]

    build(a="print(1)", b="x = 1")  # goes on with the rest
    said = capfd.readouterr().out
    assert "b: executed in" in said and "a: executed" not in said


def test_a_page_shows_lines_whole_and_no_state_of_widgets_and_its_kernel_leaves_the_process_as_it_was(build):
    before = dict(os.environ)
    html = build(a="print(end='      ', flush=True)\nprint('the   cat')\nimport ipywidgets, os\n"
                   "print(os.environ['OMP_NUM_THREADS'], os.path.basename(os.environ['IPYTHONDIR']))\n"
                   "out = ipywidgets.Output()\nwith out:\n    print(1)\nout")
    page, threads = (html / "a.html").read_text(encoding="utf-8"), before.get("OMP_NUM_THREADS", os.cpu_count() // 2)
    assert f">      the   cat\n{threads} .ipython\n<" in page and "widget-state" not in page
    assert dict(os.environ) == before
