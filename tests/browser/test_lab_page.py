"""A control with a function behind it in a built page, where no kernel runs: it moves, and no widget is waited for."""

import io

import nbformat
import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

SOURCE = """\
from caracal_book import viz
def word(n=2, own="abc"):
    return own * n, {"length": len(own * n)}
viz.live(word, "a word and its length", n=range(1, 4), own=viz.Texts("abc", "de"))"""


@pytest.fixture(scope="module")
def chapter(tmp_path_factory, root):
    """The address of a page that was built, with the book's own extension, from a notebook that it executed."""
    folder = tmp_path_factory.mktemp("page")
    source = folder / "source"
    source.mkdir()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A chapter"),
                                               nbformat.v4.new_code_cell(SOURCE)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, source / "index.ipynb")
    settings = {"extensions": ["myst_nb", "bookext.kernel"], "nb_execution_mode": "force", "nb_ipywidgets_js": {},
                "nb_execution_timeout": 240, "nb_execution_raise_on_error": True}
    with pytest.MonkeyPatch.context() as patch, docutils_namespace():
        patch.setenv("IPYTHONDIR", "")               # the build sets it; this puts it back afterwards
        patch.setenv("PYTHONPATH", str(root))
        Sphinx(source, None, folder / "html", folder / "doctrees", "html", settings, status=None,
               warning=io.StringIO(), freshenv=True).build()
    return (folder / "html" / "index.html").as_uri()


def test_the_control_moves_without_a_kernel(chapter, open_figure):
    page = open_figure(chapter, viewport={"width": 900, "height": 900})
    live = page.locator(".caracal-live")
    assert live.locator("pre").inner_text() == "abcabc"
    live.locator("input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    assert live.locator("pre").inner_text() == "abcabcabc"
    live.locator("select").select_option("de")
    assert live.locator("pre").inner_text() == "dedede"
    assert live.locator(".live-bars").inner_text().split() == ["length", "6.00"]


def test_no_widget_is_left_in_the_page(chapter, browser):
    context = browser.new_context()
    page = context.new_page()
    page.goto(chapter)
    text = page.content()
    context.close()
    assert "widget-view" not in text and "widget-state" not in text and "model_id" not in text
