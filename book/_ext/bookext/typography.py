"""Keep a formula and the punctuation that touches it on one line.

A browser may break a line beside a drawn formula even where the next character is a full stop.
"""

import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

_CLOSING = re.compile(r"[.,;:?!)\]’”…]+")
_OPENING = re.compile(r"[(\[‘“]+$")


def setup(app):
    app.add_post_transform(KeepTogether)


class KeepTogether(SphinxPostTransform):
    """Put each inline formula, with the punctuation around it, into a span that does not break."""

    default_priority = 950
    formats = ("html",)

    def run(self, **kwargs):
        for formula in list(self.document.findall(nodes.math)):
            before, after = touching(formula)
            if before or after:
                span = nodes.inline("", classes=["keep-together"])
                formula.parent.replace(formula, span)
                span += [nodes.Text(before), formula, nodes.Text(after)]


def touching(formula: nodes.math) -> tuple[str, str]:
    """Take the punctuation beside a formula out of the neighbouring texts and return it."""
    parent = formula.parent
    index = parent.index(formula)
    before = after = ""
    if index > 0 and isinstance(parent[index - 1], nodes.Text):
        text = parent[index - 1].astext()
        if match := _OPENING.search(text):
            before = match[0]
            parent[index - 1] = nodes.Text(text[:match.start()])
    if index + 1 < len(parent) and isinstance(parent[index + 1], nodes.Text):
        text = parent[index + 1].astext()
        if match := _CLOSING.match(text):
            after = match[0]
            parent[index + 1] = nodes.Text(text[match.end():])
    return before, after
