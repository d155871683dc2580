"""What the notebooks print: the prose is checked against it, and other pages show it.

Before Sphinx reads a page, `app.notebooks` is filled with the executed notebooks and `app.claims` with the ledger.
Each number of a notebook's prose that disagrees with its cells becomes a warning, and so does each claim whose cell is
missing or says that something was not tested.  In a page, the role

    {measured}`04_causal_convolution: leak in float32`

stands for the number that the notebook printed.
"""

from html import escape
from pathlib import Path

import nbformat
from docutils import nodes
from jupyter_cache import get_cache
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

from caracal_book.rules.ledger import check_boxes, check_claims, read_ledger, untested
from caracal_book.rules.printed_values import number_html, printed_values
from caracal_book.rules.prose_numbers import check_notebook

logger = logging.getLogger(__name__)


def setup(app):
    app.connect("env-before-read-docs", load, priority=600)  # once all notebooks are executed
    app.add_role("measured", Measured())


def load(app, env, docnames):
    """Read the notebooks, by stem, with what they printed, and the ledger; warn of what contradicts them."""
    app.notebooks = {path.stem: with_output(app, path) for path in sorted(map(Path, map(env.doc2path, env.found_docs)))
                     if path.suffix == ".ipynb"}
    app.values = {stem: printed_values(notebook)[0] for stem, notebook in app.notebooks.items()}
    claims = read_ledger(Path(app.srcdir, "book", "claims.yml"))
    app.claims = {claim.id: claim for claim in claims}
    problems = [(stem, problem) for stem, notebook in app.notebooks.items()
                for problem in (*check_notebook(notebook), *untested(notebook))]
    for stem, problem in problems + check_claims(claims, app.notebooks) + check_boxes(claims, app.notebooks):
        place = f", cell {problem.cell}" if problem.cell >= 0 else ""
        logger.warning("%s%s: %s", stem, place, problem.message, type="measured")


def with_output(app, path: Path) -> dict:
    """Return a notebook with its outputs, from the cache if the build executes notebooks."""
    notebook = nbformat.read(path, as_version=4)
    if app.config.nb_execution_mode != "cache":
        return notebook
    return get_cache(app.env.mystnb_config.execution_cache_path).merge_match_into_notebook(notebook)[1]


class Measured(SphinxRole):
    def run(self):
        notebook, _, name = self.text.partition(": ")
        value = self.env.app.values.get(notebook, {}).get(name)
        if value is None:
            logger.warning("no cell of the notebook '%s' prints a value named '%s'", notebook, name,
                           location=self.get_location(), type="measured")
            return [nodes.problematic(name, name)], []
        number = value.number + "%" * value.percent
        return [nodes.raw("", f'<span class="measured" data-notebook="{notebook}" data-name="{escape(name)}" '
                              f'data-value="{number}">{number_html(number)}</span>', format="html")], []
