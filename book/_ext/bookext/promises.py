"""The page of promises: tests that exist, and figures of the fault runs.

    {tested}`tests/unit/test_files.py::test_a_name`   the name of a test; a warning if there is no such file or function
    {fault}`killed_training: held`                    a figure of book/fault_runs.json: tried, held or seed

and the directive `fault-runs` shows all of that file as a table.  The file is written by tools/fault_runs.py.  A run
that is missing there, or in which a promise was broken, is a warning too.
"""

import ast
import json
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

logger = logging.getLogger(__name__)

FIGURES = ("tried", "held", "seed")
_FILE = "book/fault_runs.json"


def setup(app):
    app.add_node(test_name, html=(visit_html, None), latex=(visit_text, None), text=(visit_text, None))
    app.add_role("tested", TestedRole())
    app.add_role("fault", FaultRole())
    app.add_directive("fault-runs", FaultRuns)


class test_name(nodes.General, nodes.Inline, nodes.Element):
    """The name of a test; attribute `place`, file and function as pytest takes them."""


class TestedRole(SphinxRole):
    def run(self):
        if problem := missing_test(self.env.srcdir, self.text):
            logger.warning("%s", problem, location=self.get_location(), type="promises")
        return [test_name(place=self.text)], []


class FaultRole(SphinxRole):
    def run(self):
        name, _, figure = (part.strip() for part in self.text.partition(":"))
        runs, file = figures(self.env)
        entry = runs.get(name)
        if figure not in FIGURES:
            problem = f"the role fault was given '{self.text}'; write {{fault}}`run: {'|'.join(FIGURES)}`"
        elif entry is None:
            problem = f"{file} has no run named '{name}'"
        elif entry["held"] < entry["tried"]:
            problem = f"{file}: {name} held {entry['held']} times of {entry['tried']}"
        else:
            return [nodes.Text(str(entry[figure]))], []
        logger.warning("%s", problem, location=self.get_location(), type="promises")
        return [nodes.problematic(self.text, self.text)], []


class FaultRuns(SphinxDirective):
    """The fault runs as a table: what was done, how often, how often the promise held, at which commit."""

    def run(self):
        runs, _ = figures(self.env)
        head = ("What was done, and what must hold", "Tried", "Held", "Seed", "Commit")
        rows = [(entry["what"], *(str(entry[figure]) for figure in FIGURES), (entry["code"]["commit"] or "none")[:7])
                for entry in runs.values()]
        group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in (60, 9, 9, 9, 13)), cols=len(head))
        group += nodes.thead("", row(head))
        group += nodes.tbody("", *map(row, rows))
        return [nodes.table("", group, classes=["fault-runs"])]


def row(texts) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", text)) for text in texts))


def figures(env) -> tuple[dict, Path]:
    """Return the fault runs by name and the file that holds them, on which the page then depends."""
    file = Path(env.srcdir) / _FILE
    env.note_dependency(str(file))
    return (json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}), file


def missing_test(root: str | Path, place: str) -> str | None:
    """Return what is wrong with the place of a test, such as tests/unit/test_files.py::test_name; None if it exists."""
    name, _, function = place.partition("::")
    file = Path(root) / name
    if not name.startswith("tests/") or not file.is_file():
        return f"there is no file {name} of tests"
    if function not in functions(file, file.stat().st_mtime_ns):
        return f"{name} has no test '{function}'"
    return None


@cache
def functions(file: Path, changed: int) -> frozenset[str]:
    """Return the names of the tests in a file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef)
                     and node.name.startswith("test_"))


def visit_html(translator, node):
    breakable = translator.encode(node["place"].rpartition("::")[2]).replace("_", "_<wbr>")
    translator.body.append(f'<code class="test-name" title="{translator.attval(node["place"])}">{breakable}</code>')
    raise nodes.SkipNode


def visit_text(translator, node):
    translator.body.append(node["place"])
    raise nodes.SkipNode
