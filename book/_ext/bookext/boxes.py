"""What each box of a chapter is, so that it looks like it: a claim with its verdicts, a theorem, a figure with caption.

A quotation that begins "What the paper says" links to claims of the ledger; their verdicts stand above it as chips
and colour it.  One that begins "Theorem" holds a theorem and its proof.  A paragraph "**Figure 4.1.** ..." behind a
cell is the caption of what the cell shows.
"""

import re
from functools import partial

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

from caracal_book.rules.figure_rules import STAND
from caracal_book.rules.ledger import VERDICTS, slug

from .claims import badge, ledger_pages

logger = logging.getLogger(__name__)

CAPTION = re.compile(r"Figure (\d+|[A-Z])\.(\d+)\.")
_LINK = re.compile(r"claim (\d+)")


class book_figure(nodes.General, nodes.Element):
    """A cell and its caption.  It is no docutils figure, which Sphinx would number a second time."""


class book_caption(nodes.Part, nodes.TextElement):
    """The caption of a `book_figure`."""


def setup(app):
    for node, tag in ((book_figure, "figure"), (book_caption, "figcaption")):
        app.add_node(node, html=(partial(_open, tag), partial(_close, tag)))
    app.connect("doctree-read", frame_figures)
    app.add_post_transform(MarkBoxes)


def _open(tag, self, node):
    self.body.append(self.starttag(node, tag))


def _close(tag, self, node):
    self.body.append(f"</{tag}>\n")


def first_words(node: nodes.Element) -> str:
    """Return the text of the first bold part of a block, if the block begins with it."""
    strong = next(iter(node.findall(nodes.strong)), None)
    return strong.astext() if strong is not None and node.astext().startswith(strong.astext()) else ""


def frame_figures(app, doctree):
    """Put each cell whose next paragraph is a caption, and that caption, into a figure of its own."""
    for paragraph in list(doctree.findall(nodes.paragraph)):
        number = CAPTION.match(first_words(paragraph))
        index = paragraph.parent.index(paragraph) if number else 0
        cell = paragraph.parent[index - 1] if index else None
        if isinstance(cell, nodes.container) and cell.get("nb_element") == "cell_code":
            parent = paragraph.parent
            del parent[index - 1:index + 1]
            figure = book_figure("", cell, book_caption("", "", *paragraph.children), classes=["book-figure"],
                                 ids=[f"figure-{number[1]}-{number[2]}"])
            parent.insert(index - 1, figure)
    for cell in doctree.findall(nodes.container):
        captioned = isinstance(cell.parent, book_figure) or STAND in cell.get("cell_metadata", {}).get("tags", [])
        if cell.get("nb_element") == "cell_code" and not captioned and _shows_figure(cell):
            logger.warning("cell %d shows a figure without caption", cell["cell_index"], location=cell, type="figures")


def _shows_figure(cell: nodes.Element) -> bool:
    return any(cell.findall(nodes.image)) or any("caracal-figure" in raw.astext() for raw in cell.findall(nodes.raw))


class MarkBoxes(SphinxPostTransform):
    """Give the boxes their classes, and those of claims their chips."""

    default_priority = 910  # after the links to the ledger have their addresses

    def run(self, **kwargs):
        verdicts = {claim.id: claim.verdict for claims in ledger_pages(self.env).values() for claim in claims}
        for box in list(self.document.findall(nodes.block_quote)):
            if first_words(box).startswith("Theorem"):
                box["classes"].append("theorem-box")
            elif first_words(box) == "What the paper says":
                links = {int(number[1]): link["refuri"] for link in box.findall(nodes.reference)
                         if (number := _LINK.fullmatch(link.astext().strip()))}
                known = {number: verdicts[number] for number in links if number in verdicts}
                box["classes"].append("claim-box")
                if known:
                    furthest = max(known.values(), key=list(VERDICTS).index)  # of the box's claims, from "holds"
                    box["classes"].append(f"claim-{slug(furthest)}")
                    box.insert(0, chips(known, links))


def chips(verdicts: dict[int, str], links: dict[int, str]) -> nodes.paragraph:
    """Return a line with a link for each verdict, to the row of its claim."""
    line = nodes.paragraph(classes=["claim-verdicts"])
    for number, verdict in verdicts.items():
        line += nodes.reference("", "", badge(verdict, f"Claim {number}: "), internal=True, refuri=links[number])
    return line
