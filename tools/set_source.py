"""Tell notebooks where to install caracal_min from, by rewriting the first line of their set-up cell in place.

    python tools/set_source.py SOURCE NOTEBOOK...

SOURCE is whatever pip accepts: `caracal-min[train] @ git+https://github.com/owner/name@main` for the
notebooks of the `colab` branch, or the path of a wheel.  With --site, links to other pages of the book are
made absolute, since there is no book around a notebook opened in Colab:

    python tools/set_source.py SOURCE --site https://owner.github.io/name NOTEBOOK...
"""

import argparse
import copy
import json
import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

_LINE = re.compile(r'^SOURCE = "(?:[^"\\]|\\.)*"')
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([\w./-]+?)\.(md|ipynb)((?:#[\w-]+)?)\)")


def set_source(notebook: NotebookNode, source: str) -> NotebookNode:
    """Return the notebook with SOURCE set to `source`; ValueError unless exactly one cell is tagged `setup`."""
    notebook = copy.deepcopy(notebook)
    cells = [cell for cell in notebook.cells if "setup" in cell.metadata.get("tags", [])]
    if len(cells) != 1:
        raise ValueError(f"{len(cells)} cells carry the tag 'setup'; exactly one must")
    (cell,) = cells
    if not _LINE.match(cell.source):
        begins = cell.source.partition("\n")[0]
        raise ValueError(f"the set-up cell begins with {begins!r}; it must begin with SOURCE = \"...\"")
    line = f"SOURCE = {json.dumps(source, ensure_ascii=False)}"
    cell.source = _LINE.sub(lambda _: line, cell.source)
    return notebook


def set_site(notebook: NotebookNode, site: str) -> NotebookNode:
    """Return the notebook with its links to pages and chapters pointing into the published book."""
    def absolute(match: re.Match) -> str:
        parts = [part for part in f"notebooks/{match[1]}".split("/") if part != "."]
        while ".." in parts:
            place = parts.index("..")
            del parts[place - 1:place + 1]
        return f"]({site.rstrip('/')}/{'/'.join(parts)}.html{match[3]})"

    notebook = copy.deepcopy(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(absolute, cell.source)
    return notebook


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Set where notebooks install caracal_min from.")
    parser.add_argument("source", help="what pip installs: an address or the path of a wheel")
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--site", help="address of the published book, for the links between pages")
    options = parser.parse_args(argv)
    for path in options.notebooks:
        notebook = nbformat.read(path, as_version=4)
        try:
            notebook = set_source(notebook, options.source)
        except ValueError as error:
            parser.error(f"{path}: {error}")
        if options.site:
            notebook = set_site(notebook, options.site)
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
