"""What each box of a chapter is, so that it looks like it: a claim with its verdicts, a theorem, a figure with caption.

A quotation that begins "What the paper says" names claims of the ledger; their verdicts stand above it as chips and
colour it.  One that begins "Theorem" holds a theorem and its proof.  A paragraph "**Figure 4.1.** ..." behind a cell is
the caption of what the cell shows.  A cell tagged `claim-8` gets the id `claim-8`, and a line that leads to its row.
"""

import re
from functools import partial

from docutils import nodes

from caracal_book.rules.ledger import VERDICTS, claim_tags, slug

CAPTION = re.compile(r"Figure (\d+|[A-Z])\.(\d+)\.")
_CLAIM = re.compile(r"\bclaim (\d+)")


class book_figure(nodes.General, nodes.Element):
    """A cell and its caption.  It is no docutils figure, which Sphinx would number a second time."""


class book_caption(nodes.Part, nodes.TextElement):
    """The caption of a `book_figure`."""


def setup(app):
    for node, tag in ((book_figure, "figure"), (book_caption, "figcaption")):
        app.add_node(node, html=(partial(_open, tag), partial(_close, tag)))
    for mark in (mark_claims, frame_figures, mark_boxes):
        app.connect("doctree-read", mark)


def _open(tag, self, node):
    self.body.append(self.starttag(node, tag))


def _close(tag, self, node):
    self.body.append(f"</{tag}>\n")


def first_words(node: nodes.Element) -> str:
    """Return the text of the first bold part of a block, if the block begins with it."""
    strong = next(iter(node.findall(nodes.strong)), None)
    return strong.astext() if strong is not None and node.astext().startswith(strong.astext()) else ""


def cells(doctree: nodes.document) -> list[nodes.container]:
    return [node for node in doctree.findall(nodes.container) if node.get("nb_element") == "cell_code"]


def to_row(app, number: int, *words: nodes.Node) -> nodes.reference:
    """Return a link to a row of the ledger."""
    ledger = app.builder.get_relative_uri(app.env.docname, "book/claims")
    return nodes.reference("", "", *words, internal=True, refuri=f"{ledger}#ledger-{number}")


def mark_claims(app, doctree):
    """Give the cell tagged claim-8 the id claim-8 and, unless the text below has one, a link to the ledger."""
    for cell in cells(doctree):
        below = cell.next_node(descend=False, siblings=True)
        linked = _CLAIM.findall(below.astext()) if isinstance(below, nodes.paragraph | nodes.block_quote) else ()
        for number in claim_tags({"metadata": cell["cell_metadata"]}):
            if claim := app.claims.get(number):
                cell["ids"].append(f"claim-{number}")
                cell["classes"].append("asserts-claim")
                if str(number) not in linked:
                    link = to_row(app, number, nodes.Text(f"Claim {number} in the ledger: {claim.verdict}"))
                    line = nodes.paragraph("", "", link, classes=["claim-backlink"])
                    cell.parent.insert(cell.parent.index(cell) + 1, line)


def frame_figures(app, doctree):
    """Put each cell whose next paragraph is a caption, and that caption, into a figure of its own."""
    for cell in cells(doctree):
        below = cell.next_node(descend=False, siblings=True)
        if isinstance(below, nodes.paragraph) and (number := CAPTION.match(first_words(below))):
            parent = cell.parent
            parent.remove(below)
            parent[parent.index(cell)] = figure = book_figure(classes=["book-figure"],
                                                              ids=[f"figure-{number[1]}-{number[2]}"])
            figure += [cell, book_caption("", "", *below.children)]


def mark_boxes(app, doctree):
    """Give the boxes their classes, and those of claims their chips."""
    for box in doctree.findall(nodes.block_quote):
        if first_words(box).startswith("Theorem"):
            box["classes"].append("theorem-box")
        elif first_words(box) == "What the paper says":
            verdicts = {number: app.claims[number].verdict for number in map(int, _CLAIM.findall(box.astext()))
                        if number in app.claims}
            furthest = max(verdicts.values(), key=list(VERDICTS).index, default="")  # of the claims, from "holds"
            box["classes"] += ["claim-box", f"claim-{slug(furthest)}"]
            chips = nodes.paragraph(classes=["claim-verdicts"])
            for number, verdict in verdicts.items():
                classes = ["verdict", f"verdict-{slug(verdict)}"]
                chips += to_row(app, number, nodes.inline("", f"Claim {number}: {verdict}", classes=classes))
            box.insert(0, chips)
