"""The claims ledger in the build: the table, the ids of the asserting cells, and links both ways.

The directive `claims-ledger` of book/claims.md shows a YAML file as a table for each topic, whose rows have the ids
`ledger-8`.  The code cell tagged `claim-8` gets the id `claim-8` and a line that leads to its row, and a
link written `[claim 8](../book/claims.md)` is made to point at the row.  A page on which a cell says that
something is `not tested here` is a warning.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from caracal_book.rules.cells import number_of
from caracal_book.rules.ledger import (
    LITERATURE,
    VERDICTS,
    Claim,
    check_boxes,
    check_claims,
    claim_tags,
    read_ledger,
    slug,
    untested,
)

from .by_page import ByPage
from .measured import notebook_of, with_output

logger = logging.getLogger(__name__)
ledger_pages = ByPage("claims_ledgers")  # lists of claims

HEADS = ("No.", "The paper says", "Verdict", "We found")
_FILTER = '<div class="ledger-filter" hidden>FIELDS <output></output></div>'
_CLAIM_LINK = re.compile(r"claim\s+(\d+)", re.IGNORECASE)


def setup(app):
    ledger_pages.connect(app)
    app.add_directive("claims-ledger", ClaimsLedger)
    app.add_node(claim_link)
    app.add_post_transform(ResolveClaimLinks)
    app.connect("doctree-read", mark_asserting_cells)
    app.connect("doctree-read", report_untested)
    app.connect("html-page-context", load_filter)
    app.connect("env-check-consistency", check_consistency)


class claim_link(nodes.Inline, nodes.TextElement):
    """A link to the row (`to="ledger"`) or to the asserting cell (`to="cell"`) of the claim `number`."""


class ClaimsLedger(SphinxDirective):
    """The ledger as a table for each topic; the argument is a YAML file beside the page."""

    required_arguments = 1

    def run(self):
        path = Path(self.env.doc2path(self.env.docname)).parent / self.arguments[0]
        self.env.note_dependency(str(path))
        try:
            claims = read_ledger(path)
        except (OSError, ValueError) as error:
            raise self.error(f"{self.arguments[0]}: {error}") from error
        ledger_pages(self.env)[self.env.docname] = claims
        topics = dict.fromkeys(claim.topic for claim in claims)
        return [summary(claims), ledger_filter(claims),
                *(self.topic(topic, [claim for claim in claims if claim.topic == topic]) for topic in topics)]

    def topic(self, topic: str, claims: list[Claim]) -> nodes.Node:
        return nodes.section("", nodes.title("", topic), self.table(claims), ids=[nodes.make_id(topic)],
                             classes=["ledger-topic"])

    def table(self, claims: list[Claim]) -> nodes.Node:
        group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in (6, 38, 16, 40)), cols=len(HEADS))
        group += nodes.thead("", nodes.row("", *(nodes.entry("", nodes.paragraph("", head)) for head in HEADS)))
        group += nodes.tbody("", *(self.row(claim) for claim in claims))
        return nodes.table("", group, classes=["claims-ledger"])

    def row(self, claim: Claim) -> nodes.Node:
        number = nodes.paragraph("", "", nodes.reference(
            "", str(claim.id), internal=True, refuri=f"#ledger-{claim.id}", classes=["ledger-number"]))
        source = nodes.paragraph("", claim.paper, classes=["ledger-source"])
        link = nodes.paragraph("", "", claim_link(number=claim.id, to="cell"), classes=["ledger-source"])
        columns = ([number], [*self.markdown(claim.says), source],
                   [nodes.paragraph("", "", badge(claim.verdict)), *self.markdown(claim.condition)],
                   [*self.markdown(claim.found), *self.folded(claim.more), link])
        return nodes.row("", *(nodes.entry("", *column) for column in columns), ids=[f"ledger-{claim.id}"],
                         classes=[f"is-{slug(claim.verdict)}", f"in-{claim.notebook}"])

    def folded(self, text: str) -> list[nodes.Node]:
        start, end = (nodes.raw("", html, format="html") for html in ("<details><summary>More</summary>", "</details>"))
        return [start, *self.markdown(text), end] if text else []

    def markdown(self, text: str) -> list[nodes.Node]:
        box = nodes.Element()
        self.state.nested_parse(text.splitlines(), 0, box)
        return box.children


def summary(claims: list[Claim]) -> nodes.Node:
    """Return the verdicts, how many claims have each, and what they mean."""
    counts = ((sum(claim.verdict == verdict for claim in claims), verdict) for verdict in VERDICTS)
    return nodes.bullet_list("", *(
        nodes.list_item("", nodes.paragraph("", "", badge(verdict, ids=[slug(verdict)]),
                                            nodes.Text(f" ({count}): {VERDICTS[verdict]}.")))
        for count, verdict in counts if count))


def badge(verdict: str, prefix: str = "", **attributes: object) -> nodes.Node:
    return nodes.inline("", prefix + verdict, classes=["verdict", f"verdict-{slug(verdict)}"], **attributes)


def ledger_filter(claims: list[Claim]) -> nodes.Node:
    """Return two lists to choose from, which hide the rows of other verdicts and chapters; no script, no lists."""
    stems = sorted({claim.notebook for claim in claims})
    lists = (("verdict", [(f"is-{slug(verdict)}", verdict) for verdict in VERDICTS]),
             ("chapter", [(f"in-{stem}", "earlier publications" if stem == LITERATURE else
                           f"{number_of(stem)}. {stem.partition('_')[2].replace('_', ' ')}") for stem in stems]))
    fields = "".join(f'<label>{name} <select><option value="">all</option>' + "".join(
        f'<option value="{value}">{words}</option>' for value, words in choices) + "</select></label>"
                     for name, choices in lists)
    return nodes.raw("", _FILTER.replace("FIELDS", fields), format="html")


def load_filter(app, pagename, templatename, context, doctree):
    if pagename in ledger_pages(app.env):
        app.add_js_file("ledger.js")


def mark_asserting_cells(app, doctree):
    """Give the cell tagged claim-8 the id claim-8 and, below it, a link to the row of the ledger."""
    for cell in list(doctree.findall(nodes.container)):
        if cell.get("nb_element") == "cell_code":
            for number in claim_tags({"metadata": cell["cell_metadata"]}):
                cell["ids"].append(f"claim-{number}")
                cell["classes"].append("asserts-claim")
                line = nodes.paragraph("", "", claim_link(number=number, to="ledger"), classes=["claim-backlink"])
                cell.parent.insert(cell.parent.index(cell) + 1, line)


def report_untested(app, doctree):
    """Warn of each line on a page that says that something was not tested: nothing in the ledger rests on it."""
    docname = app.env.docname
    notebook = notebook_of(app.env, docname)
    if notebook is not None:
        for problem in untested(with_output(notebook, doctree)):
            logger.warning("cell %d: %s", problem.cell, problem.message, location=docname, type="claims")


class ResolveClaimLinks(SphinxPostTransform):
    """Turn claim_link nodes, and links written `[claim 8](../book/claims.md)`, into addresses."""

    default_priority = 900

    def run(self, **kwargs):
        places = {claim.id: (page, claim) for page, claims in ledger_pages(self.env).items() for claim in claims}
        for node in list(self.document.findall(claim_link)):
            if node["number"] in places:
                node.replace_self(self.link(node, *places[node["number"]]))
            else:
                node.parent.parent.remove(node.parent)
        for docname in {docname for docname, _ in places.values()}:
            self.point_at_rows(self.uri(docname))

    def link(self, node: claim_link, ledger: str, claim: Claim) -> nodes.Node:
        if node["to"] == "ledger":
            return nodes.reference("", "", nodes.Text(f"Claim {claim.id} in the ledger: {claim.verdict}"),
                                   internal=True, refuri=f"{self.uri(ledger)}#ledger-{claim.id}")
        docname = page_of(self.env, claim.notebook)
        title = self.env.titles[docname].astext() if docname else claim.notebook
        what = "Sources" if claim.notebook == LITERATURE else "Cell"
        return nodes.reference("", "", nodes.Text(f"{what} in {title}"), internal=True,
                               refuri=f"{self.uri(docname)}#claim-{claim.id}" if docname else "#")

    def uri(self, docname: str) -> str:
        return self.app.builder.get_relative_uri(self.env.docname, docname)

    def point_at_rows(self, ledger_uri: str):
        for reference in self.document.findall(nodes.reference):
            words = _CLAIM_LINK.fullmatch(reference.astext().strip())
            if words and reference.get("refuri") == ledger_uri:
                reference["refuri"] = f"{ledger_uri}#ledger-{words[1]}"


def page_of(env, stem: str) -> str | None:
    """Return the document of a notebook, or of the page on earlier publications; a solution may have its name, too."""
    return next((name for name in sorted(env.found_docs) if name.rsplit("/", 1)[-1] == stem
                 and (stem == LITERATURE or env.doc2path(name).endswith(".ipynb"))), None)


def check_consistency(app, env):
    """Warn of claims without a cell and cells without a claim, once every page has been read."""
    claims = [claim for claims in ledger_pages(env).values() for claim in claims]
    notebooks = {name.rsplit("/", 1)[-1]: (name, notebook) for name in sorted(env.found_docs)
                 if (notebook := notebook_of(env, name)) is not None}
    by_stem = {stem: notebook for stem, (_, notebook) in notebooks.items()}
    for stem, problem in check_claims(claims, by_stem) + check_boxes(claims, by_stem):
        place = f"cell {problem.cell}: " if problem.cell >= 0 else ""
        location = notebooks[stem][0] if stem in notebooks else None
        logger.warning("%s%s", place, problem.message, location=location, type="claims")
