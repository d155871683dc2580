"""The maintainers' scripts that rewrite notebooks and draw the cover."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import nbformat
import pytest
import set_source
from bookext.site import stamp_downloads

from caracal_book.rules.notebook_rules import SETUP


@pytest.mark.parametrize("source", [
    "caracal-min[train] @ git+https://github.com/owner/name@main", r"C:\wheels\caracal_min-0.1.0.whl",
])
def test_the_source_is_set_and_nothing_else(source, make_notebook):
    before = make_notebook("Text.")
    after = set_source.set_source(before, source)
    first, *rest = after.cells[1].source.splitlines()
    namespace = {}
    exec(first, namespace)
    assert namespace["SOURCE"] == source
    assert rest == SETUP.splitlines()[1:]
    assert after["cells"][0] == before["cells"][0] and after["cells"][2:] == before["cells"][2:]
    assert before.cells[1].source == SETUP, "the notebook given stays"
    assert set_source.set_source(after, "..").cells[1].source == SETUP


def test_links_of_the_chapters_lead_to_pages_of_the_book(root, notebooks):
    pages = set()
    for notebook in notebooks.values():
        for cell in set_source.set_site(notebook, "https://o.github.io/n")["cells"]:
            pages.update(re.findall(r"\]\(https://o\.github\.io/n/([\w/]+)\.html", cell.source))
    assert "book/claims" in pages
    contents = (root / "_toc.yml").read_text(encoding="utf-8")
    assert [page for page in sorted(pages) if f"file: {page}\n" not in contents and page != "index"] == []


def run_setup(tmp_path, source, torch_version=None):
    """The set-up cell in a Python without caracal_min, which an empty package of torch may precede."""
    if torch_version is not None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text(f"__version__ = {torch_version!r}\n")
    hidden = ("import importlib.util as u; f = u.find_spec\n"
              "u.find_spec = lambda name: None if name == 'caracal_min' else f(name)\n")
    return subprocess.run([sys.executable, "-c", hidden + SETUP.replace('".."', repr(source))], cwd=tmp_path,
                          capture_output=True, text=True, env={**os.environ, "PIP_NO_INPUT": "1"})


@pytest.mark.process
def test_a_torch_that_is_too_old_is_refused_and_not_replaced(tmp_path):
    done = run_setup(tmp_path, str(tmp_path / "nowhere"), "2.5.1+cu121")
    assert done.stderr == "The book needs torch 2.6 or newer, and here is 2.5.1+cu121: upgrade it.\n"


@pytest.mark.parametrize("slug, url, source, link", [
    ("owner/name", None, "caracal-min[train] @ git+https://github.com/owner/name@abc123",
     "https://owner.github.io/name/book/claims.html"),
    ("", "https://pages.example.org/book", "..", "https://pages.example.org/book/book/claims.html"),
    ("", None, "{root}[train]", "../book/claims.md")])
def test_the_notebooks_behind_the_download_buttons_know_their_package(tmp_path, root, monkeypatch, slug, url, source,
                                                                      link):
    monkeypatch.setenv("BOOK_REPOSITORY", slug)
    monkeypatch.setenv("GITHUB_SHA", "abc123")
    monkeypatch.setenv("BOOK_URL", url or "")
    copy = tmp_path / "_sources" / "notebooks" / "01_mixing_tokens.ipynb"
    copy.parent.mkdir(parents=True)
    copy.write_bytes((root / "notebooks" / copy.name).read_bytes())
    html = SimpleNamespace(format="html")
    stamp_downloads(SimpleNamespace(srcdir=root, outdir=tmp_path, builder=html), None)
    notebook = nbformat.read(copy, as_version=4)
    (cell,) = [c for c in notebook.cells if "setup" in c.metadata.get("tags", [])]
    assert cell.source.partition("\n")[0].startswith(f'SOURCE = "{source.format(root=root)}"')
    claims = {found for c in notebook.cells for found in re.findall(r"\]\(([^)]*claims[^)#]*)", c.source)}
    assert claims == {link}
