"""Printed values in the build: collect them, check the prose against them, show them in other pages.

While a notebook is read its printed values go into `env.measured_values[docname][name]`, and every
number of its prose that disagrees becomes a warning.  In a page, the role

    {measured}`04_causal_convolution: leak in float32`

stands for the number that the notebook printed.
"""

from html import escape
from pathlib import Path

import nbformat
from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

from caracal_book.rules.printed_values import PrintedValue, number_html, printed_values
from caracal_book.rules.prose_numbers import check_notebook

from .by_page import ByPage

logger = logging.getLogger(__name__)
measured_in = ByPage("measured_values")  # dictionaries of printed values by name


def setup(app):
    measured_in.connect(app)
    app.add_node(measured_number, html=(visit_html, None))
    app.add_role("measured", MeasuredRole())
    app.add_post_transform(FillInMeasured)
    app.connect("doctree-read", collect_and_check)


def notebook_of(env, docname: str) -> dict | None:
    """Load the notebook behind a page, as it stands in the repository; None for other pages."""
    path = Path(env.doc2path(docname))
    return nbformat.read(path, as_version=4) if path.suffix == ".ipynb" else None


def with_output(notebook: dict, doctree: nodes.document) -> dict:
    """Return the notebook with what its cells wrote to stdout, read from the page that shows it.

    The file that myst-nb writes beside the pages has no outputs where they came from the cache.
    """
    cells = [dict(cell) for cell in notebook["cells"]]
    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") == "cell_code":
            cells[cell["cell_index"]]["outputs"] = [
                {"output_type": "stream", "name": "stdout", "text": block.astext()}
                for block in cell.findall(nodes.literal_block) if "stream" in block["classes"]]
    return {**notebook, "cells": cells}


def collect_and_check(app, doctree):
    docname = app.env.docname
    notebook = notebook_of(app.env, docname)
    if notebook is None:
        return
    notebook = with_output(notebook, doctree)
    measured_in(app.env)[docname], _ = printed_values(notebook)
    for problem in check_notebook(notebook):
        logger.warning("cell %d: %s", problem.cell, problem.message, location=docname, type="measured")


class measured_number(nodes.General, nodes.Inline, nodes.Element):
    """A number that a notebook prints; attributes `notebook`, `name` and, once filled in, `number`."""


class MeasuredRole(SphinxRole):
    def run(self):
        notebook, colon, name = self.text.partition(":")
        if not colon or not name.strip():
            logger.warning("the role measured was given '%s'; write {measured}`notebook: name`", self.text,
                           location=self.get_location(), type="measured")
        node = measured_number(notebook=notebook.strip(), name=name.strip())
        self.set_source_info(node)
        return [node], []


class FillInMeasured(SphinxPostTransform):
    """Give every measured_number its value, once all notebooks have been read."""

    default_priority = 5

    def run(self, **kwargs):
        for node in list(self.document.findall(measured_number)):
            value = self.find(node["notebook"], node["name"])
            if value is None:
                logger.warning("no cell of the notebook '%s' prints a value named '%s'",
                               node["notebook"], node["name"], location=node, type="measured")
                node.replace_self(nodes.problematic(node["name"], node["name"]))
            else:
                node["number"] = value.number + ("%" if value.percent else "")

    def find(self, notebook: str, name: str) -> PrintedValue | None:
        for docname, values in measured_in(self.env).items():
            if docname.rsplit("/", 1)[-1] == notebook:
                return values.get(name)
        return None


def visit_html(translator, node):
    translator.body.append(
        f'<span class="measured" data-notebook="{escape(node["notebook"])}" data-name="{escape(node["name"])}" '
        f'data-value="{escape(node["number"])}">{number_html(node["number"])}</span>')
    raise nodes.SkipNode
